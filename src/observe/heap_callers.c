/* See heap_callers.h. */
#include "observe/heap_callers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "observe/elf_file.h"
#include "observe/stacks.h"
#include "site/own.h"

enum { FILES_MAX = 1024, RANGES_MAX = 1 << 16, RANGE_BYTES_MAX = 1 << 20 };

/* Beside those that own_is_wrapper() knows, by the names that symbol tables have: the standard libraries of C++ and Rust as far as
 * they were compiled into the program, and allocators over malloc. */
static const char *const beginnings[] = {
    "_Znwm",
    "_Znam",
    "_ZNSt",
    "_ZNKSt",
    "_ZSt",
    "_ZN9__gnu_cxx",
    "_ZN5alloc5alloc",
    "_ZN5alloc7raw_vec",
    "_ZN2os6malloc",
    "_ZN2os7realloc",
    "_Z12AllocateHeap",
    "PyMem_",
    "_PyMem_",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "_PyObject_Malloc",
    "palloc",
    "repalloc",
    "MemoryContextAlloc",
    "AllocSet",
    "GenerationAlloc",
    "SlabAlloc",
    "ngx_calloc",
    "ngx_memalign",
    "sqlite3DbMalloc",
};

/* Libraries of the runtimes: all that is in them hands on. */
static const char *const libraries[] = {"libc.so",    "libc-2.", "ld-linux",   "ld-musl",
                                        "libstdc++.", "libc++.", "libc++abi.", "libsupc++."};

struct range {
    uint64_t start, end; /* addresses as the file numbers them */
};

struct file {
    const struct book_module *module; /* lives as long as the process object */
    bool all;                         /* hands on */
    struct range *ranges;             /* by address */
    size_t n, cap;
};

struct heap_callers {
    struct stack_process *process;
    struct elf_parser *parser;
    struct file files[FILES_MAX];
    size_t n;
};

bool heap_callers_hands_on(const char *name)
{
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return own_is_wrapper(name);
}

int heap_callers_new(struct stack_process *process, struct elf_parser *parser,
                     struct heap_callers **ret_callers)
{
    struct heap_callers *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->process = process;
    c->parser = parser;
    *ret_callers = c;
    return 0;
}

void heap_callers_free(struct heap_callers *c)
{
    for (size_t i = 0; c && i < c->n; i++)
        free(c->files[i].ranges);
    free(c);
}

/* ---- files ---- */

static void function_take(void *context, const struct elf_function *function)
{
    struct file *f = context;
    if (!function->bytes || function->bytes > RANGE_BYTES_MAX || f->n == RANGES_MAX ||
        !heap_callers_hands_on(function->name))
        return;
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 64;
        struct range *ranges = realloc(f->ranges, cap * sizeof(*ranges));
        if (!ranges)
            return;
        f->ranges = ranges;
        f->cap = cap;
    }
    f->ranges[f->n++] = (struct range){function->address, function->address + function->bytes};
}

static int by_start(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static bool is_runtime(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        if (strncmp(base, libraries[i], strlen(libraries[i])) == 0)
            return true;
    return false;
}

static const struct file *file_of(struct heap_callers *c, const struct book_module *module, int fd)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->files[i].module == module)
            return &c->files[i];
    if (c->n == FILES_MAX)
        return NULL;
    struct file *f = &c->files[c->n++];
    *f = (struct file){.module = module, .all = is_runtime(module->path)};
    if (!f->all && fd >= 0) {
        elf_file_functions(c->parser, elf_file_pread, &fd, function_take, f);
        qsort(f->ranges, f->n, sizeof(f->ranges[0]), by_start);
    }
    return f;
}

static bool in_ranges(const struct file *f, uint64_t address)
{
    size_t lo = 0, hi = f->n; /* the first range that starts behind it */
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (f->ranges[middle].start <= address)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo > 0 && address < f->ranges[lo - 1].end;
}

void heap_callers_find(struct heap_callers *c, uint64_t pc, struct heap_caller *ret_caller)
{
    int fd;
    uint32_t up;
    *ret_caller = (struct heap_caller){0};
    stack_caller(c->process, pc, &ret_caller->frame, &fd, &up);
    if (!ret_caller->frame.module || !up)
        return;
    const struct file *f = file_of(c, ret_caller->frame.module, fd);
    if (f && (f->all || in_ranges(f, ret_caller->frame.offset - 1)))
        ret_caller->hop = up;
}
