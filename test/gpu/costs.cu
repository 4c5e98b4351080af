/* How long calls take: a line "PART N" on stdin asks for the median of N calls in a row, a line of JSON answers. The harness asks
 * two of these programs in turn, of which one uses a driver that is not traced. */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int WARM = 8; /* calls before the measured ones: another program has had the processor and the device */

template <class F> static double each_us(int n, F call, int calls = 1)
{
    std::vector<double> took(n);
    for (int i = -WARM; i < n; i++) {
        auto start = std::chrono::steady_clock::now();
        call();
        if (i >= 0)
            took[i] = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
    }
    std::nth_element(took.begin(), took.begin() + n / 2, took.end());
    return took[n / 2];
}

int main()
{
    void *device, *host;
    cudaMalloc(&device, 64 << 20);
    cudaHostAlloc(&host, 64 << 20, cudaHostAllocDefault);
    std::memset(host, 1, 64 << 20);
    char line[64], part[32];
    int n;
    std::puts("{}");
    std::fflush(stdout);
    while (std::fgets(line, sizeof(line), stdin)) {
        if (std::sscanf(line, "%31s %d", part, &n) != 2 || n < 1)
            return 2;
        double us = -1;
        if (!std::strcmp(part, "copy_4k"))
            us = each_us(n, [&] { cudaMemcpy(device, host, 4096, cudaMemcpyHostToDevice); });
        else if (!std::strcmp(part, "copy_1m"))
            us = each_us(n, [&] { cudaMemcpy(device, host, 1 << 20, cudaMemcpyHostToDevice); });
        else if (!std::strcmp(part, "copy_16m"))
            us = each_us(n, [&] { cudaMemcpy(device, host, 16 << 20, cudaMemcpyHostToDevice); });
        else if (!std::strcmp(part, "pair"))
            us = each_us(n, [&] {
                void *p;
                cudaMalloc(&p, 1 << 20);
                cudaFree(p);
            });
        else if (!std::strcmp(part, "set_device")) /* one probed call that does next to nothing */
            us = each_us(n, [&] { cudaSetDevice(0); });
        else if (!std::strcmp(part, "system_call"))
            us = each_us(n, [&] {
                for (int i = 0; i < 100; i++)
                    syscall(SYS_getppid);
            }, 100);
        std::printf("{\"us\": %.4f}\n", us);
        std::fflush(stdout);
    }
}
