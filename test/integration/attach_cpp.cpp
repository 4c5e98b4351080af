// A threaded C++ program whose heap is looked at from outside: operator new that throws, containers that grow, and a sum over all of
// it that must come out the same with probes and without.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

static std::vector<std::unique_ptr<std::string>> leaked;

__attribute__((noinline)) static void leak(int n)
{
    for (int i = 0; i < n; i++)
        leaked.push_back(std::make_unique<std::string>(1000, 'x'));
}

static bool refused()
{
    volatile std::size_t huge = SIZE_MAX / 4;
    try {
        volatile char *p = new char[huge];
        std::printf("%p", static_cast<const void *>(const_cast<char *>(p)));
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

static std::uint64_t work(unsigned seed)
{
    std::map<unsigned, std::string> names;
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < 300; i++) {
        seed = seed * 1103515245 + 12345;
        names[seed % 97] += std::to_string(seed);
        if (i % 50 == 0 && !refused())
            std::abort();
    }
    for (const auto &[key, text] : names)
        sum = sum * 31 + key + text.size();
    return sum;
}

int main()
{
    char line[64];
    while (std::fgets(line, sizeof(line), stdin)) {
        std::uint64_t sums[3] = {};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < 3; t++)
            threads.emplace_back([&sums, t] { sums[t] = work(t + 1); });
        for (auto &thread : threads)
            thread.join();
        if (std::strncmp(line, "leak", 4) == 0)
            leak(std::atoi(line + 4));
        std::printf("%llu\n", static_cast<unsigned long long>(sums[0] ^ sums[1] ^ sums[2]));
        std::fflush(stdout);
    }
}
