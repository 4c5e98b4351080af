/* pin_drive.c: a CUDA program that knows nothing of pinning. It takes its functions from
 * cuGetProcAddress(), as the CUDA runtime does, checks every byte that it copies, and prints one
 * line of JSON at the end: what went wrong (nothing, if all is well), and what the preloaded
 * library says about itself, if there is one. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/pin.h>

typedef unsigned long long CUdeviceptr;
typedef int CUresult;

static CUresult (*get_proc)(const char *, void **, int, unsigned long long, int *);
static unsigned long long (*time_ns)(void);
static int (*pin_stats)(struct memoir_pin_stats *);
static int (*pin_why)(const void *, struct memoir_pin_why *);
static int (*pin_hint)(void *, int);
static void (*pin_budget)(uint64_t);
static atomic_uint wrong;

static void fail(const char *what, long at)
{
    if (atomic_fetch_add(&wrong, 1) < 10)
        fprintf(stderr, "pin_drive: %s (%ld)\n", what, at);
}

static void *proc(const char *name, int version)
{
    void *function = NULL;
    int status;
    if (get_proc(name, &function, version, 0, &status) != 0 || !function) {
        fprintf(stderr, "pin_drive: no %s\n", name);
        exit(2);
    }
    return function;
}

static struct {
    CUresult (*init)(unsigned);
    CUresult (*retain)(void **, int), (*set)(void *), (*reset)(int), (*sync)(void);
    CUresult (*alloc)(CUdeviceptr *, size_t), (*drop)(CUdeviceptr);
    CUresult (*to)(CUdeviceptr, const void *, size_t), (*from)(void *, CUdeviceptr, size_t);
    CUresult (*to_async)(CUdeviceptr, const void *, size_t, void *),
        (*from_async)(void *, CUdeviceptr, size_t, void *);
    CUresult (*any_async)(CUdeviceptr, CUdeviceptr, size_t, void *);
    CUresult (*host_register)(void *, size_t, unsigned), (*host_unregister)(void *),
        (*host_flags)(unsigned *, void *);
    CUresult (*host_alloc)(void **, size_t, unsigned), (*host_free)(void *);
    CUresult (*attribute)(void *, int, CUdeviceptr);
    CUresult (*stream)(void **, unsigned), (*stream_sync)(void *);
    CUresult (*begin)(void *, int), (*end)(void *, void **);
    CUresult (*instantiate)(void **, void *, unsigned long long), (*launch)(void *, void *);
} cu;

static void *context;

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library || !(*(void **)&get_proc = dlsym(library, "cuGetProcAddress_v2"))) {
        fprintf(stderr, "pin_drive: no driver: %s\n", dlerror());
        exit(2);
    }
    *(void **)&time_ns = dlsym(library, "standin_time_ns");
    *(void **)&pin_stats = dlsym(RTLD_DEFAULT, "memoir_pin_stats");
    *(void **)&pin_why = dlsym(RTLD_DEFAULT, "memoir_pin_why");
    *(void **)&pin_hint = dlsym(RTLD_DEFAULT, "memoir_pin_hint");
    *(void **)&pin_budget = dlsym(RTLD_DEFAULT, "memoir_pin_budget");
    const struct {
        void *to;
        const char *name;
        int version;
    } names[] = {
        {&cu.init, "cuInit", 2000},
        {&cu.retain, "cuDevicePrimaryCtxRetain", 7000},
        {&cu.set, "cuCtxSetCurrent", 4000},
        {&cu.reset, "cuDevicePrimaryCtxReset", 11000},
        {&cu.sync, "cuCtxSynchronize", 2000},
        {&cu.alloc, "cuMemAlloc", 3020},
        {&cu.drop, "cuMemFree", 3020},
        {&cu.to, "cuMemcpyHtoD", 3020},
        {&cu.from, "cuMemcpyDtoH", 3020},
        {&cu.to_async, "cuMemcpyHtoDAsync", 3020},
        {&cu.from_async, "cuMemcpyDtoHAsync", 3020},
        {&cu.any_async, "cuMemcpyAsync", 4000},
        {&cu.host_register, "cuMemHostRegister", 6050},
        {&cu.host_unregister, "cuMemHostUnregister", 4000},
        {&cu.host_flags, "cuMemHostGetFlags", 2030},
        {&cu.host_alloc, "cuMemHostAlloc", 2020},
        {&cu.host_free, "cuMemFreeHost", 2000},
        {&cu.attribute, "cuPointerGetAttribute", 4000},
        {&cu.stream, "cuStreamCreate", 2000},
        {&cu.stream_sync, "cuStreamSynchronize", 2000},
        {&cu.begin, "cuStreamBeginCapture", 10010},
        {&cu.end, "cuStreamEndCapture", 10000},
        {&cu.instantiate, "cuGraphInstantiate", 12000},
        {&cu.launch, "cuGraphLaunch", 10000},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        *(void **)names[i].to = proc(names[i].name, names[i].version);
    if (cu.init(0) || cu.retain(&context, 0) || cu.set(context))
        fail("no context", 0);
}

/* ---- bytes that can be told apart ---- */

