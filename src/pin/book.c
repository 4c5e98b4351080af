/* book.c: see book.h. */
#include "pin/book.h"

#include <memoir/memoir.h>

#include "client/client.h"
#include "pin/lock.h"
#include "pin/region.h"
#include "pin/settings.h"

enum { OWN_ROOM = 1 << 14 }; /* further ones are told, but not given up with their context */

struct own {
    void *address; /* NULL: unused; OWN_GONE: was used */
    void *context;
    uint64_t bytes;
    bool registered;
};
#define OWN_GONE ((void *)1)

static struct own *table;
static uint32_t table_lock;
static uint64_t own_bytes;

static void tell(enum report_kind kind, int space, uintptr_t id, uint64_t bytes,
                 const struct unwind_state *from)
{
    client_report(&(struct report){.kind = kind,
                                   .device = MEMOIR_HOST,
                                   .space = space,
                                   .id = id,
                                   .bytes = bytes,
                                   .tag = -1,
                                   .caller = from ? unwind_state_caller(from) : 0,
                                   .state = from});
}

void pin_book_served(const struct extent *e, const struct unwind_state *from)
{
    tell(REPORT_ALLOC, MEMOIR_SPACE_MAPPED, e->start, e->size, from);
}

void pin_book_gone(const struct extent *e)
{
    tell(REPORT_FREE, MEMOIR_SPACE_MAPPED, e->start, 0, NULL);
}

void pin_book_registered(const struct extent *e, uint64_t bytes)
{
    tell(REPORT_ALLOC, MEMOIR_SPACE_REGISTERED, e->start, bytes, NULL);
}

void pin_book_unregistered(const struct extent *e)
{
    tell(REPORT_FREE, MEMOIR_SPACE_REGISTERED, e->start, 0, NULL);
}

/* ---- the program's own ---- */

static struct own *own_find(const void *address, bool registered, bool enter)
{
    size_t at = (uintptr_t)address / 4096 * UINT64_C(0x9e3779b97f4a7c15) >> 50;
    struct own *unused = NULL;
    for (size_t i = 0; table && i < OWN_ROOM; i++, at++) {
        struct own *o = &table[at % OWN_ROOM];
        if (o->address == address && o->registered == registered)
            return o;
        if (!unused && (!o->address || o->address == OWN_GONE))
            unused = o;
        if (!o->address)
            break;
    }
    return enter ? unused : NULL;
}

void pin_book_own(void *address, uint64_t bytes, bool registered, void *context,
                  const struct unwind_state *from)
{
    tell(REPORT_ALLOC, registered ? MEMOIR_SPACE_REGISTERED : MEMOIR_SPACE_PINNED,
         (uintptr_t)address, bytes, from);
    if (!pin_lock_take(&table_lock))
        return;
    if (!table)
        table = region_table(OWN_ROOM * sizeof(*table));
    struct own *o = own_find(address, registered, true);
    if (o) {
        *o = (struct own){address, context, bytes, registered};
        own_bytes += bytes;
    }
    pin_lock_give(&table_lock);
}

void pin_book_own_gone(void *address, bool registered)
{
    tell(REPORT_FREE, registered ? MEMOIR_SPACE_REGISTERED : MEMOIR_SPACE_PINNED,
         (uintptr_t)address, 0, NULL);
    if (!pin_lock_take(&table_lock))
        return;
    struct own *o = own_find(address, registered, false);
    if (o) {
        own_bytes -= o->bytes;
        o->address = OWN_GONE;
    }
    pin_lock_give(&table_lock);
}

void pin_book_context_gone(void *context)
{
    for (size_t i = 0; table && i < OWN_ROOM; i++) {
        struct own o = table[i];
        if (o.address && o.address != OWN_GONE && (!context || o.context == context))
            pin_book_own_gone(o.address, o.registered);
    }
}

uint64_t pin_book_own_bytes(void)
{
    return load_relaxed(&own_bytes);
}
