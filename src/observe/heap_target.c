/* See heap_target.h. */
#include "observe/heap_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "observe/code_file.h"
#include "observe/elf_file.h"
#include "observe/link_map.h"
#include "observe/targets.h"

enum { MODULES_MAX = 2048, CANDIDATES_MAX = 16 };

/* ---- names ---- */

static const struct {
    const char *name;
    uint32_t role;
} family[] = {
    {"malloc", HEAP_MALLOC},
    {"calloc", HEAP_CALLOC},
    {"realloc", HEAP_REALLOC},
    {"free", HEAP_FREE},
    {"memalign", HEAP_ALIGNED},
    {"aligned_alloc", HEAP_ALIGNED},
    {"posix_memalign", HEAP_POSIX_MEMALIGN},
    {"reallocarray", HEAP_REALLOCARRAY},
    {"valloc", HEAP_MALLOC},
    {"pvalloc", HEAP_MALLOC},
    {"cfree", HEAP_FREE},
    {"free_sized", HEAP_FREE},
    {"free_aligned_sized", HEAP_FREE},
    /* jemalloc */
    {"mallocx", HEAP_MALLOC},
    {"rallocx", HEAP_REALLOC},
    {"dallocx", HEAP_FREE},
    {"sdallocx", HEAP_FREE},
    /* mimalloc */
    {"zalloc", HEAP_MALLOC},
    {"free_size", HEAP_FREE},
    {"free_size_aligned", HEAP_FREE},
    {"free_aligned", HEAP_FREE},
};

/* Of libraries that have an allocator, not of libstdc++, whose operators call malloc and free. */
static const struct {
    const char *name;
    uint32_t role;
} operators[] = {
    {"_Znwm", HEAP_NEW},
    {"_Znam", HEAP_NEW},
    {"_ZnwmSt11align_val_t", HEAP_NEW},
    {"_ZnamSt11align_val_t", HEAP_NEW},
    {"_ZnwmRKSt9nothrow_t", HEAP_MALLOC},
    {"_ZnamRKSt9nothrow_t", HEAP_MALLOC},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", HEAP_MALLOC},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", HEAP_MALLOC},
    {"_ZdlPv", HEAP_FREE},
    {"_ZdaPv", HEAP_FREE},
    {"_ZdlPvm", HEAP_FREE},
    {"_ZdaPvm", HEAP_FREE},
    {"_ZdlPvSt11align_val_t", HEAP_FREE},
    {"_ZdaPvSt11align_val_t", HEAP_FREE},
    {"_ZdlPvmSt11align_val_t", HEAP_FREE},
    {"_ZdaPvmSt11align_val_t", HEAP_FREE},
    {"_ZdlPvRKSt9nothrow_t", HEAP_FREE},
    {"_ZdaPvRKSt9nothrow_t", HEAP_FREE},
    {"_ZdlPvSt11align_val_tRKSt9nothrow_t", HEAP_FREE},
    {"_ZdaPvSt11align_val_tRKSt9nothrow_t", HEAP_FREE},
    /* What tcmalloc's operator new ends with, by a jump through the PLT. */
    {"_ZN8tcmalloc27allocate_full_cpp_throw_oomEm", HEAP_NEW_RETURN},
    {"_ZN8tcmalloc11ThreadCache21FetchFromCentralCacheEjiPFPvmE", HEAP_NEW_RETURN},
};

static const char *const prefixes[] = {"", "je_", "_rjem_", "tc_", "mi_"};
enum { PREFIXES = sizeof(prefixes) / sizeof(prefixes[0]) };

/* What a name of a function says: its role, and by which prefix. */
static uint32_t role_of(const char *name, size_t *ret_prefix)
{
    for (size_t p = 0; p < PREFIXES; p++) {
        size_t len = strlen(prefixes[p]);
        if (strncmp(name, prefixes[p], len) != 0)
            continue;
        for (size_t i = 0; i < sizeof(family) / sizeof(family[0]); i++)
            if (strcmp(name + len, family[i].name) == 0) {
                *ret_prefix = p;
                return family[i].role;
            }
    }
    return HEAP_NONE;
}

static uint32_t operator_role(const char *name)
{
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
        if (strcmp(name, operators[i].name) == 0)
            return operators[i].role;
    return HEAP_NONE;
}

