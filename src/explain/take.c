/* explain_take(): one read of smaps, each of its mappings divided among its owners. See explain.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/apart.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "explain/explain.h"
#include "explain/owner.h"
#include "explain/pages.h"
#include "explain/thread_stacks.h"
#include "scan/heap.h"
#include "scan/maps.h"
#include "scan/memory.h"

enum { PAGE = 4096, POOL_PAGES = OWNER_POOL_ALIGN / PAGE };

/* What a part of a mapping is. */
struct owner {
    enum explain_kind kind;
    const char *name;
    uint32_t marks;
};

struct sums {
    uint64_t bytes, private_bytes, huge_bytes, swap_bytes;
};

struct taking {
    struct smaps smaps;
    struct owners owners;
    struct thread_stacks stacks;
    struct scan_memory memory;
    bool memory_open;
    struct scan_heap *heap; /* of libmemoir-malloc; NULL: none, or not readable */
    struct pages pages;
    struct sums macros;               /* memory of its macro-blocks, divided at the end */
    const struct smaps_mapping *file; /* the last mapping of a file: its bss begins where it ends */
    struct explain *out;
    /* the mapping at hand: what has not got an owner yet, */
    struct sums left;
    struct owner last; /* and who got the last part */
};

/* ---- parts of a mapping ---- */

static uint64_t share_of(uint64_t all, uint64_t part, uint64_t whole)
{
    return whole ? (uint64_t)((double)all * ((double)part / (double)whole)) : 0;
}

/* Take `bytes` of what is left of the mapping, with their share of the other figures. */
static struct sums left_take(struct taking *t, uint64_t bytes)
{
    struct sums *left = &t->left, part;
    if (bytes >= left->bytes) {
        part = *left;
        *left = (struct sums){0};
        return part;
    }
    part = (struct sums){.bytes = bytes,
                         .private_bytes = share_of(left->private_bytes, bytes, left->bytes),
                         .huge_bytes = share_of(left->huge_bytes, bytes, left->bytes)};
    left->bytes -= part.bytes;
    left->private_bytes -= part.private_bytes;
    left->huge_bytes -= part.huge_bytes;
    return part;
}

static void give(struct taking *t, struct owner owner, struct sums part)
{
    explain_add(t->out,
                &(struct explain_share){owner.kind, owner.marks, owner.name, part.bytes,
                                        part.private_bytes, part.huge_bytes, part.swap_bytes});
}

static void whole_give(struct taking *t, struct owner owner)
{
    give(t, owner, left_take(t, UINT64_MAX));
}

static void range_give(struct taking *t, uint64_t start, uint64_t end, struct owner owner)
{
    give(t, owner, left_take(t, pages_resident(&t->pages, start, end)));
    t->last = owner;
}

/* ---- files ---- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_book(const char *path)
{
    const char *end = strstr(path, " (deleted)");
    size_t n = end ? (size_t)(end - path) : strlen(path);
    return n > 5 && memcmp(path + n - 5, ".book", 5) == 0;
}

static struct owner file_owner(const char *name)
{
    if (is_book(name))
        return (struct owner){EXPLAIN_MEMOIR, "book", 0};
    if (begins(name, "/dev/shm/") || begins(name, "/memfd:") || begins(name, "/SYSV") ||
        begins(name, "/dev/zero") || begins(name, "[anon_shmem:"))
        return (struct owner){EXPLAIN_SHARED, name, 0};
    if (begins(name, "/dev/") || begins(name, "anon_inode:"))
        return (struct owner){EXPLAIN_DEVICE, name, 0};
    return (struct owner){EXPLAIN_FILE, name, 0};
}

/* ---- memory that nothing in it explains ---- */