static void paint(unsigned char *block, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i += 512)
        *(uint32_t *)(block + i) = (uint32_t)(seed * 2654435761u + i);
}

static void look(const unsigned char *block, size_t bytes, unsigned seed, const char *what)
{
    for (size_t i = 0; i < bytes; i += 512)
        if (*(const uint32_t *)(block + i) != (uint32_t)(seed * 2654435761u + i)) {
            fail(what, (long)i);
            return;
        }
}

/* There and back again. */
static void round_trip(unsigned char *block, CUdeviceptr device, size_t bytes, unsigned seed)
{
    paint(block, bytes, seed);
    if (cu.to(device, block, bytes))
        fail("to the device", seed);
    memset(block, 0, bytes);
    if (cu.from(block, device, bytes))
        fail("from the device", seed);
    look(block, bytes, seed, "round trip");
}

static CUdeviceptr device_memory(size_t bytes)
{
    CUdeviceptr device = 0;
    if (cu.alloc(&device, bytes))
        fail("device memory", (long)bytes);
    return device;
}

static int pinned(const void *block)
{
    struct memoir_pin_why why = {.struct_size = sizeof(why)};
    return pin_why && pin_why(block, &why) == 0 ? why.pinned : -1;
}

/* ---- scenarios ---- */

enum { HOT = 2, COLD = 25 };

__attribute__((noinline)) static unsigned char *hot_block(size_t bytes)
{
    unsigned char *block = malloc(bytes);
    paint(block, bytes, 1);
    return block;
}

__attribute__((noinline)) static unsigned char *cold_block(size_t bytes)
{
    unsigned char *block = malloc(bytes);
    paint(block, bytes, 2);
    return block;
}

static void copies(unsigned char *block, CUdeviceptr device, size_t bytes, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (cu.to(device, block, bytes) || cu.from(block, device, bytes))
            fail("copy", i);
}

/* The seed's workload, small: each block in turn, or all at once. */
static void seed(size_t bytes, bool together)
{
    unsigned char *block[HOT + COLD];
    CUdeviceptr device = device_memory(bytes);
    for (unsigned i = 0; i < HOT + COLD; i++) {
        block[i] = i < HOT ? hot_block(bytes) : cold_block(bytes);
        if (!together) {
            copies(block[i], device, bytes, i < HOT ? 175 : 1);
            look(block[i], bytes, i < HOT ? 1 : 2, "seed");
            free(block[i]);
        }
    }
    for (unsigned i = 0; together && i < HOT + COLD; i++)
        copies(block[i], device, bytes, i < HOT ? 175 : 1);
    for (unsigned i = 0; together && i < HOT + COLD; i++) {
        look(block[i], bytes, i < HOT ? 1 : 2, "seed");
        if (i + 1 < HOT + COLD || !getenv("PIN_DRIVE_HOLD"))
            free(block[i]);
    }
    cu.drop(device);
}