/* The arguments that a probe reads, as bits. */
static uint32_t arguments_of(uint32_t role)
{
    switch (role) {
    case HEAP_MALLOC:
    case HEAP_FREE:
    case HEAP_NEW:
        return 1;
    case HEAP_ALIGNED:
        return 2;
    case HEAP_POSIX_MEMALIGN:
        return 1 | 4;
    case HEAP_REALLOCARRAY:
        return 1 | 2 | 4;
    default:
        return 1 | 2;
    }
}

/* ---- files ---- */

/* What a file has, by prefix. */
struct found {
    struct {
        uint64_t offset, bytes;
        uint32_t role;
    } functions[PREFIXES][HEAP_FUNCTIONS_MAX], operators[HEAP_FUNCTIONS_MAX];
    size_t n[PREFIXES], n_operators;
    bool mallocs[PREFIXES], frees[PREFIXES], news;
    bool libc; /* it is the GNU C library, be it inside a program */
};

static void function_take(void *context, const struct elf_function *function)
{
    struct found *f = context;
    size_t p = 0;
    if (!function->global)
        return;
    uint32_t role = role_of(function->name, &p);
    f->news |= strcmp(function->name, "_Znwm") == 0;
    f->libc |= strcmp(function->name, "__libc_start_main") == 0;
    if (role == HEAP_NONE && f->n_operators < HEAP_FUNCTIONS_MAX) {
        role = operator_role(function->name);
        if (role != HEAP_NONE) {
            f->operators[f->n_operators].offset = function->offset;
            f->operators[f->n_operators].bytes = function->bytes;
            f->operators[f->n_operators++].role = role;
        }
        return;
    }
    if (role == HEAP_NONE || f->n[p] == HEAP_FUNCTIONS_MAX)
        return;
    const char *base = function->name + strlen(prefixes[p]);
    f->mallocs[p] |= strcmp(base, "malloc") == 0;
    f->frees[p] |= strcmp(base, "free") == 0;
    f->functions[p][f->n[p]].offset = function->offset;
    f->functions[p][f->n[p]].bytes = function->bytes;
    f->functions[p][f->n[p]++].role = role;
}

/* Two names of one function are one probe. */
static void file_add(struct heap_target_file *file, struct elf_parser *parser, uint64_t offset,
                     uint64_t bytes, uint32_t role)
{
    struct probe_place place;
    code_file_place(parser, elf_file_pread, &file->fd, offset, bytes, arguments_of(role), &place);
    for (size_t i = 0; i < file->n; i++)
        if (file->functions[i].offset == offset + place.offset)
            return;
    if (file->n == HEAP_FUNCTIONS_MAX)
        return;
    file->slow += !place.cheap;
    file->functions[file->n++] = (struct heap_function){
        offset + place.offset, HEAP_COOKIE(role, place.at[0], place.at[1], place.at[2])};
}

/* A jump that leads to a ret either way is two places, and one probe: it can have one cookie. */
static bool return_join(struct heap_function *there, uint32_t cookie)
{
    uint32_t same = ~(HEAP_RETURN_CONDITIONAL | HEAP_RETURN_TAKEN | 15u << 12);
    if (there->cookie == cookie)
        return true;
    if ((there->cookie & same) != (cookie & same))
        return false;
    there->cookie &= same;
    return true;
}

/* Where a function returns. False: that is not known, or there is no room. */
static bool returns_add(struct heap_target_file *file, struct elf_parser *parser, uint64_t offset)
{
    struct code_return places[CODE_RETURNS_MAX];
    int n = code_file_returns(parser, elf_file_pread, &file->fd, offset, places);
    if (n < 0)
        return false;
    for (int i = 0; i < n; i++) {
        const struct code_return *p = &places[i];
        uint32_t cookie =
            HEAP_RETURN_COOKIE(p->result, p->condition, p->conditional, p->taken, p->up, p->slow);
        size_t k = 0;
        while (k < file->n && file->functions[k].offset != p->at)
            k++;
        if (k < file->n && return_join(&file->functions[k], cookie))
            continue;
        if (k < file->n || file->n == HEAP_FUNCTIONS_MAX)
            return false;
        file->functions[file->n++] = (struct heap_function){p->at, cookie};
    }
    return true;
}

/* Does a function only jump to another one that is probed itself? */
static bool is_alias(struct heap_target_file *file, struct elf_parser *parser,
                     const struct found *f, uint64_t offset)
{
    struct code_instruction first = code_file_first(parser, elf_file_pread, &file->fd, offset);
    uint64_t target = offset + (uint64_t)first.target;
    if (first.flow != CODE_JUMP)
        return false;
    for (size_t i = 0; i < f->n_operators; i++)
        if (f->operators[i].offset == target)
            return true;
    for (size_t i = 0; i < f->n[0]; i++)
        if (f->functions[0][i].offset == target)
            return true;
    return false;
}

