/* cuda_drive: drives libcuda.so.1 by commands on stdin, one line of JSON for each, with the counts of the stand-in.
 *
 * Usage: cuda_drive [name|version]     how functions are found: dlsym() or cuGetProcAddress_v2()
 *
 * Slots are numbers from 0, given in the order in which blocks are made. Commands:
 *   context DEVICE | primary DEVICE        create a context and push it | retain the primary one and make it current
 *   destroy | reset DEVICE | release DEVICE
 *   alloc BYTES [device|managed|pool|host|pitch|array|physical]
 *   buffer BYTES | register BYTES          ordinary host memory | the same, registered
 *   free SLOT | free 0xADDRESS             the latter with cuMemFree_v2()
 *   copy h2d|d2h|d2d SLOT BYTES [SLOT]     the second slot is the host's side, or the destination of d2d
 *   copy any SLOT BYTES SLOT               cuMemcpy() from the first slot to the second
 *   set SLOT BYTES [VALUE] | peek SLOT     bytes of VALUE | the first byte, as the device has it
 *   export SLOT | import HANDLE            IPC: the handle is in the answer of `export`
 *   phase every|errors | phase churn|handoff COUNT THREADS | phase contexts COUNT
 *   fork                                   what a child is told by the driver
 *   exec                                   run this program anew, in this process
 *   counts | quit */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"

#define SLOTS_MAX    65536
#define WORDS_MAX    6
#define FAILURES_MAX 20

enum slot_kind {
    SLOT_NONE,
    SLOT_DEVICE,
    SLOT_POOL,
    SLOT_HOST,
    SLOT_BUFFER,
    SLOT_REGISTERED,
    SLOT_ARRAY,
    SLOT_PHYSICAL,
    SLOT_IMPORTED
};

struct slot {
    enum slot_kind kind;
    uint64_t address;
    size_t size;
};

static struct slot slots[SLOTS_MAX];
static unsigned slot_count;
static char **arguments;

static pthread_mutex_t failures_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long failures;
static char failure_text[FAILURES_MAX][160];

void drive_expect(const char *what, long long got, long long want)
{
    if (got == want)
        return;
    pthread_mutex_lock(&failures_lock);
    if (failures < FAILURES_MAX)
        snprintf(failure_text[failures], sizeof(failure_text[0]), "%s: %lld, expected %lld", what,
                 got, want);
    failures++;
    pthread_mutex_unlock(&failures_lock);
}

/* ---- answers ---- */

static const char *const kind_names[STANDIN_KINDS] = {
    [STANDIN_DEVICE] = "device",     [STANDIN_POOL] = "pool",
    [STANDIN_MANAGED] = "managed",   [STANDIN_ARRAY] = "array",
    [STANDIN_PHYSICAL] = "physical", [STANDIN_GRAPH] = "graph",
    [STANDIN_HOST] = "host",         [STANDIN_REGISTERED] = "registered",
    [STANDIN_MAPPED] = "mapped",     [STANDIN_RESERVED] = "reserved",
    [STANDIN_IMPORTED] = "imported",
};
static const char *const direction_names[STANDIN_DIRECTIONS] = {"h2d", "d2h", "d2d", "h2h"};

static void print_counts(void)
{
    struct standin_counts c;

    if (!driver_counts(&c))
        return;
    printf(", \"counts\": {\"live\": [");
    for (unsigned d = 0; d < c.devices; d++) {
        const char *comma = "";
        printf("%s{", d ? ", " : "");
        for (int k = 0; k < STANDIN_KINDS; k++) {
            if (c.live[d][k].blocks == 0)
                continue;
            printf("%s\"%s\": [%" PRIu64 ", %" PRIu64 "]", comma, kind_names[k], c.live[d][k].bytes,
                   c.live[d][k].blocks);
            comma = ", ";
        }
        printf("}");
    }
    printf("], \"allocations\": %" PRIu64 ", \"frees\": %" PRIu64 ", \"failed\": %" PRIu64
           ", \"calls\": %" PRIu64 ", \"injected\": %" PRIu64 ", \"sets\": %" PRIu64
           ", \"set_bytes\": %" PRIu64 ", \"copies\": {",
           c.allocations, c.frees, c.failed, c.calls, c.injected, c.sets, c.set_bytes);
    for (int d = 0; d < STANDIN_DIRECTIONS; d++)
        printf("%s\"%s\": [%" PRIu64 ", %" PRIu64 "]", d ? ", " : "", direction_names[d],
               c.copies[d], c.copied_bytes[d]);
    printf("}}");
}