/* Changed right after the call, as pageable memory allows. */
static void async(size_t bytes)
{
    unsigned char *block = malloc(bytes), *back = malloc(bytes);
    CUdeviceptr device = device_memory(bytes);
    void *stream;
    cu.stream(&stream, 0);
    for (unsigned i = 0; i < 60; i++) {
        size_t n = i % 3 == 2 ? 4096 : bytes; /* small ones are staged */
        paint(block, n, i);
        if (i & 1 ? cu.to_async(device, block, n, stream)
                  : cu.any_async(device, (uintptr_t)block, n, stream))
            fail("async", i);
        memset(block, 0xee, n);
        if (cu.from_async(back, device, n, stream))
            fail("async back", i);
        look(back, n, i, "changed after the call");
        memset(back, 0xdd, n);
    }
    if (pin_why && (pinned(block) != 1 || pinned(back) != 1))
        fail("async: not pinned", pinned(block));
    free(block);
    free(back);
}

static void reallocs(size_t bytes)
{
    CUdeviceptr device = device_memory(16 * bytes);
    unsigned char *block = malloc(bytes);
    for (unsigned i = 0; i < 20; i++)
        round_trip(block, device, bytes, i);
    if (pin_why && pinned(block) != 1)
        fail("realloc: not pinned", 0);
    const size_t sizes[] = {bytes + 100, 2 * bytes, 7 * bytes + 4097, 3 * bytes, bytes, 4 * bytes,
                            1000,        bytes};
    size_t have = bytes;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        paint(block, have, 100 + i);
        block = realloc(block, sizes[i]);
        look(block, have < sizes[i] ? have & ~(size_t)511 : sizes[i] & ~(size_t)511, 100 + i,
             "realloc");
        have = sizes[i] & ~(size_t)511;
        for (unsigned k = 0; k < 20 && have; k++)
            round_trip(block, device, have, i + k);
    }
    free(block);
    block = calloc(1, 3 * bytes);
    for (size_t i = 0; i < 3 * bytes; i++)
        if (block[i]) {
            fail("calloc", (long)i);
            break;
        }
    free(block);
}

/* The program registers memory itself, asks about it, and lets go. */
static void own(size_t bytes)
{
    CUdeviceptr device = device_memory(bytes), value = 0;
    unsigned char *block = malloc(bytes);
    unsigned flags;
    for (unsigned i = 0; i < 20; i++)
        round_trip(block, device, bytes, i);
    if (pin_why && pinned(block) != 1)
        fail("own: not pinned", 0);
    if (cu.host_unregister(block) != 713)
        fail("own: unregistered what the program did not register", 0);
    if (cu.host_flags(&flags, block) != 1 || cu.attribute(&value, 2, (uintptr_t)block) != 1)
        fail("own: the program can see it", 0);
    if (cu.host_register(block, bytes, 0))
        fail("own: cannot register", 0);
    if (cu.host_register(block, bytes, 0) != 712)
        fail("own: registered twice", 0);
    if (cu.host_flags(&flags, block))
        fail("own: flags", 0);
    for (unsigned i = 0; i < 20; i++)
        round_trip(block, device, bytes, i);
    if (cu.host_unregister(block))
        fail("own: cannot unregister", 0);
    for (unsigned i = 0; i < 40; i++)
        round_trip(block, device, bytes, i);
    if (pin_why && pinned(block) != 1)
        fail("own: not pinned again", 0);
    /* Freed while the program has it registered. */
    if (cu.host_register(block, bytes, 0))
        fail("own: cannot register again", 0);
    free(block);
    unsigned char *other = malloc(bytes);
    round_trip(other, device, bytes, 5);
    if (cu.host_unregister(block))
        fail("own: cannot unregister after free", 0);
    free(other);
    void *host;
    if (cu.host_alloc(&host, bytes, 0))
        fail("own: host alloc", 0);
    round_trip(host, device, bytes, 9);
    if (!getenv("PIN_DRIVE_HOLD"))
        cu.host_free(host);
}

