// A threaded C++ program whose heap is looked at from outside: operator new that throws, containers that grow, and a sum over all of
// it that must come out the same with probes and without.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
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

// Blocks by every form of new, and gone by the delete that belongs to it. Their sizes take the ways that allocators have: small,
// medium, large.
static const std::size_t SIZES[] = {1, 24, 500, 1024, 5000, 40000, 300000, 3 << 20};
static std::size_t wide(std::size_t size)
{
    return (size + 255) / 256 * 256;
} // as libstdc++ rounds it
static const auto WIDE = std::align_val_t{256};
static void *made[8][64][4];
static std::size_t n_made, made_bytes;

static void make(std::size_t rounds)
{
    for (; rounds > 0 && n_made < 64; rounds--, n_made++)
        for (int i = 0; i < 8; i++) {
            made[i][n_made][0] = ::operator new(SIZES[i]);
            made[i][n_made][1] = ::operator new[](SIZES[i]);
            made[i][n_made][2] = ::operator new(wide(SIZES[i]), WIDE);
            made[i][n_made][3] = ::operator new(SIZES[i], std::nothrow);
            made_bytes += 3 * SIZES[i] + wide(SIZES[i]);
        }
}

static void unmake(std::size_t rounds)
{
    for (; rounds > 0 && n_made > 0; rounds--) {
        n_made--;
        for (int i = 0; i < 8; i++) {
            ::operator delete(made[i][n_made][0], SIZES[i]);
            ::operator delete[](made[i][n_made][1]);
            ::operator delete(made[i][n_made][2], WIDE);
            ::operator delete(made[i][n_made][3]);
            made_bytes -= 3 * SIZES[i] + wide(SIZES[i]);
        }
    }
}

static void pairs(long n)
{
    for (long i = 0; i < n; i++) {
        char *volatile block = new char[64];
        delete[] block;
    }
}

// Commands that nothing else allocates for. False: another one.
static bool act(const char *line)
{
    struct timespec before, after;
    if (std::strncmp(line, "make", 4) == 0)
        make(std::strtoul(line + 4, nullptr, 10));
    else if (std::strncmp(line, "unmake", 6) == 0)
        unmake(std::strtoul(line + 6, nullptr, 10));
    else if (std::strncmp(line, "refuse", 6) == 0 && !refused())
        std::abort();
    else if (std::strncmp(line, "pairs", 5) == 0) {
        long n = std::atol(line + 5);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        pairs(n);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        std::printf("pair %.0f\n", (static_cast<double>(after.tv_sec - before.tv_sec) * 1e9 +
                                    static_cast<double>(after.tv_nsec - before.tv_nsec)) /
                                       static_cast<double>(n));
        return true;
    } else if (std::strncmp(line, "refuse", 6) != 0)
        return false;
    std::printf("live %zu %zu\n", made_bytes, n_made * 32);
    return true;
}

int main()
{
    char line[64];
    while (std::fgets(line, sizeof(line), stdin)) {
        if (act(line)) {
            std::fflush(stdout);
            continue;
        }
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
