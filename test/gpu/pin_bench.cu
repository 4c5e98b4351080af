// pin_bench.cu: the workloads of script/test-gpu pin. Prints one line of JSON.
//
//   pin_bench seed POLICY turn|together MIB    2 hot buffers (175 copies in, 175 out) and 25 cold ones (1 and 1), each in turn or all live together
//   pin_bench wire MIB                         what pinned and pageable copies take
//   pin_bench zipf|adversary                   for the preloaded library: what its copies take above the wire, and what the offline optimum takes
//   pin_bench fork MIB                         fork with a hot buffer
//   pin_bench stall MIB                        how long copies of another thread wait while memory is registered
//
// POLICY: malloc (also for the preloaded library), host (cudaHostAlloc for all), seed (a saved profile pins the hot ones by cudaMallocHost, others by malloc).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

#include "../../include/memoir/pin.h"

static const size_t MIB = 1 << 20;

static double now_ms()
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

#define CHECK(call)                                                                    \
    do {                                                                               \
        cudaError_t e_ = (call);                                                       \
        if (e_ != cudaSuccess) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

// Pages that the kernel holds pinned, machine-wide: of cudaHostAlloc() and of cudaHostRegister().
static int64_t kernel_pinned()
{
    FILE *f = fopen("/proc/vmstat", "r");
    char name[128];
    long long value, acquired = 0, released = 0;
    while (f && fscanf(f, "%127s %lld", name, &value) == 2) {
        if (!strcmp(name, "nr_foll_pin_acquired"))
            acquired = value;
        if (!strcmp(name, "nr_foll_pin_released"))
            released = value;
    }
    if (f)
        fclose(f);
    return (acquired - released) * 4096;
}

static int (*pin_stats)(struct memoir_pin_stats *);
static int (*pin_why)(const void *, struct memoir_pin_why *);

static void stats_print()
{
    struct memoir_pin_stats s;
    memset(&s, 0, sizeof(s));
    s.struct_size = sizeof(s);
    if (!pin_stats || pin_stats(&s))
        return;
    printf(", \"pinned_peak\": %llu, \"served\": %llu, \"saved_ms\": %.3f, \"missed_ms\": %.3f, \"cost_ms\": %.3f, \"registers\": %llu, "
           "\"unregisters\": %llu, \"pool_hits\": %llu, \"failures\": %llu, \"calibrated\": %d, \"copies_seen\": %llu, \"pinned_copies\": %llu, "
           "\"mismatches\": %llu, \"staged_copies\": %llu, \"staged_saved_ms\": %.3f, \"touched\": %llu, \"register_ms\": %.3f, \"observed_ms\": %.3f",
           (unsigned long long)s.pinned_bytes_peak, (unsigned long long)s.served_bytes, s.saved_ns / 1e6, s.missed_ns / 1e6,
           s.cost_ns / 1e6, (unsigned long long)s.registers, (unsigned long long)s.unregisters, (unsigned long long)s.pool_hits,
           (unsigned long long)s.failures, s.calibrated, (unsigned long long)s.copies, (unsigned long long)s.pinned_copies,
           (unsigned long long)s.mismatches, (unsigned long long)s.staged_copies, s.staged_saved_ns / 1e6, (unsigned long long)s.touched_bytes,
           (s.register_ns + s.unregister_ns) / 1e6, s.observed_ns / 1e6);
}

static bool is_pinned(const void *p)
{
    struct memoir_pin_why why;
    memset(&why, 0, sizeof(why));
    why.struct_size = sizeof(why);
    return pin_why && pin_why(p, &why) == 0 && why.pinned;
}

static void *huge(void *p, size_t bytes)
{
    uintptr_t from = ((uintptr_t)p + 2 * MIB - 1) & ~(uintptr_t)(2 * MIB - 1), to = ((uintptr_t)p + bytes) & ~(uintptr_t)(2 * MIB - 1);
    if (to > from)
        madvise((void *)from, to - from, MADV_HUGEPAGE);
    return p;
}

enum policy { P_MALLOC, P_HOST, P_SEED };

struct buffer {
    char *p;
    bool host;
};

static buffer take(policy how, bool hot, size_t bytes)
{
    buffer b = {nullptr, how == P_HOST || (how == P_SEED && hot)};
    if (b.host)
        CHECK(how == P_HOST ? cudaHostAlloc((void **)&b.p, bytes, cudaHostAllocDefault) : cudaMallocHost((void **)&b.p, bytes));
    else
        b.p = (char *)huge(malloc(bytes), bytes);
    return b;
}
__attribute__((noinline)) static buffer take_hot(policy how, size_t bytes)
{
    buffer b = take(how, true, bytes);
    asm volatile("" ::: "memory");
    return b;
}
__attribute__((noinline)) static buffer take_cold(policy how, size_t bytes)
{
    buffer b = take(how, false, bytes);
    asm volatile("" ::: "memory");
    return b;
}

static void drop(buffer b)
{
    if (b.host)
        CHECK(cudaFreeHost(b.p));
    else
        free(b.p);
}

static void copies(char *p, char *device, size_t bytes, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK(cudaMemcpy(device, p, bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(p, device, bytes, cudaMemcpyDeviceToHost));
    }
}

static int seed(policy how, bool together, size_t bytes)
{
    enum { HOT = 2, COLD = 25, N = HOT + COLD };
    char *device;
    CHECK(cudaMalloc(&device, bytes));
    buffer b[N] = {};
    int64_t before = kernel_pinned(), peak = 0;
    double copy_ms = 0, sample_ms = 0, take_ms = 0, touch_ms = 0, drop_ms = 0, start = now_ms();
    auto copy = [&](int i) {
        double t = now_ms();
        copies(b[i].p, device, bytes, i < HOT ? 175 : 1);
        copy_ms += now_ms() - t;
        t = now_ms();
        int64_t pinned = kernel_pinned() - before;
        peak = pinned > peak ? pinned : peak;
        sample_ms += now_ms() - t;
    };
    for (int i = 0; i < N; i++) {
        double t = now_ms();
        b[i] = i < HOT ? take_hot(how, bytes) : take_cold(how, bytes);
        double taken = now_ms();
        memset(b[i].p, i + 1, bytes);
        take_ms += taken - t;
        touch_ms += now_ms() - taken;
        if (!together) {
            copy(i);
            t = now_ms();
            drop(b[i]);
            drop_ms += now_ms() - t;
        }
    }
    for (int i = 0; together && i < N; i++)
        copy(i);
    int wrong = 0;
    for (int i = 0; together && i < N; i++) {
        double t = now_ms();
        for (size_t k = 0; k < bytes; k += 65536)
            wrong += b[i].p[k] != i + 1;
        sample_ms += now_ms() - t;
        t = now_ms();
        drop(b[i]);
        drop_ms += now_ms() - t;
    }
    double whole_ms = now_ms() - start - sample_ms;
    printf("{\"whole_ms\": %.3f, \"take_ms\": %.3f, \"touch_ms\": %.3f, \"copy_ms\": %.3f, \"drop_ms\": %.3f, \"kernel_pinned_peak\": %lld, \"allocated\": %llu, \"wrong\": %d", whole_ms, take_ms, touch_ms,
           copy_ms, drop_ms, (long long)peak, (unsigned long long)N * bytes, wrong);
    stats_print();
    printf("}\n");
    return wrong != 0;
}

static double best_of(int n, cudaMemcpyKind kind, char *host, char *device, size_t bytes)
{
    std::vector<double> t;
    for (int i = 0; i < n; i++) {
        double start = now_ms();
        CHECK(kind == cudaMemcpyHostToDevice ? cudaMemcpy(device, host, bytes, kind) : cudaMemcpy(host, device, bytes, kind));
        t.push_back(now_ms() - start);
    }
    std::vector<double> s = t;
    for (size_t i = 1; i < s.size(); i++)
        for (size_t k = i; k > 0 && s[k] < s[k - 1]; k--)
            std::swap(s[k], s[k - 1]);
    return s[s.size() / 2];
}

static int wire(size_t bytes)
{
    char *device, *pinned, *plain = (char *)huge(malloc(bytes), bytes);
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMallocHost((void **)&pinned, bytes));
    memset(pinned, 1, bytes);
    memset(plain, 1, bytes);
    best_of(2, cudaMemcpyHostToDevice, plain, device, bytes);
    best_of(20, cudaMemcpyHostToDevice, pinned, device, bytes); // a link that was idle begins slowly
    printf("{\"pinned_to_ms\": %.4f, \"pinned_from_ms\": %.4f, ", best_of(9, cudaMemcpyHostToDevice, pinned, device, bytes),
           best_of(9, cudaMemcpyDeviceToHost, pinned, device, bytes));
    printf("\"pageable_to_ms\": %.4f, \"pageable_from_ms\": %.4f}\n", best_of(5, cudaMemcpyHostToDevice, plain, device, bytes),
           best_of(5, cudaMemcpyDeviceToHost, plain, device, bytes));
    return 0;
}