/* `more`: further members, each after a comma; may be empty. */
static void answer(CUresult r, const char *more)
{
    printf("{\"result\": %d, \"pid\": %d%s", (int)r, (int)getpid(), more);
    print_counts();
    printf("}\n");
    fflush(stdout);
}

static void answer_error(const char *text)
{
    printf("{\"error\": \"%s\"}\n", text);
    fflush(stdout);
}

static void answer_slot(CUresult r, enum slot_kind kind, uint64_t address, size_t size)
{
    char more[96] = "";

    if (r == CUDA_SUCCESS && slot_count < SLOTS_MAX) {
        snprintf(more, sizeof(more), ", \"slot\": %u, \"address\": %" PRIu64, slot_count, address);
        slots[slot_count++] = (struct slot){kind, address, size};
    }
    answer(r, more);
}

/* ---- commands ---- */

static struct slot *slot_of(const char *word)
{
    char *end;
    unsigned long n = word ? strtoul(word, &end, 10) : SLOTS_MAX;

    return n < slot_count && !*end ? &slots[n] : NULL;
}

static CUresult alloc_device(const char *kind, size_t size, CUdeviceptr *ret)
{
    size_t pitch;

    if (strcmp(kind, "managed") == 0)
        return CU(cuMemAllocManaged)(ret, size, 1);
    if (strcmp(kind, "pitch") == 0)
        return CU(cuMemAllocPitch_v2)(ret, &pitch, size, 4, 4);
    return CU(cuMemAlloc_v2)(ret, size);
}

static void command_alloc(size_t size, const char *kind)
{
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_PINNED,
                                 .location = {CU_MEM_LOCATION_DEVICE, 0}};
    CUDA_ARRAY_DESCRIPTOR shape = {size, 0, 0x01, 1};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    CUarray array;
    void *p = NULL;
    CUresult r;

    if (strcmp(kind, "host") == 0) {
        r = CU(cuMemHostAlloc)(&p, size, 0);
        answer_slot(r, SLOT_HOST, (uintptr_t)p, size);
    } else if (strcmp(kind, "pool") == 0) {
        r = CU(cuMemAllocAsync)(&address, size, NULL);
        answer_slot(r, SLOT_POOL, address, size);
    } else if (strcmp(kind, "array") == 0) {
        r = CU(cuArrayCreate_v2)(&array, &shape);
        answer_slot(r, SLOT_ARRAY, r == CUDA_SUCCESS ? (uintptr_t)array : 0, size);
    } else if (strcmp(kind, "physical") == 0) {
        r = CU(cuMemCreate)(&handle, size, &props, 0);
        answer_slot(r, SLOT_PHYSICAL, r == CUDA_SUCCESS ? handle : 0, size);
    } else {
        r = alloc_device(kind, size, &address);
        answer_slot(r, SLOT_DEVICE, address, size);
    }
}

static void command_buffer(size_t size, bool registered)
{
    void *p = aligned_alloc(4096, (size + 4095) / 4096 * 4096);

    if (!p) {
        answer_error("out of memory");
        return;
    }
    memset(p, 1, size);
    CUresult r = registered ? CU(cuMemHostRegister_v2)(p, size, 0) : CUDA_SUCCESS;
    answer_slot(r, registered ? SLOT_REGISTERED : SLOT_BUFFER, (uintptr_t)p, size);
}

/* A slot that was freed may be freed again: that is what double frees are made of. */
static CUresult slot_free(struct slot *s)
{
    CUresult r = CUDA_SUCCESS;

    switch (s->kind) {
    case SLOT_DEVICE:
        return CU(cuMemFree_v2)(s->address);
    case SLOT_POOL:
        return CU(cuMemFreeAsync)(s->address, NULL);
    case SLOT_HOST:
        return CU(cuMemFreeHost)((void *)s->address);
    case SLOT_REGISTERED:
        r = CU(cuMemHostUnregister)((void *)s->address);
        break;
    case SLOT_ARRAY:
        return CU(cuArrayDestroy)((CUarray)s->address);
    case SLOT_PHYSICAL:
        return CU(cuMemRelease)(s->address);
    case SLOT_IMPORTED:
        return CU(cuIpcCloseMemHandle)(s->address);
    default:
        break;
    }
    if (r == CUDA_SUCCESS && s->kind != SLOT_NONE) {
        free((void *)s->address);
        s->kind = SLOT_NONE;
    }
    return r;
}