/* operator new that may throw: at its entry and where it returns. */
static void operator_add(struct heap_target_file *file, struct elf_parser *parser,
                         const struct found *f, size_t i)
{
    uint64_t offset = f->operators[i].offset;
    uint32_t role = f->operators[i].role;
    if (is_alias(file, parser, f, offset))
        return;
    if (role == HEAP_NEW_RETURN || role == HEAP_NEW)
        file->news |= !returns_add(file, parser, offset);
    if (role != HEAP_NEW_RETURN)
        file_add(file, parser, offset, f->operators[i].bytes, role);
}

/* All of one prefix, and the operators beside malloc itself, unless they are those of the C++ library, which call it. reallocarray() of the C library calls realloc(), that of others does not. */
static void file_fill(struct heap_target_file *file, struct elf_parser *parser,
                      const struct found *f, size_t prefix)
{
    for (size_t i = 0; i < f->n[prefix]; i++)
        if (f->functions[prefix][i].role != HEAP_REALLOCARRAY || !f->libc)
            file_add(file, parser, f->functions[prefix][i].offset, f->functions[prefix][i].bytes,
                     f->functions[prefix][i].role);
    for (size_t i = 0; prefix == 0 && f->news && !f->libc && i < f->n_operators; i++)
        operator_add(file, parser, f, i);
}

/* ---- the process ---- */

/* A file that the process has mapped as code. */
struct module {
    dev_t device;
    ino_t inode;
    uint64_t start, end;
    char path[HEAP_TARGET_PATH_MAX];
};

struct search {
    pid_t pid;
    struct elf_parser *parser;
    struct module modules[MODULES_MAX];
    size_t n;
    struct stat program;
};

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void module_take(void *context, uint64_t start, uint64_t end, const char *path)
{
    struct search *s = context;
    if (s->n == MODULES_MAX)
        return;
    struct module *m = &s->modules[s->n++];
    *m = (struct module){.start = start, .end = end};
    snprintf(m->path, sizeof(m->path), "%s", path);
}

static int module_open(const struct search *s, struct module *m)
{
    struct stat st;
    int fd = targets_open(s->pid, m->start, m->end);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        closep(&fd);
        return -1;
    }
    m->device = st.st_dev;
    m->inode = st.st_ino;
    return fd;
}

/* A file that defines malloc and free, or has an allocator with a prefix. */
struct candidate {
    struct module *module;
    int fd;
    size_t order; /* in which the loader searches; the C library comes last */
    struct found found;
};

struct candidates {
    struct candidate *all[CANDIDATES_MAX];
    size_t n;
};

static void candidates_release(struct candidates *c)
{
    for (size_t i = 0; i < c->n; i++) {
        closep(&c->all[i]->fd);
        free(c->all[i]);
    }
}

static bool is_loader(const char *path)
{
    return begins(base_of(path), "ld-linux") || begins(base_of(path), "ld-2.");
}

static bool is_libc(const char *path)
{
    return begins(base_of(path), "libc.so") || begins(base_of(path), "libc-2.");
}

static void candidate_try(const struct search *s, struct candidates *c, struct module *m)
{
    int fd = module_open(s, m);
    bool seen = false, any = false;
    if (fd < 0)
        return;
    for (size_t i = 0; i < c->n && !seen; i++)
        seen = c->all[i]->module->device == m->device && c->all[i]->module->inode == m->inode;
    struct candidate *one = seen || c->n == CANDIDATES_MAX ? NULL : calloc(1, sizeof(*one));
    if (one && elf_file_functions(s->parser, elf_file_pread, &fd, function_take, &one->found) >= 0)
        for (size_t p = 0; p < PREFIXES; p++)
            any |= one->found.mallocs[p] && one->found.frees[p];
    if (!any) {
        free(one);
        close(fd);
        return;
    }
    bool program = m->device == s->program.st_dev && m->inode == s->program.st_ino;
    one->module = m;
    one->fd = fd;
    one->order = program ? 0 : is_libc(m->path) ? SIZE_MAX : SIZE_MAX / 2;
    c->all[c->n++] = one;
}

static void order_set(void *context, uint64_t base, size_t order)
{
    struct candidates *c = context;
    for (size_t i = 0; i < c->n; i++)
        if (c->all[i]->order == SIZE_MAX / 2 && base <= c->all[i]->module->start &&
            c->all[i]->module->start - base < UINT64_C(1) << 30)
            c->all[i]->order = order;
}

