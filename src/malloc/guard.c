/* guard.c: see guard.h. */
#include "malloc/guard.h"

#include "malloc/core.h"

static_assert((size_t)GUARD_LEAD == 2 * OS_PAGE_BYTES, "pages");
static_assert(GUARD_LEAD + OS_PAGE_BYTES <= SLICE_BYTES, "it starts in its first slice");

static uint32_t n_live;

static char *pages_of(const struct slab *s)
{
    return slab_memory(s) + GUARD_LEAD;
}

static size_t pages_bytes(const struct slab *s)
{
    return (size_t)(slab_memory(s) + s->start + s->asked - pages_of(s));
}

static bool guards_set(const struct slab *s, enum os_access access)
{
    return os_protect(pages_of(s) - OS_PAGE_BYTES, OS_PAGE_BYTES, access) &&
           os_protect(pages_of(s) + pages_bytes(s), OS_PAGE_BYTES, access);
}

void *guard_alloc(size_t bytes, size_t align)
{
    if (bytes > GUARD_BYTES_MAX || align > OS_PAGE_BYTES || os_page_bytes() > OS_PAGE_BYTES)
        return NULL;
    if (fetch_add_relaxed(&n_live, 1) >= GUARD_LIVE_MAX) {
        fetch_sub_relaxed(&n_live, 1);
        return NULL;
    }
    align = align > SIZE_STEP ? align : SIZE_STEP;
    size_t room = (bytes + align - 1) & ~(align - 1), pages = os_page_up(room ? room : 1);
    size_t all = GUARD_LEAD + pages + OS_PAGE_BYTES;
    /* Whatever a smaller block would be, this is one with slices of its own. */
    char *block = core_malloc(all > SIZE_SMALL_MAX ? all : SIZE_SMALL_MAX + 1);
    if (block) {
        struct slab *s = slab_of(block);
        s->start = (uint32_t)(GUARD_LEAD + pages - room);
        s->asked = room;
        if (guards_set(s, OS_NO_ACCESS))
            return slab_memory(s) + s->start;
        guard_free(s);
        return NULL;
    }
    fetch_sub_relaxed(&n_live, 1);
    return NULL;
}

void guard_hide(struct slab *s)
{
    os_protect(pages_of(s), pages_bytes(s), OS_NO_ACCESS);
}

void guard_free(struct slab *s)
{
    os_protect(pages_of(s) - OS_PAGE_BYTES, pages_bytes(s) + 2 * OS_PAGE_BYTES, OS_READ_WRITE);
    s->start = 0;
    fetch_sub_relaxed(&n_live, 1);
    core_free(slab_memory(s));
}