// ---- traces against the offline optimum: costs measured here, by the same calls ----

struct costs {
    double pinned_ms, pageable_ms, pin_ms;
};

static costs measure(size_t bytes, char *device)
{
    costs c;
    char *p = (char *)mmap(nullptr, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = (char *)(((uintptr_t)p + 2 * MIB - 1) & ~(uintptr_t)(2 * MIB - 1));
    if (bytes >= 4 * MIB)
        madvise(at, bytes, MADV_HUGEPAGE);
    memset(at, 1, bytes);
    best_of(1, cudaMemcpyHostToDevice, at, device, bytes);
    c.pageable_ms = best_of(7, cudaMemcpyHostToDevice, at, device, bytes);
    std::vector<double> pins; // medians, as of copies
    for (int i = 0; i < 5; i++) {
        double t = now_ms();
        CHECK(cudaHostRegister(at, bytes, cudaHostRegisterPortable));
        double middle = now_ms();
        if (i == 0)
            c.pinned_ms = best_of(7, cudaMemcpyHostToDevice, at, device, bytes);
        double end = now_ms();
        CHECK(cudaHostUnregister(at));
        pins.push_back(middle - t + now_ms() - end);
    }
    std::sort(pins.begin(), pins.end());
    c.pin_ms = pins[pins.size() / 2];
    munmap(p, bytes + 2 * MIB);
    return c;
}

template <int N> __attribute__((noinline)) static char *at_site(size_t bytes)
{
    char *p = (char *)malloc(bytes);
    asm volatile("" ::"i"(N) : "memory");
    return p;
}
typedef char *site_fn(size_t);
static site_fn *const sites[] = {at_site<0>, at_site<1>, at_site<2>, at_site<3>, at_site<4>, at_site<5>, at_site<6>, at_site<7>,
                                 at_site<8>, at_site<9>, at_site<10>, at_site<11>, at_site<12>, at_site<13>, at_site<14>, at_site<15>};

// Every size in turn; at each, 16 sites. All blocks of a size live until its end, so that each is a decision of its own.
static int versus(bool adversary)
{
    char *device;
    CHECK(cudaMalloc(&device, 64 * MIB));
    double paid = 0, best = 0;
    unsigned state = 1;
    for (size_t bytes : {512 * 1024ul, 1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB}) {
        costs c = measure(bytes, device);
        double saving = c.pageable_ms > c.pinned_ms ? c.pageable_ms - c.pinned_ms : 0, paid_here = 0, best_here = 0;
        std::vector<char *> live;
        for (int b = 0; b < 32; b++) {
            char *p = sites[b % 16](bytes);
            memset(p, b, bytes);
            int n = adversary ? 1000 : 1 + 200 / (b % 16 + 1) / (1 + (state = state * 1103515245 + 12345) / 65536 % 2), made = 0;
            for (; made < n; made++) {
                double t = now_ms();
                CHECK(cudaMemcpy(device, p, bytes, cudaMemcpyHostToDevice));
                paid_here += now_ms() - t - c.pinned_ms;
                if (adversary && is_pinned(p)) {
                    made++;
                    break;
                }
            }
            best_here += made * saving < c.pin_ms ? made * saving : c.pin_ms;
            live.push_back(p);
        }
        double t = now_ms();
        for (char *p : live)
            free(p);
        paid_here += now_ms() - t; // unregistering what the pool does not keep
        fprintf(stderr, "%zu KiB: saving %.4f ms, pin %.4f ms, paid %.3f, optimum %.3f: %.3f\n", bytes >> 10, saving, c.pin_ms, paid_here,
                best_here, paid_here / best_here);
        paid += paid_here;
        best += best_here;
    }
    printf("{\"paid_ms\": %.3f, \"optimum_ms\": %.3f, \"ratio\": %.4f", paid, best, paid / best);
    stats_print();
    printf("}\n");
    return 0;
}

static int forks(size_t bytes)
{
    char *device, *p = (char *)huge(malloc(bytes), bytes);
    CHECK(cudaMalloc(&device, bytes));
    memset(p, 1, bytes);
    copies(p, device, bytes, 40);
    double t = now_ms();
    pid_t child = fork();
    if (child == 0)
        _exit(p[bytes / 2] != 1);
    double fork_ms = now_ms() - t;
    int status = -1;
    waitpid(child, &status, 0);
    t = now_ms();
    CHECK(cudaMemcpy(device, p, bytes, cudaMemcpyHostToDevice));
    double first_ms = now_ms() - t;
    t = now_ms();
    CHECK(cudaMemcpy(device, p, bytes, cudaMemcpyHostToDevice));
    printf("{\"fork_ms\": %.3f, \"first_copy_ms\": %.3f, \"next_copy_ms\": %.3f, \"child\": %d", fork_ms, first_ms, now_ms() - t, status);
    stats_print();
    printf("}\n");
    return 0;
}

int main(int argc, char **argv)
{
    std::string what = argc > 1 ? argv[1] : "";
    *(void **)&pin_stats = dlsym(RTLD_DEFAULT, "memoir_pin_stats");
    *(void **)&pin_why = dlsym(RTLD_DEFAULT, "memoir_pin_why");
    CHECK(cudaFree(0));
    if (what == "seed" && argc == 5)
        return seed(!strcmp(argv[2], "host") ? P_HOST : !strcmp(argv[2], "seed") ? P_SEED : P_MALLOC, !strcmp(argv[3], "together"),
                    atol(argv[4]) * MIB);
    if (what == "wire" && argc == 3)
        return wire(atol(argv[2]) * MIB);
    if (what == "zipf" || what == "adversary")
        return versus(what == "adversary");
    if (what == "fork" && argc == 3)
        return forks(atol(argv[2]) * MIB);
    fprintf(stderr, "usage: see the top of pin_bench.cu\n");
    return 2;
}