static int by_order(const void *a, const void *b)
{
    const struct candidate *x = *(struct candidate *const *)a, *y = *(struct candidate *const *)b;
    return x->order < y->order ? -1 : x->order > y->order;
}

static const char *allocator_name(const char *path)
{
    static const char *const known[] = {"jemalloc", "tcmalloc", "mimalloc", "rpmalloc", "snmalloc",
                                        "hoard",    "musl",     "asan",     "tsan"};
    if (is_libc(path))
        return "glibc";
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strstr(base_of(path), known[i]))
            return known[i];
    return NULL;
}

static struct heap_target_file *target_add(struct heap_target *target, struct candidate *one)
{
    struct heap_target_file *file = &target->files[target->n++];
    *file = (struct heap_target_file){.fd = MEMOIR_TAKE_FD(one->fd)};
    snprintf(file->path, sizeof(file->path), "%s", one->module->path);
    return file;
}

/* The first one that has malloc itself, and those with names of their own. */
static void target_choose(struct candidates *c, struct elf_parser *parser,
                          struct heap_target *target)
{
    static const char *const by_prefix[PREFIXES] = {"malloc", "jemalloc", "jemalloc", "tcmalloc",
                                                    "mimalloc"};
    bool chosen = false;
    for (size_t i = 0; i < c->n && target->n < HEAP_TARGET_FILES_MAX; i++) {
        struct candidate *one = c->all[i];
        struct heap_target_file *file = NULL;
        const char *name = allocator_name(one->module->path);
        if (!chosen && one->found.mallocs[0] && one->found.frees[0]) {
            chosen = true;
            file = target_add(target, one);
            file_fill(file, parser, &one->found, 0);
            snprintf(target->allocator, sizeof(target->allocator), "%s", name ? name : "malloc");
            continue;
        }
        for (size_t p = 1; p < PREFIXES; p++) {
            if (!one->found.mallocs[p] || !one->found.frees[p] || one->found.mallocs[0])
                continue;
            file = file ? file : target_add(target, one);
            file_fill(file, parser, &one->found, p);
            snprintf(target->allocator, sizeof(target->allocator), "%s", by_prefix[p]);
        }
    }
}

int heap_target_find(pid_t pid, struct elf_parser *parser, struct heap_target *ret_target,
                     char why[static HEAP_TARGET_WHY_MAX])
{
    MEMOIR_CLEANUP(freep)
    struct search *s = calloc(1, sizeof(*s));
    MEMOIR_CLEANUP(candidates_release)
    struct candidates c = {0};
    char exe[64];
    if (!s)
        return -ENOMEM;
    s->pid = pid;
    s->parser = parser;
    int r = targets_code(s->pid, module_take, s);
    snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)pid);
    if (r < 0) {
        snprintf(why, HEAP_TARGET_WHY_MAX, "cannot read the mappings of process %d: %s", (int)pid,
                 strerror(-r));
        return r;
    }
    if (stat(exe, &s->program) < 0)
        s->n = 0;
    if (s->n == 0) {
        snprintf(why, HEAP_TARGET_WHY_MAX,
                 "process %d runs no program: it is a thread of the kernel, or has ended",
                 (int)pid);
        return -ENOEXEC;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (begins(base_of(s->modules[i].path), "libmemoir-malloc.") ||
            begins(base_of(s->modules[i].path), "libmemoir-track.")) {
            snprintf(why, HEAP_TARGET_WHY_MAX,
                     "process %d runs under 'memoir run': its heap is counted already", (int)pid);
            return -EALREADY;
        }
        if (!is_loader(s->modules[i].path))
            candidate_try(s, &c, &s->modules[i]);
    }
    link_map_each(pid, parser, order_set, &c);
    qsort(c.all, c.n, sizeof(c.all[0]), by_order);
    *ret_target = (struct heap_target){0};
    target_choose(&c, parser, ret_target);
    if (ret_target->n > 0)
        return 0;
    snprintf(
        why, HEAP_TARGET_WHY_MAX,
        "process %d has no malloc that can be found: its program and libraries define none, or "
        "their symbols were removed",
        (int)pid);
    return -ENOENT;
}

void heap_target_release(struct heap_target *target)
{
    for (size_t i = 0; i < target->n; i++)
        closep(&target->files[i].fd);
    target->n = 0;
}