static struct owner rest_of(const struct taking *t, const struct smaps_mapping *m, uint64_t start,
                            char name[static EXPLAIN_NAME_MAX])
{
    const struct owners *o = &t->owners;
    /* The bss of a library lies right above its data, and so may another mapping; what that is was looked for before. */
    if (t->file && t->file->end == start && m->writable)
        return file_owner(smaps_name(&t->smaps, t->file));
    if (o->jvm)
        return (struct owner){EXPLAIN_RUNTIME, "JVM: metaspace, GC and other structures",
                              EXPLAIN_BY_SHAPE};
    if (o->go)
        return (struct owner){EXPLAIN_RUNTIME, "Go runtime", EXPLAIN_BY_SHAPE};
    if (o->v8 && start % OWNER_V8_ALIGN == 0)
        return (struct owner){EXPLAIN_RUNTIME, "V8 heap", EXPLAIN_BY_SHAPE};
    if (o->php && start % OWNER_PHP_ALIGN == 0)
        return (struct owner){EXPLAIN_RUNTIME, "PHP: large values", EXPLAIN_BY_SHAPE};
    if (o->python && !t->pages.readable && (m->end - m->start) % (256 << 10) == 0)
        return (struct owner){EXPLAIN_RUNTIME, "CPython arenas (pymalloc)", EXPLAIN_BY_SHAPE};
    if (o->allocator && m->writable) {
        snprintf(name, EXPLAIN_NAME_MAX, "%s", o->allocator);
        return (struct owner){EXPLAIN_HEAP, name, EXPLAIN_BY_SHAPE};
    }
    snprintf(name, EXPLAIN_NAME_MAX, "%llx-%llx %c%c%c", (unsigned long long)m->start,
             (unsigned long long)m->end, m->readable ? 'r' : '-', m->writable ? 'w' : '-',
             m->executable ? 'x' : '-');
    return (struct owner){EXPLAIN_REST, name, 0};
}

static void rest_give(struct taking *t, uint64_t start, uint64_t end)
{
    char name[EXPLAIN_NAME_MAX];
    if (start < end)
        range_give(t, start, end, rest_of(t, t->pages.mapping, start, name));
    t->last.name = NULL; /* it was ours */
}

/* ---- what lies in a mapping ---- */

/* Of libmemoir-malloc: how far what begins at `at` goes; 0: it has nothing there. *ret_next: where it has the next. */
static uint64_t memoir_give(struct taking *t, uint64_t at, uint64_t end, uint64_t *ret_next)
{
    bool own = false;
    *ret_next = UINT64_MAX;
    if (!t->heap)
        return 0;
    uint64_t to = scan_heap_stretch(t->heap, at, &own);
    if (!own) {
        *ret_next = to;
        return 0;
    }
    to = to < end ? to : end;
    if (scan_heap_macro(t->heap, at)) {
        struct sums part = left_take(t, pages_resident(&t->pages, at, to));
        t->macros.bytes += part.bytes;
        t->macros.private_bytes += part.private_bytes;
        t->macros.huge_bytes += part.huge_bytes;
        t->last = (struct owner){EXPLAIN_SLACK, "fragmentation", EXPLAIN_ESTIMATE};
        return to;
    }
    for (unsigned i = 0; i < t->heap->huge_cache.n; i++)
        if (at - (uintptr_t)t->heap->huge_cache.ranges[i].at <
            t->heap->huge_cache.ranges[i].bytes) {
            range_give(t, at, to, (struct owner){EXPLAIN_SLACK, "free, kept", 0});
            return to;
        }
    range_give(t, at, to, (struct owner){EXPLAIN_MEMOIR, "records of blocks", 0});
    return to;
}

/* CPython's first pool lies at the next multiple of its size. */
static uint64_t python_at(struct taking *t, uint64_t at, uint64_t left)
{
    uint64_t pool = (at + OWNER_POOL_ALIGN - 1) & ~(uint64_t)(OWNER_POOL_ALIGN - 1);
    if (!t->owners.python || pool - at >= left)
        return 0;
    if (pool != at) { /* of small pools, which may begin at once */
        const void *near = pages_head(&t->pages, at);
        uint64_t bytes = near ? owner_python_arena(near, left) : 0;
        if (bytes)
            return bytes;
    }
    uint8_t head[OWNER_HEAD];
    if (pages_next(&t->pages, pool) != pool ||
        scan_memory_peek(&t->memory, pool, head, sizeof(head)) != sizeof(head))
        return 0;
    return owner_python_arena(head, left);
}

