#include "malloc/huge.h"
#include "malloc/map.h"
#include "malloc/os.h"
#include <string.h>
struct h {
    size_t bytes;
};
void *huge_alloc(size_t bytes, size_t align, bool *z)
{
    if (align > 1 << 20)
        return 0;
    if (align < 64)
        align = 64;
    *z = true;
    size_t b = os_page_up(bytes + align);
    char *p = os_map(b, 1 << 21);
    if (!p)
        return 0;
    map_set(p, 1, MAP_HUGE);
    ((struct h *)p)->bytes = b;
    size_t o = align > 64 ? align : 64;
    return p + o;
}
static struct h *of(const void *p)
{
    return (struct h *)((uintptr_t)p & ~((1ul << 21) - 1));
}
bool huge_free(void *p)
{
    struct h *h = of(p);
    map_set(h, 1, MAP_NONE);
    os_unmap(h, h->bytes);
    return true;
}
size_t huge_usable(const void *p)
{
    struct h *h = of(p);
    return h->bytes - ((char *)p - (char *)h);
}
void *huge_realloc(void *p, size_t bytes)
{
    bool z;
    void *q = huge_alloc(bytes, 1, &z);
    if (!q)
        return 0;
    size_t u = huge_usable(p);
    memcpy(q, p, u < bytes ? u : bytes);
    huge_free(p);
    return q;
}
bool huge_trim(void)
{
    return false;
}
void huge_fork_prepare(void)
{
}
void huge_fork_done(bool child)
{
}