static void command_copy(char **word)
{
    struct slot *s = slot_of(word[2]), *other = slot_of(word[4]);
    size_t size = word[3] ? strtoull(word[3], NULL, 0) : 0;
    static char *pageable;
    static size_t pageable_size;

    if (!s || (word[4] && !other)) {
        answer_error("copy: no such slot");
        return;
    }
    if (pageable_size < size) {
        pageable = realloc(pageable, size);
        memset(pageable, 1, size);
        pageable_size = size;
    }
    void *host = other ? (void *)other->address : pageable;
    if (strcmp(word[1], "h2d") == 0)
        answer(CU(cuMemcpyHtoD_v2)(s->address, host, size), "");
    else if (strcmp(word[1], "d2h") == 0)
        answer(CU(cuMemcpyDtoH_v2)(host, s->address, size), "");
    else if (strcmp(word[1], "d2d") == 0 && other)
        answer(CU(cuMemcpyDtoD_v2)(other->address, s->address, size), "");
    else if (strcmp(word[1], "any") == 0 && other)
        answer(CU(cuMemcpy)(other->address, s->address, size), "");
    else
        answer_error("copy: expected h2d, d2h, or d2d or any with two slots");
}

static void command_export(const char *word)
{
    struct slot *s = slot_of(word);
    CUipcMemHandle handle = {0};
    char more[200];

    if (!s) {
        answer_error("export: no such slot");
        return;
    }
    CUresult r = CU(cuIpcGetMemHandle)(&handle, s->address);
    int at = snprintf(more, sizeof(more), ", \"handle\": \"");
    for (size_t i = 0; i < sizeof(handle); i++)
        at += snprintf(more + at, sizeof(more) - (size_t)at, "%02x",
                       (unsigned char)handle.reserved[i]);
    snprintf(more + at, sizeof(more) - (size_t)at, "\"");
    answer(r, more);
}

static void command_import(const char *word)
{
    CUipcMemHandle handle = {0};
    CUdeviceptr address = 0;
    size_t size = 0;
    unsigned byte;

    for (size_t i = 0; i < sizeof(handle) && sscanf(word + 2 * i, "%2x", &byte) == 1; i++)
        handle.reserved[i] = (char)byte;
    CUresult r = CU(cuIpcOpenMemHandle_v2)(&address, handle, 1);
    if (r == CUDA_SUCCESS)
        CU(cuMemGetAddressRange_v2)(NULL, &size, address);
    answer_slot(r, SLOT_IMPORTED, address, size);
}

static void phase_every(void)
{
    every_device();
    every_context();
    for (int twin = 0; twin < 2; twin++) {
        every_memory(twin);
        every_virtual(twin);
        every_copy(twin);
        every_shape(twin);
        every_set(twin);
        every_graph(twin);
    }
    every_shared();
}

static void command_phase(char **word)
{
    unsigned long count = word[2] ? strtoul(word[2], NULL, 10) : 1000;
    unsigned threads = word[3] ? (unsigned)strtoul(word[3], NULL, 10) : 2;
    static char more[FAILURES_MAX * 200 + 8192], unused[8000];

    failures = 0;
    if (word[1] && strcmp(word[1], "every") == 0)
        phase_every();
    else if (word[1] && strcmp(word[1], "errors") == 0)
        drive_errors();
    else if (word[1] && strcmp(word[1], "churn") == 0)
        drive_churn(count, threads);
    else if (word[1] && strcmp(word[1], "handoff") == 0)
        drive_handoff(count, threads);
    else if (word[1] && strcmp(word[1], "contexts") == 0)
        drive_contexts(count);
    else {
        answer_error("phase: expected every, errors, churn, handoff or contexts");
        return;
    }
    int at = snprintf(more, sizeof(more), ", \"failures\": %lu, \"failed\": [", failures);
    for (unsigned long i = 0; i < failures && i < FAILURES_MAX; i++)
        at += snprintf(more + at, sizeof(more) - (size_t)at, "%s\"%s\"", i ? ", " : "",
                       failure_text[i]);
    driver_unused(unused, sizeof(unused));
    snprintf(more + at, sizeof(more) - (size_t)at, "], \"unused\": \"%s\"", unused);
    answer(failures ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS, more);
}

