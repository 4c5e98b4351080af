/* See owner.h. */
#include "explain/owner.h"

#include <string.h>

#include "explain/smaps.h"

/* malloc/huge_state.h, whose header is for the allocator alone. */
#define HUGE_COOKIE UINT64_C(0x6d656d6f69722e68)

enum { PAGE = 4096 };

static uint64_t word(const void *head, size_t i)
{
    uint64_t value;
    memcpy(&value, (const char *)head + i * sizeof(value), sizeof(value));
    return value;
}

static uint32_t half(const void *head, size_t offset)
{
    uint32_t value;
    memcpy(&value, (const char *)head + offset, sizeof(value));
    return value;
}

static uint64_t at_most(uint64_t bytes, uint64_t left)
{
    return bytes < left ? bytes : left;
}

/* ---- by libraries ---- */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "php", "php8.2", "php-fpm8.2"; not "phpstorm". */
static bool is_program(const char *base, const char *name)
{
    size_t n = strlen(name);
    return strncmp(base, name, n) == 0 &&
           (!base[n] || base[n] == '-' || (base[n] >= '0' && base[n] <= '9'));
}

void owners_find(const struct smaps *smaps, struct owners *ret)
{
    static const char *const allocators[][2] = {{"libjemalloc", "jemalloc"},
                                                {"libtcmalloc", "tcmalloc"},
                                                {"libmimalloc", "mimalloc"},
                                                {"libtbbmalloc", "TBB malloc"}};
    *ret = (struct owners){0};
    for (size_t i = 0; i < smaps->n; i++) {
        const struct smaps_mapping *m = &smaps->all[i];
        const char *name = smaps_name(smaps, m), *base = base_of(name);
        if (m->start == OWNER_GO_BASE && m->inode == 0)
            ret->go = true;
        if (name[0] != '/' || (i && m->name == smaps->all[i - 1].name))
            continue;
        ret->python |= begins(base, "libpython") || is_program(base, "python");
        ret->v8 |= begins(base, "libnode.so") || begins(base, "libv8.so") ||
                   is_program(base, "node") || is_program(base, "nodejs") ||
                   is_program(base, "chrome") || is_program(base, "chromium") ||
                   is_program(base, "electron");
        ret->jvm |= begins(base, "libjvm.so");
        ret->php |= begins(base, "libphp") || is_program(base, "php");
        ret->memoir |= begins(base, "libmemoir");
        for (size_t k = 0; k < sizeof(allocators) / sizeof(allocators[0]); k++)
            if (begins(base, allocators[k][0]))
                ret->allocator = allocators[k][1];
    }
}

/* ---- by bytes ---- */

/* struct malloc_chunk: prev_size, size with flags. A chunk that has a mapping of its own is IS_MMAPPED and nothing else. */
uint64_t owner_glibc_chunk(const void *head, uint64_t left)
{
    uint64_t size = word(head, 1);
    if (word(head, 0) != 0 || size % PAGE != 2 || size < 2 * PAGE || size - 2 > left)
        return 0;
    return size - 2;
}

/* struct _heap_info: the arena, the heap before, size, size that may be written. */
uint64_t owner_glibc_arena(const void *head, uint64_t left)
{
    uint64_t arena = word(head, 0), before = word(head, 1), size = word(head, 2);
    uint64_t open = word(head, 3);
    if (arena == 0 || arena % 16 != 0 || before % OWNER_ARENA_ALIGN != 0 || size % PAGE != 0 ||
        size == 0 || size > OWNER_ARENA_ALIGN || open % PAGE != 0 || open < size ||
        open > OWNER_ARENA_ALIGN)
        return 0;
    return at_most(open, left);
}

/* struct pool_header: szidx at 36, nextoffset, maxnextoffset, which is the pool's size less a block. Since 3.10 pools have
 * 16 KiB and arenas 1 MiB, before 4 and 256 KiB. */
uint64_t owner_python_arena(const void *pool, uint64_t left)
{
    uint32_t class = half(pool, 36), next = half(pool, 40), most = half(pool, 44);
    if (class >= 32)
        return 0;
    uint32_t bytes = most + ((class + 1) << 4);
    if ((bytes != 4096 && bytes != 16384) || next > bytes || next < 48 ||
        half(pool, 0) > bytes >> 4)
        return 0;
    return at_most(bytes == 16384 ? 1 << 20 : 256 << 10, left);
}

/* BasicMemoryChunk: size, flags, heap, where its objects begin and end. */
uint64_t owner_v8_chunk(const void *head, uint64_t at, uint64_t left)
{
    uint64_t size = word(head, 0), heap = word(head, 2), begin = word(head, 3), end = word(head, 4);
    if (at % OWNER_V8_ALIGN != 0 || size < PAGE || size > UINT64_MAX - at || heap % 8 != 0 ||
        heap == 0 || begin <= at || begin - at >= size || end <= begin || end > at + size)
        return 0;
    return at_most(size, left);
}

/* struct _zend_mm_chunk: heap, next, prev, of a ring of chunks. */
uint64_t owner_php_chunk(const void *head, uint64_t at, uint64_t left)
{
    uint64_t heap = word(head, 0), next = word(head, 1), prev = word(head, 2);
    if (at % OWNER_PHP_ALIGN != 0 || heap == 0 || heap % 8 != 0 || next == 0 || prev == 0 ||
        next % OWNER_PHP_ALIGN != 0 || prev % OWNER_PHP_ALIGN != 0)
        return 0;
    return at_most(OWNER_PHP_ALIGN, left);
}

/* struct huge_block: a cookie made from its address, and the bytes mapped. */
uint64_t owner_memoir_huge(const void *head, uint64_t at, uint64_t left)
{
    uint64_t bytes = word(head, 1);
    if ((HUGE_COOKIE ^ at) != word(head, 0) || bytes < PAGE || bytes % PAGE != 0)
        return 0;
    return at_most(bytes, left);
}