static uint64_t known_give(struct taking *t, uint64_t at, uint64_t end)
{
    uint64_t left = end - at, bytes;
    const void *head = pages_head(&t->pages, at);
    struct owner owner = {EXPLAIN_HEAP, "large blocks", 0};
    if (!head)
        return 0;
    if ((bytes = owner_memoir_huge(head, at, left)) > 0) {
        owner.name = "huge blocks";
        t->out->heap_served += bytes;
    } else if ((bytes = owner_glibc_chunk(head, left)) > 0) {
        owner.name = "large blocks (mmap)";
    } else if (t->owners.v8 && (bytes = owner_v8_chunk(head, at, left)) > 0) {
        owner = (struct owner){EXPLAIN_RUNTIME, "V8 heap", 0};
    } else if (t->owners.php && (bytes = owner_php_chunk(head, at, left)) > 0) {
        owner = (struct owner){EXPLAIN_RUNTIME, "PHP heap (Zend)", 0};
    } else if ((bytes = python_at(t, at, left)) > 0) {
        owner = (struct owner){EXPLAIN_RUNTIME, "CPython arenas (pymalloc)", 0};
    } else {
        return 0;
    }
    pages_hit(&t->pages);
    range_give(t, at, at + bytes, owner);
    return at + bytes;
}

static void mapping_walk(struct taking *t, const struct smaps_mapping *m)
{
    uint64_t at = m->start, unknown = m->start, next, own;
    while (at < m->end) {
        uint64_t there = pages_next(&t->pages, at);
        at = there;
        if (at >= m->end)
            break;
        uint64_t to = memoir_give(t, at, m->end, &own);
        next = own < m->end ? own : m->end;
        if (!to)
            to = known_give(t, at, next);
        if (!to) {
            at += PAGE;
            continue;
        }
        rest_give(t, unknown, at);
        at = unknown = to;
    }
    struct owner last = t->last;
    rest_give(t, unknown, m->end);
    /* What pagemap did not show: pages that came or went between the two reads. */
    if ((t->left.bytes || t->left.swap_bytes) && last.name)
        whole_give(t, last);
}

/* ---- kinds of mappings ---- */

/* "[anon:NAME]", as prctl(PR_SET_VMA) sets it. */
static struct owner named_owner(const char *name)
{
    if (begins(name, "[anon: Go") || begins(name, "[anon:Go"))
        return (struct owner){EXPLAIN_RUNTIME, "Go heap", 0};
    if (begins(name, "[anon:v8") || begins(name, "[anon: v8") || begins(name, "[anon:V8"))
        return (struct owner){EXPLAIN_RUNTIME, "V8 heap", 0};
    if (begins(name, "[anon:glibc: malloc") || begins(name, "[anon: glibc: malloc"))
        return (struct owner){EXPLAIN_HEAP, "malloc (named by glibc)", 0};
    if (strstr(name, "glibc: pthread stack"))
        return (struct owner){EXPLAIN_STACK, "other threads", 0};
    return (struct owner){EXPLAIN_ANONYMOUS, name, 0};
}

static struct owner code_owner(const struct owners *o)
{
    if (o->jvm)
        return (struct owner){EXPLAIN_RUNTIME, "JVM code cache", EXPLAIN_BY_SHAPE};
    if (o->v8)
        return (struct owner){EXPLAIN_RUNTIME, "V8 code", EXPLAIN_BY_SHAPE};
    return (struct owner){EXPLAIN_ANONYMOUS, "code made at run time (JIT)", 0};
}

static bool is_arena(struct taking *t, const struct smaps_mapping *m)
{
    if (m->start % OWNER_ARENA_ALIGN != 0 || !m->readable || !m->writable)
        return false;
    const void *head = pages_head(&t->pages, m->start);
    return head ? owner_glibc_arena(head, m->end - m->start) > 0 : !t->pages.readable;
}

