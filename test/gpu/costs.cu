/* How long calls take, in rounds: a line on stdin starts one, a line of JSON with medians answers. The harness switches tracing on
 * and off in between. */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

static double median(std::vector<double> &v)
{
    std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
    return v[v.size() / 2];
}

template <class F> static double each_us(int n, F call)
{
    std::vector<double> took(n);
    for (int i = 0; i < n; i++) {
        auto start = std::chrono::steady_clock::now();
        call();
        took[i] = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    }
    return median(took);
}

int main()
{
    void *device, *host;
    cudaMalloc(&device, 64 << 20);
    cudaHostAlloc(&host, 64 << 20, cudaHostAllocDefault);
    std::memset(host, 1, 64 << 20);
    char line[64];
    std::puts("{}");
    std::fflush(stdout);
    while (std::fgets(line, sizeof(line), stdin)) {
        int part = std::strncmp(line, "few", 3) == 0 ? 20 : 1; /* a short round, to get started */
        double small = each_us(4000 / part, [&] { cudaMemcpy(device, host, 4096, cudaMemcpyHostToDevice); });
        double mega = each_us(1000 / part, [&] { cudaMemcpy(device, host, 1 << 20, cudaMemcpyHostToDevice); });
        double large = each_us(60 / part, [&] { cudaMemcpy(device, host, 16 << 20, cudaMemcpyHostToDevice); });
        double pair = each_us(2000 / part, [&] {
            void *p;
            cudaMalloc(&p, 1 << 20);
            cudaFree(p);
        });
        std::printf("{\"copy_4k_us\": %.3f, \"copy_1m_us\": %.3f, \"copy_16m_us\": %.3f, \"pair_us\": %.3f}\n", small, mega,
                    large, pair);
        std::fflush(stdout);
    }
}