static void command_fork(void)
{
    int status = -1;
    char more[64];
    pid_t child = fork();

    if (child == 0) {
        CUdeviceptr address;
        _exit((int)CU(cuMemAlloc_v2)(&address, 4096));
    }
    waitpid(child, &status, 0);
    snprintf(more, sizeof(more), ", \"child\": %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    answer(CUDA_SUCCESS, more);
}

static void command_context(const char *which, int device)
{
    CUcontext c = NULL;
    CUresult r;

    if (strcmp(which, "context") == 0) {
        r = CU(cuCtxCreate_v2)(&c, 0, device);
    } else {
        r = CU(cuDevicePrimaryCtxRetain)(&c, device);
        if (r == CUDA_SUCCESS)
            r = CU(cuCtxSetCurrent)(c);
    }
    answer(r, "");
}

static void command_destroy(void)
{
    CUcontext c = NULL;

    CU(cuCtxGetCurrent)(&c);
    answer(CU(cuCtxDestroy_v2)(c), "");
}

static void command_free(const char *word)
{
    struct slot *s = slot_of(word);

    if (word && strncmp(word, "0x", 2) == 0)
        answer(CU(cuMemFree_v2)(strtoull(word, NULL, 16)), "");
    else if (s)
        answer(slot_free(s), "");
    else
        answer_error("free: no such slot");
}

static void command_set(char **word)
{
    struct slot *s = slot_of(word[1]);

    if (s)
        answer(CU(cuMemsetD8_v2)(s->address, word[3] ? (unsigned char)strtoul(word[3], NULL, 0) : 1,
                                 word[2] ? strtoull(word[2], NULL, 0) : s->size),
               "");
    else
        answer_error("set: no such slot");
}

static void command_peek(const char *word)
{
    struct slot *s = slot_of(word);
    unsigned char byte = 0;
    char more[32];

    if (!s) {
        answer_error("peek: no such slot");
        return;
    }
    CUresult r = CU(cuMemcpyDtoH_v2)(&byte, s->address, 1);
    snprintf(more, sizeof(more), ", \"byte\": %u", byte);
    answer(r, more);
}

/* Returns false at the end. */
static bool command(char **word)
{
    size_t number = word[1] ? strtoull(word[1], NULL, 0) : 0;
    const char *name = word[0];

    if (strcmp(name, "quit") == 0)
        return false;
    if (strcmp(name, "context") == 0 || strcmp(name, "primary") == 0)
        command_context(name, (int)number);
    else if (strcmp(name, "destroy") == 0)
        command_destroy();
    else if (strcmp(name, "reset") == 0)
        answer(CU(cuDevicePrimaryCtxReset_v2)((int)number), "");
    else if (strcmp(name, "release") == 0)
        answer(CU(cuDevicePrimaryCtxRelease_v2)((int)number), "");
    else if (strcmp(name, "alloc") == 0)
        command_alloc(number, word[2] ? word[2] : "device");
    else if (strcmp(name, "buffer") == 0 || strcmp(name, "register") == 0)
        command_buffer(number, name[0] == 'r');
    else if (strcmp(name, "free") == 0)
        command_free(word[1]);
    else if (strcmp(name, "copy") == 0 && word[1])
        command_copy(word);
    else if (strcmp(name, "set") == 0)
        command_set(word);
    else if (strcmp(name, "peek") == 0)
        command_peek(word[1]);
    else if (strcmp(name, "export") == 0)
        command_export(word[1]);
    else if (strcmp(name, "import") == 0 && word[1])
        command_import(word[1]);
    else if (strcmp(name, "phase") == 0)
        command_phase(word);
    else if (strcmp(name, "fork") == 0)
        command_fork();
    else if (strcmp(name, "exec") == 0)
        execv("/proc/self/exe", arguments);
    else if (strcmp(name, "counts") == 0)
        answer(CUDA_SUCCESS, "");
    else
        answer_error("unknown command");
    return true;
}

/* One byte at a time: after `exec` the rest must still be there. */
static bool line_read(char *line, size_t size)
{
    for (size_t n = 0; n + 1 < size; n++) {
        if (read(STDIN_FILENO, line + n, 1) != 1)
            return false;
        if (line[n] == '\n') {
            line[n] = '\0';
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    char line[1024], *save;
    bool by_version = argc > 1 && strcmp(argv[1], "version") == 0;

    arguments = argv;
    driver_open(by_version ? DRIVER_BY_VERSION : DRIVER_BY_NAME);
    answer(CU(cuInit)(0), "");
    while (line_read(line, sizeof(line))) {
        char *word[WORDS_MAX + 1] = {NULL};
        size_t n = 0;
        for (char *w = strtok_r(line, " ", &save); w && n < WORDS_MAX;
             w = strtok_r(NULL, " ", &save))
            word[n++] = w;
        if (n > 0 && !command(word))
            break;
    }
    return 0;
}