static void dropped(size_t bytes)
{
    CUdeviceptr device = device_memory(bytes);
    unsigned char *block = malloc(bytes);
    for (unsigned i = 0; i < 20; i++)
        round_trip(block, device, bytes, i);
    if (pin_why && pinned(block) != 1)
        fail("dropped: not pinned", 0);
    madvise(block, bytes & ~(size_t)4095, MADV_DONTNEED);
    if (pin_why && pinned(block) != 0)
        fail("dropped: still pinned", 0);
    round_trip(block, device, bytes, 3);
    free(block);
}

static void forks(size_t bytes)
{
    CUdeviceptr device = device_memory(bytes);
    unsigned char *block = malloc(bytes);
    for (unsigned i = 0; i < 20; i++)
        round_trip(block, device, bytes, i);
    for (unsigned n = 0; n < 3; n++) {
        paint(block, bytes, 50 + n);
        pid_t child = fork();
        if (child == 0) {
            atomic_store(&wrong, 0);
            look(block, bytes, 50 + n, "in the child");
            memset(block, 1, bytes);
            unsigned char *more = malloc(bytes);
            memset(more, 2, bytes);
            more = realloc(more, 2 * bytes);
            free(block);
            free(more);
            _exit(atomic_load(&wrong) != 0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (status != 0)
            fail("the child failed", status);
        look(block, bytes, 50 + n, "after the fork");
        for (unsigned i = 0; i < 20; i++) /* so that it pays */
            round_trip(block, device, bytes, n + i);
        if (pin_why && pinned(block) != 1)
            fail("fork: not pinned again", n);
    }
    free(block);
}

static void graphs(size_t bytes)
{
    CUdeviceptr device = device_memory(bytes);
    unsigned char *block = malloc(bytes), *back = malloc(bytes);
    void *stream, *graph, *exec;
    cu.stream(&stream, 0);
    if (cu.begin(stream, 0) || cu.to_async(device, block, bytes, stream) ||
        cu.end(stream, &graph) || cu.instantiate(&exec, graph, 0))
        fail("graph", 0);
    for (unsigned i = 0; i < 20; i++) {
        paint(block, bytes, i);
        if (cu.launch(exec, stream) || cu.stream_sync(stream) || cu.from(back, device, bytes))
            fail("graph runs", i);
        look(back, bytes, i, "graph");
        round_trip(block, device, bytes, i);
    }
    if (pin_why && pinned(block) != 0)
        fail("graph: its memory changed", 0);
    free(block);
    free(back);
}

static void contexts(size_t bytes)
{
    for (unsigned n = 0; n < 3; n++) {
        CUdeviceptr device = device_memory(bytes);
        unsigned char *block = malloc(bytes);
        for (unsigned i = 0; i < 20; i++)
            round_trip(block, device, bytes, i);
        if (cu.reset(0) || cu.retain(&context, 0) || cu.set(context))
            fail("reset", n);
        device = device_memory(bytes);
        for (unsigned i = 0; i < 5; i++)
            round_trip(block, device, bytes, i);
        free(block);
    }
}

struct job {
    size_t bytes;
    unsigned number, rounds;
};

static void *churn(void *argument)
{
    struct job *job = argument;
    unsigned state = job->number * 7919 + 1;
    cu.set(context);
    CUdeviceptr device = device_memory(8 * job->bytes);
    unsigned char *block[8] = {0};
    size_t size[8];
    for (unsigned n = 0; n < job->rounds; n++) {
        state = state * 1103515245 + 12345;
        unsigned k = state >> 16 & 7, what = state >> 20 & 7;
        if (!block[k]) {
            size[k] = (job->bytes / 4) * (1 + (state >> 24 & 7));
            block[k] = what == 0   ? calloc(1, size[k])
                       : what == 1 ? aligned_alloc(1 << 16, size[k])
                                   : malloc(size[k]);
            if (!block[k]) {
                fail("no memory", (long)size[k]);
                continue;
            }
        }
        for (unsigned i = 0; i <= what; i++)
            round_trip(block[k], device, size[k], n + i);
        if (what == 2) {
            block[k] = realloc(block[k], size[k] * 2);
            look(block[k], size[k], n + what, "churn realloc");
            size[k] = size[k] * 2 > 8 * job->bytes ? size[k] : size[k] * 2;
        }
        if (what < 3 || size[k] > 4 * job->bytes) {
            free(block[k]);
            block[k] = NULL;
        }
    }
    for (unsigned k = 0; k < 8; k++)
        free(block[k]);
    return NULL;
}

static void threads(size_t bytes, unsigned n, unsigned rounds)
{
    pthread_t thread[16];
    struct job job[16];
    for (unsigned i = 0; i < n; i++) {
        job[i] = (struct job){bytes, i + 1, rounds};
        pthread_create(&thread[i], NULL, churn, &job[i]);
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

/* The budget shrinks while blocks are pinned: by a call, or (PIN_DRIVE_WAIT) by a cgroup that is
 * changed from outside. */
static void budgets(size_t bytes)
{
    CUdeviceptr device = device_memory(bytes);
    unsigned char *block[4];
    struct memoir_pin_stats before = {.struct_size = sizeof(before)}, after = before;
    for (unsigned k = 0; k < 4; k++) {
        block[k] = malloc(bytes);
        for (unsigned i = 0; i < 20 + 5 * k; i++)
            round_trip(block[k], device, bytes, i);
    }
    if (pin_stats)
        pin_stats(&before);
    if (pin_budget && !getenv("PIN_DRIVE_WAIT"))
        pin_budget(2 * bytes);
    if (getenv("PIN_DRIVE_WAIT")) {
        printf("{\"waiting\": %d, \"pinned\": %llu}\n", (int)getpid(),
               (unsigned long long)before.pinned_bytes);
        fflush(stdout);
        (void)!getchar();
    }
    for (unsigned i = 0; i < 10; i++)
        for (unsigned k = 0; k < 4; k++)
            round_trip(block[k], device, bytes, i + k);
    if (pin_stats) {
        pin_stats(&after);
        if (after.pinned_bytes > 2 * bytes + 8192)
            fail("budget: too much is pinned", (long)after.pinned_bytes);
        if (before.pinned_bytes < 4 * bytes)
            fail("budget: too little was pinned", (long)before.pinned_bytes);
    }
    for (unsigned k = 0; k < 4; k++)
        free(block[k]);
}

static void hints(size_t bytes)
{
    CUdeviceptr device = device_memory(bytes);
    unsigned char *hot = malloc(bytes), *cold = malloc(bytes);
    if (pin_hint && (pin_hint(hot, MEMOIR_PIN_HOT) || pin_hint(cold, MEMOIR_PIN_COLD) ||
                     pin_hint(&device, 0) == 0))
        fail("hints", 0);
    round_trip(hot, device, bytes, 1);
    for (unsigned i = 0; i < 60; i++)
        round_trip(cold, device, bytes, i);
    if (pin_why && (pinned(hot) != 1 || pinned(cold) != 0))
        fail("hints are not heeded", pinned(cold));
    free(hot);
    free(cold);
}

/* Large copies of memory that is never pinned, by every call that moves one range: in the default
 * streams and in one of the program's own, at odd places and sizes, changed right after the call. */
static void stages(size_t bytes)
{
    unsigned char *block = malloc(bytes + 4096), *back = malloc(bytes + 4096);
    CUdeviceptr device = device_memory(bytes + 4096);
    void *stream;
    CUresult (*any)(CUdeviceptr, CUdeviceptr, size_t) = proc("cuMemcpy", 4000);
    CUresult (*to_twin)(CUdeviceptr, const void *, size_t),
        (*any_twin)(CUdeviceptr, CUdeviceptr, size_t);
    CUresult (*from_twin)(void *, CUdeviceptr, size_t, void *);
    int status;
    cu.stream(&stream, 0);
    if (get_proc("cuMemcpyHtoD", (void **)&to_twin, 12000, 2, &status) ||
        get_proc("cuMemcpy", (void **)&any_twin, 12000, 2, &status) ||
        get_proc("cuMemcpyDtoHAsync", (void **)&from_twin, 12000, 2, &status))
        fail("stage: no functions for a default stream per thread", 0);
    if (pin_hint && (pin_hint(block, MEMOIR_PIN_COLD) || pin_hint(back, MEMOIR_PIN_COLD)))
        fail("stage: hint", 0);
    for (unsigned i = 0; i < 24; i++) {
        size_t n = bytes - (i % 3 ? 512 * (i * 37 % 2048) : 0);
        unsigned char *from = block + i % 4 * 64, *to = back + i % 5 * 48;
        CUdeviceptr at = device + i % 2 * 256;
        paint(from, n, i);
        CUresult r = i % 6 == 0   ? cu.to(at, from, n)
                     : i % 6 == 1 ? to_twin(at, from, n)
                     : i % 6 == 2 ? cu.to_async(at, from, n, stream)
                     : i % 6 == 3 ? any(at, (uintptr_t)from, n)
                     : i % 6 == 4 ? cu.any_async(at, (uintptr_t)from, n, stream)
                                  : cu.to_async(at, from, n, NULL);
        if (r)
            fail("stage: to the device", i);
        memset(from, 0xee, n);
        r = i % 5 == 0   ? cu.from(to, at, n)
            : i % 5 == 1 ? cu.from_async(to, at, n, stream)
            : i % 5 == 2 ? from_twin(to, at, n, NULL)
            : i % 5 == 3 ? any_twin((uintptr_t)to, at, n)
                         : cu.any_async((uintptr_t)to, at, n, stream);
        if (r)
            fail("stage: from the device", i);
        look(to, n, i, "stage");
        memset(to, 0xdd, n);
    }
    /* Errors are the driver's own, and nothing is copied then. */
    paint(block, bytes, 77);
    if (cu.to(device, block, bytes) || cu.to(device + bytes, block, bytes) != 1 ||
        cu.to(16, block, bytes) != 1 || cu.to_async(device, block, bytes, (void *)99) != 400)
        fail("stage: errors", 0);
    if (cu.from(back, device, bytes))
        fail("stage: after errors", 0);
    look(back, bytes, 77, "stage after errors");
    if (cu.begin(stream, 0) || cu.to_async(device, block, bytes, stream))
        fail("stage: capture", 0);
    void *graph;
    if (cu.end(stream, &graph) || !graph)
        fail("stage: the capture was disturbed", 0);
    free(block);
    free(back);
}

/* Memory that the program maps itself, pinned by it and not, of a file and of none. */
static void maps(size_t bytes)
{
    CUdeviceptr device = device_memory(bytes);
    void *stream, *graph, *host;
    struct memoir_pin_stats before = {.struct_size = sizeof(before)}, after = before;
    unsigned char *plain =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int file = memfd_create("pin_drive", 0);
    if (plain == MAP_FAILED || ftruncate(file, (off_t)bytes))
        fail("maps: no memory", 0);
    unsigned char *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    cu.stream(&stream, 0);
    for (unsigned i = 0; i < 4; i++) {
        round_trip(i & 1 ? shared : plain, device, bytes, i);
        paint(plain, bytes, 50 + i);
        if (cu.to_async(device, plain, bytes, stream))
            fail("maps: async", i);
        memset(plain, 0xee, bytes);
        if (cu.from_async(shared, device, bytes, stream))
            fail("maps: async back", i);
        look(shared, bytes, 50 + i, "maps");
    }
    if (cu.begin(stream, 0) || cu.to_async(device, plain, bytes, stream) ||
        cu.end(stream, &graph) || !graph)
        fail("maps: capture", 0);
    if (pin_stats)
        pin_stats(&before);
    if (cu.host_register(plain, bytes, 0) || cu.host_alloc(&host, bytes, 0)) {
        fail("maps: cannot pin", 0);
        return;
    }
    round_trip(plain, device, bytes, 8);
    round_trip(host, device, bytes, 9);
    if (pin_stats)
        pin_stats(&after);
    if (before.staged_copies != after.staged_copies)
        fail("maps: memory that the program pinned was staged", (long)after.staged_copies);
    if (cu.host_unregister(plain))
        fail("maps: cannot unregister", 0);
    munmap(plain, bytes);
    munmap(shared, bytes);
    close(file);
}

static uint64_t touched_ahead(void)
{
    struct memoir_pin_stats s = {.struct_size = sizeof(s)};
    return pin_stats && pin_stats(&s) == 0 ? s.touched_bytes : 0;
}

static bool is_resident(const unsigned char *at)
{
    unsigned char in = 0;
    return mincore((void *)at, 4096, &in) == 0 && (in & 1);
}

/* A fresh block whose first `first` bytes are filled, and of which the library has touched `bytes`
 * ahead. It watches one block at a time and may be late on a busy machine, so others are taken until
 * it has seen one: a limit for a broken library, not a wait. */
static unsigned char *block_begun(size_t size, size_t first, uint64_t bytes, bool expected)
{
    for (unsigned attempt = 0; attempt < 60; attempt++) {
        uint64_t before = touched_ahead();
        unsigned char *block = calloc(1, size);
        for (size_t k = 0; k < first; k += 4096)
            if (block[k])
                fail("touch: not zero", (long)k);
        paint(block, first, 0);
        for (unsigned i = 0; expected && i < 400; i++) {
            if (touched_ahead() - before >= bytes)
                return block;
            usleep(500);
        }
        if (!expected)
            return block;
    }
    fail("touch: nothing was touched ahead", (long)touched_ahead());
    return calloc(1, size);
}

__attribute__((noinline)) static unsigned char *same_line(size_t bytes)
{
    unsigned char *block = malloc(bytes);
    __asm__ volatile("" ::"r"(block) : "memory");
    return block;
}

/* When a block was filled to its end, the next one of its line is touched before anything is written
 * there; when that one is not filled, the next is not touched. */
static void fills_at_once(size_t bytes)
{
    unsigned char *kept[64];
    unsigned n = 0;
    bool seen = false;
    while (!seen && n < 60) {
        memset(kept[n++] = same_line(bytes), 1, bytes);
        uint64_t before = touched_ahead();
        kept[n++] = same_line(bytes);
        for (unsigned i = 0; !seen && i < 100; i++) {
            seen = touched_ahead() > before;
            usleep(500);
        }
    }
    if (!seen)
        fail("touch: a line that fills its blocks is not trusted", (long)n);
    usleep(50000); /* longer than it is watched without progress */
    uint64_t before = touched_ahead();
    kept[n++] = same_line(bytes);
    usleep(5000);
    if (touched_ahead() != before)
        fail("touch: a line that does not fill its blocks is trusted", (long)n);
    while (n)
        free(kept[--n]);
}

/* Fresh memory: filled in order, begun and left, and touched here and there. */
static void fills(size_t bytes)
{
    enum { PIECE = 4 << 20, AHEAD = 32 << 20 };
    bool expected = pin_stats && !getenv("PIN_DRIVE_ALONE");
    unsigned char *scattered = malloc(bytes);
    for (size_t i = 0; i < 64; i++)
        scattered[(i * 7919 % 64) * (bytes / 64)] = 1;
    usleep(100000); /* longer than it is watched; nothing happens that could be awaited */
    if (touched_ahead())
        fail("touch: of memory that is not filled in order", (long)touched_ahead());
    unsigned char *left = block_begun(bytes, PIECE, AHEAD - PIECE - (2 << 20), expected);
    usleep(50000);
    for (size_t i = AHEAD; i < bytes; i += 2 << 20)
        if (is_resident(left + i))
            fail("touch: too far ahead", (long)i);
    unsigned char *filled = block_begun(bytes, PIECE, 1, expected);
    for (size_t i = PIECE; i < bytes; i += PIECE) {
        size_t n = bytes - i < PIECE ? bytes - i : PIECE;
        for (size_t k = 0; k < n; k += 4096)
            if (filled[i + k])
                fail("touch: not zero", (long)(i + k));
        paint(filled + i, n & ~(size_t)511, (unsigned)i);
    }
    for (size_t i = 0; i < bytes; i += PIECE)
        look(filled + i, (bytes - i < PIECE ? bytes - i : PIECE) & ~(size_t)511, (unsigned)i,
             "touch");
    if (!expected && touched_ahead())
        fail("touch: although it is off", (long)touched_ahead());
    if (expected)
        fills_at_once(40 << 20);
    free(scattered);
    free(left);
    filled = realloc(filled, 2 * bytes);
    look(filled, PIECE, 0, "touch, then realloc");
    if (fork() == 0) {
        unsigned char *more = malloc(bytes);
        memset(more, 1, bytes);
        _exit(more[bytes - 1] != 1);
    }
    int status = -1;
    wait(&status);
    if (status != 0)
        fail("touch: the child failed", status);
    free(filled);
}

static void report(void)
{
    struct memoir_pin_stats s = {.struct_size = sizeof(s)};
    bool have = pin_stats && pin_stats(&s) == 0;
    printf("{\"wrong\": %u, \"pid\": %d, \"time_ns\": %llu", atomic_load(&wrong), (int)getpid(),
           time_ns ? time_ns() : 0ull);
    if (have)
        printf(
            ", \"mode\": %d, \"calibrated\": %d, \"live_bytes\": %llu, \"served_bytes\": %llu, \"served_blocks\": %llu, "
            "\"pinned_bytes\": %llu, \"pinned_bytes_peak\": %llu, \"own_bytes\": %llu, \"copies\": %llu, \"pinned_copies\": %llu, "
            "\"missed_ns\": %llu, \"saved_ns\": %llu, \"cost_ns\": %llu, \"registers\": %llu, \"unregisters\": %llu, "
            "\"failures\": %llu, \"evictions\": %llu, \"pool_hits\": %llu, \"mismatches\": %llu, \"idle_bytes\": %llu, "
            "\"staged_copies\": %llu, \"staged_bytes\": %llu, \"staged_saved_ns\": %llu, \"touched_bytes\": %llu, \"observed_ns\": %lld",
            s.mode, s.calibrated, (unsigned long long)s.live_bytes,
            (unsigned long long)s.served_bytes, (unsigned long long)s.served_blocks,
            (unsigned long long)s.pinned_bytes, (unsigned long long)s.pinned_bytes_peak,
            (unsigned long long)s.own_bytes, (unsigned long long)s.copies,
            (unsigned long long)s.pinned_copies, (unsigned long long)s.missed_ns,
            (unsigned long long)s.saved_ns, (unsigned long long)s.cost_ns,
            (unsigned long long)s.registers, (unsigned long long)s.unregisters,
            (unsigned long long)s.failures, (unsigned long long)s.evictions,
            (unsigned long long)s.pool_hits, (unsigned long long)s.mismatches,
            (unsigned long long)s.idle_bytes, (unsigned long long)s.staged_copies,
            (unsigned long long)s.staged_bytes, (unsigned long long)s.staged_saved_ns,
            (unsigned long long)s.touched_bytes, (long long)s.observed_ns);
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 1 << 20;
    const char *what = argc > 1 ? argv[1] : "";
    load();
    if (strcmp(what, "turn") == 0 || strcmp(what, "together") == 0)
        seed(bytes, what[1] == 'o');
    else if (strcmp(what, "async") == 0)
        async(bytes);
    else if (strcmp(what, "realloc") == 0)
        reallocs(bytes);
    else if (strcmp(what, "own") == 0)
        own(bytes);
    else if (strcmp(what, "dropped") == 0)
        dropped(bytes);
    else if (strcmp(what, "fork") == 0)
        forks(bytes);
    else if (strcmp(what, "graph") == 0)
        graphs(bytes);
    else if (strcmp(what, "context") == 0)
        contexts(bytes);
    else if (strcmp(what, "churn") == 0)
        threads(bytes, 1, 60);
    else if (strcmp(what, "threads") == 0)
        threads(bytes, 6, 60);
    else if (strcmp(what, "budget") == 0)
        budgets(bytes);
    else if (strcmp(what, "hint") == 0)
        hints(bytes);
    else if (strcmp(what, "maps") == 0)
        maps(bytes);
    else if (strcmp(what, "fill") == 0)
        fills(bytes);
    else if (strcmp(what, "stage") == 0)
        stages(bytes);
    else
        return 2;
    report();
    if (getenv("PIN_DRIVE_HOLD"))
        (void)!getchar();
    return atomic_load(&wrong) != 0;
}