/* By where it lies; false: what is in it has to tell. */
static bool placed(struct taking *t, const struct smaps_mapping *m,
                   const struct smaps_mapping *before, struct owner *ret)
{
    const struct owners *o = &t->owners;
    bool own = false;
    bool memoir = t->heap && (scan_heap_stretch(t->heap, m->start, &own) < m->end || own);
    if (m->executable)
        *ret = code_owner(o);
    else if (memoir)
        return false;
    else if (o->go && m->start >= OWNER_GO_BASE && m->end <= OWNER_GO_END)
        *ret = (struct owner){EXPLAIN_RUNTIME, "Go heap", 0}; /* stacks of goroutines lie in it */
    else if (thread_stacks_in(&t->stacks, m) && m->end - m->start <= OWNER_ARENA_ALIGN)
        *ret = (struct owner){EXPLAIN_STACK, "other threads", 0};
    else if (is_arena(t, m))
        *ret = (struct owner){EXPLAIN_HEAP, "arenas of threads", 0};
    else if (o->jvm && m->end <= OWNER_JAVA_BASE && m->start >= UINT64_C(1) << 24)
        *ret = (struct owner){EXPLAIN_RUNTIME, "Java heap", 0};
    else if (o->jvm && m->start >= OWNER_JAVA_BASE && m->end <= OWNER_JAVA_CLASSES)
        *ret = (struct owner){EXPLAIN_RUNTIME, "Java class metadata", 0};
    else if (thread_stacks_shaped(before, m))
        *ret = (struct owner){EXPLAIN_STACK, "other threads", EXPLAIN_BY_SHAPE};
    else
        return false;
    return true;
}

static int mapping_take(struct taking *t, const struct smaps_mapping *m,
                        const struct smaps_mapping *before)
{
    const char *name = smaps_name(&t->smaps, m);
    struct owner owner;
    t->left = (struct sums){m->rss, m->private_bytes, m->huge, m->swap};
    t->last = (struct owner){0};
    if (name[0] == '/' || begins(name, "anon_inode:") || begins(name, "[anon_shmem:")) {
        whole_give(t, file_owner(name));
        t->file = m;
        return 0;
    }
    if (strcmp(name, "[heap]") == 0) {
        whole_give(t, (struct owner){EXPLAIN_HEAP, "heap of brk", 0});
    } else if (strcmp(name, "[stack]") == 0) {
        whole_give(t, (struct owner){EXPLAIN_STACK, "main thread", 0});
    } else if (begins(name, "[anon:")) {
        whole_give(t, named_owner(name));
    } else if (name[0] == '[') { /* vdso and the like */
        whole_give(t, (struct owner){EXPLAIN_FILE, name, 0});
    } else if (m->rss || m->swap) {
        int r = pages_of(&t->pages, m);
        if (r < 0)
            return r;
        if (placed(t, m, before, &owner))
            whole_give(t, owner);
        else
            mapping_walk(t, m);
        if (t->left.bytes || t->left.swap_bytes) {
            char text[EXPLAIN_NAME_MAX];
            whole_give(t, rest_of(t, m, m->start, text));
        }
    }
    return 0;
}

/* ---- macro-blocks ---- */

/* What macro-blocks hold is known by what the allocator counts; of their pages only how many are resident. */
static void macros_divide(struct taking *t)
{
    const struct scan_heap *h = t->heap;
    uint64_t used = h->large_slices << SLICE_SHIFT, free_in = 0;
    for (unsigned i = 0; i < SIZE_CLASSES; i++) {
        used += h->classes[i].used * size_of_class(i);
        free_in += h->classes[i].free * size_of_class(i);
    }
    t->out->heap_served += used;
    const struct {
        struct owner owner;
        uint64_t bytes;
    } parts[] = {
        {{EXPLAIN_SLACK, "descriptors", EXPLAIN_ESTIMATE}, h->n_macros << SLICE_SHIFT},
        {{EXPLAIN_HEAP, "small and large blocks", EXPLAIN_ESTIMATE}, used},
        {{EXPLAIN_SLACK, "free in slabs", EXPLAIN_ESTIMATE}, free_in},
        {{EXPLAIN_SLACK, "free, kept", EXPLAIN_ESTIMATE},
         (h->kept_slices + h->spare_slices) << SLICE_SHIFT},
    };
    uint64_t all = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        all += parts[i].bytes;
    t->left = t->macros;
    uint64_t resident = t->left.bytes;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        give(t, parts[i].owner,
             left_take(t,
                       all > resident ? share_of(parts[i].bytes, resident, all) : parts[i].bytes));
    whole_give(t, (struct owner){EXPLAIN_SLACK, "fragmentation", EXPLAIN_ESTIMATE});
}

