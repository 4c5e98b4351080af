/*
 * entry_info.c: what a program may ask and set with the functions that glibc has for it.
 *
 * Their figures are of the whole process. There is one heap in the sense of these functions, so arenas are one.
 */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "malloc/entry.h"
#include "malloc/huge.h"
#include "malloc/line.h"
#include "malloc/policy.h"
#include "malloc/stats.h"

EXPORT struct mallinfo2 mallinfo2(void)
{
    struct stats s;
    stats_take(&s);
    size_t used = s.small_bytes + s.large_bytes;
    return (struct mallinfo2){
        .arena = s.mapped_bytes,
        .hblks = s.huge_blocks,
        .hblkhd = s.huge_bytes,
        .uordblks = used,
        .fordblks = s.mapped_bytes > used ? s.mapped_bytes - used : 0,
        .keepcost = s.kept_bytes,
    };
}

static int narrow(size_t value)
{
    return value < INT_MAX ? (int)value : INT_MAX;
}

EXPORT struct mallinfo mallinfo(void)
{
    struct mallinfo2 wide = mallinfo2();
    return (struct mallinfo){
        .arena = narrow(wide.arena),
        .hblks = narrow(wide.hblks),
        .hblkhd = narrow(wide.hblkhd),
        .uordblks = narrow(wide.uordblks),
        .fordblks = narrow(wide.fordblks),
        .keepcost = narrow(wide.keepcost),
    };
}

/* ---- as text ---- */

static void number(struct line *l, const char *before, uint64_t value, const char *after)
{
    line_text(l, before);
    line_number(l, value);
    line_text(l, after);
}

/* Into a stream, which is what the caller has: the only place where the C library's streams are used. */
static int stream_write(struct line *l, FILE *to)
{
    size_t n = l->length;
    l->length = 0;
    return fwrite(l->text, 1, n, to) == n ? 0 : errno;
}

EXPORT int malloc_info(int options, FILE *to)
{
    struct stats s;
    struct line l = {.length = 0};
    if (options != 0)
        return EINVAL;
    stats_take(&s);
    line_text(&l, "<malloc version=\"memoir-1\">\n<heap nr=\"0\">\n<sizes>\n");
    int error = stream_write(&l, to);
    for (unsigned class = 0; error == 0 && class < SIZE_CLASSES; class ++) {
        const struct stats_class *c = &s.counts.small[class];
        if (c->slabs == 0)
            continue;
        number(&l, "  <size bytes=\"", size_of_class(class), "\"");
        number(&l, " used=\"", c->used, "\"");
        number(&l, " made=\"", c->made, "\"");
        number(&l, " slabs=\"", c->slabs, "\"");
        number(&l, " slices=\"", c->slices, "\"/>\n");
        error = stream_write(&l, to);
    }
    number(&l, "  <first count=\"", s.first_blocks, "\"");
    number(&l, " size=\"", s.first_bytes, "\"/>\n");
    number(&l, "</sizes>\n<total type=\"small\" count=\"", s.small_blocks, "\"");
    number(&l, " size=\"", s.small_bytes, "\"/>\n");
    number(&l, "<total type=\"large\" count=\"", s.large_blocks, "\"");
    number(&l, " size=\"", s.large_bytes, "\"/>\n");
    number(&l, "<total type=\"mmap\" count=\"", s.huge_blocks, "\"");
    number(&l, " size=\"", s.huge_bytes, "\"/>\n");
    number(&l, "<system type=\"current\" size=\"", s.mapped_bytes + s.huge_bytes, "\"/>\n");
    number(&l, "<kept size=\"", s.kept_bytes, "\"/>\n</heap>\n</malloc>\n");
    return error ? error : stream_write(&l, to);
}

EXPORT void malloc_stats(void)
{
    struct stats s;
    struct line l = {.length = 0};
    int saved = errno;
    stats_take(&s);
    number(&l, "system bytes     = ", s.mapped_bytes + s.huge_bytes, "\n");
    number(&l, "in use bytes     = ", s.small_bytes + s.large_bytes + s.huge_bytes, "\n");
    number(&l, "kept free bytes  = ", s.kept_bytes, "\n");
    number(&l, "blocks           = ", s.small_blocks + s.large_blocks + s.huge_blocks, "\n");
    number(&l, "huge blocks      = ", s.huge_blocks, "");
    line_write(&l, STDERR_FILENO);
    errno = saved;
}

/* ---- settings ---- */

/* What glibc knows and has no meaning here succeeds and does nothing: a program that sets it wants speed or thrift, and checks that
 * it was understood. */
EXPORT int mallopt(int what, int value)
{
    switch (what) {
    case M_TRIM_THRESHOLD: /* free memory that may stay; glibc's "never" is ours, too */
        policy_keep(value < 0 ? SIZE_MAX / 2 : (uint64_t)value);
        return 1;
    case M_PERTURB:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
        return 1;
    case M_MXFAST:
        return value >= 0 && value <= 160 ? 1 : 0;
    default:
        return 0;
    }
}