/* ---- all of it ---- */

/* The heap of libmemoir-malloc, where its library is loaded or linked in. */
static void heap_look(struct taking *t, pid_t pid)
{
    struct scan_regions regions = {0};
    if (scan_memory_open(&t->memory, pid) < 0)
        return;
    t->memory_open = true;
    t->pages.memory = &t->memory;
    for (size_t i = 0; i < t->smaps.n && !t->pages.readable; i++) {
        uint8_t byte;
        const struct smaps_mapping *m = &t->smaps.all[i];
        t->pages.readable = m->rss && m->readable && m->anonymous &&
                            scan_memory_peek(&t->memory, m->start, &byte, 1) == 1;
    }
    if (t->pages.readable && scan_regions_read(pid, &regions) == 0) {
        if (scan_heap_read_from(&t->memory, &regions, false, &t->heap) < 0)
            t->heap = NULL;
        scan_regions_release(&regions);
    }
}

static int all_take(struct taking *t, pid_t pid)
{
    int r = smaps_read(pid, &t->smaps);
    if (r == 0)
        r = thread_stacks_read(pid, &t->stacks);
    if (r < 0)
        return r;
    owners_find(&t->smaps, &t->owners);
    heap_look(t, pid);
    for (size_t i = 0; i < t->smaps.n && r == 0; i++) {
        const struct smaps_mapping *m = &t->smaps.all[i];
        r = mapping_take(t, m, i ? m - 1 : NULL);
        t->out->swap_bytes += m->swap;
        t->out->hugetlb_bytes += m->hugetlb;
    }
    if (r < 0)
        return r;
    if (t->heap)
        macros_divide(t);
    t->out->rss_bytes = t->smaps.rss;
    t->out->n_mappings = (uint32_t)t->smaps.n;
    t->out->n_threads = t->stacks.n_threads;
    t->out->memory_read = t->pages.readable;
    t->out->memoir_heap = t->heap != NULL;
    explain_sort(t->out);
    return 0;
}

int explain_take(pid_t pid, struct explain *ret_explain)
{
    MEMOIR_CLEANUP(freep)
    struct taking *t = calloc(1, sizeof(*t));
    MEMOIR_CLEANUP(freep)
    struct explain *out = calloc(1, sizeof(*out));
    if (!t || !out)
        return -ENOMEM;
    t->out = out;
    t->pages.left = PAGES_READ_MAX;
    out->pid = pid;
    int r = all_take(t, pid);
    pages_release(&t->pages);
    thread_stacks_release(&t->stacks);
    smaps_release(&t->smaps);
    scan_heap_free(t->heap);
    if (t->memory_open)
        scan_memory_close(&t->memory);
    if (r == 0)
        *ret_explain = *out;
    return r;
}

static int child(struct buffer *out, void *context)
{
    MEMOIR_CLEANUP(freep)
    struct explain *explain = calloc(1, sizeof(*explain));
    int r = explain ? explain_take(*(const pid_t *)context, explain) : -ENOMEM;
    return r < 0 ? r : buffer_append(out, explain, sizeof(*explain));
}

int explain_take_apart(pid_t pid, uint32_t owner, uint32_t timeout_ms, struct explain *ret_explain)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer message = BUFFER_INIT(sizeof(*ret_explain));
    int r = apart_run(child, &pid, &(struct apart_options){.all_ms = timeout_ms, .owner = owner},
                      &message);
    if (r < 0)
        return r;
    if (message.len != sizeof(*ret_explain) ||
        !explain_valid((const struct explain *)(const void *)message.data))
        return -EBADMSG;
    memcpy(ret_explain, message.data, sizeof(*ret_explain));
    return 0;
}
