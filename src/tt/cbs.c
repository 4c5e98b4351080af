/* cbs.c: circular buffers.
 *
 * A program's circular buffers lie at fixed addresses at the bottom of the L1 of its cores, and those of
 * the next program at the same ones: L1 has them one after the other, while a cache keeps many programs. To
 * add them all up would give many times the L1 that there is. So what counts is the L1 in which circular
 * buffers of living programs lie: their union by address, times the cores that use it (the most of any of
 * those that overlap, which may be too little or too much).
 *
 * The list is sorted by device and address. The first entry of each address says what was reported for the
 * stretch from there to the next address or to the end of what covers it. */
#include <errno.h>
#include <string.h>

#include <memoir/memoir.h>

#include "book/writer.h"
#include "tt/tt.h"

struct tt_cb {
    int device;
    uint32_t cores;
    uint64_t address, end;
    uint64_t program; /* 0: not known */
    uintptr_t pc;     /* who made it */
    uint64_t reported;
};

enum { CBS_FIRST = 256, CBS_MAX = 1 << 20 };

static bool list_grow(struct tt_cbs *cbs)
{
    if (cbs->n < cbs->room)
        return true;
    size_t room = cbs->room ? cbs->room * 2 : CBS_FIRST;
    if (room > CBS_MAX)
        return false;
    struct tt_cb *list = book_private_new(room * sizeof(*list));
    if (!list)
        return false;
    if (cbs->n)
        memcpy(list, cbs->list, cbs->n * sizeof(*list));
    book_private_free(cbs->list, cbs->room * sizeof(*list));
    cbs->list = list;
    cbs->room = room;
    return true;
}

/* Number of entries before (device, address), or also those at it. */
static size_t position(const struct tt_cbs *cbs, int device, uint64_t address, bool behind)
{
    size_t low = 0, high = cbs->n;
    while (low < high) {
        const struct tt_cb *cb = &cbs->list[(low + high) / 2];
        bool before = cb->device != device     ? cb->device < device
                      : cb->address != address ? cb->address < address
                                               : behind;
        if (before)
            low = (low + high) / 2 + 1;
        else
            high = (low + high) / 2;
    }
    return low;
}

/* Bring what was reported of a device up to date; `site` is that of a new one, or NULL. */
static void device_report(struct tt_cbs *cbs, int device, const struct tt_site *site)
{
    uint64_t covered_to = 0;
    uint32_t cores = 0;
    for (size_t i = position(cbs, device, 0, false); i < cbs->n && cbs->list[i].device == device;) {
        struct tt_cb *first = &cbs->list[i];
        if (covered_to <= first->address)
            cores = 0;
        for (;
             i < cbs->n && cbs->list[i].device == device && cbs->list[i].address == first->address;
             i++) {
            const struct tt_cb *cb = &cbs->list[i];
            covered_to = cb->end > covered_to ? cb->end : covered_to;
            cores = cb->cores > cores ? cb->cores : cores;
        }
        uint64_t end = covered_to;
        if (i < cbs->n && cbs->list[i].device == device && cbs->list[i].address < end)
            end = cbs->list[i].address;
        uint64_t bytes = (end - first->address) * cores;
        if (bytes == first->reported)
            continue;
        if (first->reported)
            tt_free_on(device, MEMOIR_SPACE_CB, first->address);
        struct tt_site known = {.pc = first->pc};
        tt_alloc_on(device, MEMOIR_SPACE_CB, first->address, bytes, site ? site : &known);
        first->reported = bytes;
    }
}

/* Take out those of a program, or of nobody known (0); with `any` all of them. Only those of one device,
 * unless that is below 0. True if there were some. */
static bool list_remove(struct tt_cbs *cbs, int device, uint64_t program, bool any)
{
    size_t kept = 0;
    uint64_t reported = 0; /* for an address whose first entry went */
    bool removed = false;
    for (size_t i = 0; i < cbs->n; i++) {
        struct tt_cb cb = cbs->list[i];
        bool last = i + 1 == cbs->n || cbs->list[i + 1].device != cb.device ||
                    cbs->list[i + 1].address != cb.address;
        bool goes = (device < 0 || cb.device == device) && (any || cb.program == program);
        reported += cb.reported;
        cb.reported = 0;
        if (!goes) {
            cb.reported = reported;
            reported = 0;
            cbs->list[kept++] = cb;
        } else {
            removed = true;
        }
        /* The rest of the address may already have a new first entry. */
        if (last && reported) {
            tt_free_on(cb.device, MEMOIR_SPACE_CB, cb.address);
            reported = 0;
        }
    }
    cbs->n = kept;
    return removed;
}

static void list_add(struct tt_cbs *cbs, const struct tt_cb *cb)
{
    if (!list_grow(cbs))
        return;
    size_t at = position(cbs, cb->device, cb->address, true);
    memmove(&cbs->list[at + 1], &cbs->list[at], (cbs->n - at) * sizeof(*cb));
    cbs->list[at] = *cb;
    cbs->n++;
}

/* A scope that was left by an exception lies below us on the stack. */
static struct tt_cbs_scope *scope_now(struct tt_cbs_scope *scope)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    if (scope->program && scope->frame <= frame)
        scope->program = NULL;
    return scope->program ? scope : NULL;
}

void tt_cb_made(struct tt_api *api, const void *cores, uint64_t address, uint64_t bytes,
                const void *device, const struct unwind_state *state)
{
    struct tt_cb cb = {.address = address, .end = address + bytes};
    struct tt_cbs_scope *scope = scope_now(&tt_cbs_making);
    cb.program = scope ? (uintptr_t)scope->program : 0;
    cb.cores = api->num_cores(cores);
    int fan = tt_fan_find(api, device);
    if (fan < 0 || cb.end <= address || cb.cores == 0)
        return;
    struct tt_site site = tt_site_find(api, state);
    cb.pc = site.pc;
    const struct tt_fan *f = tt_fan_at(fan);
    if (!tt_lock())
        return;
    struct tt_cbs *cbs = tt_cbs_list();
    for (uint32_t i = 0; i < f->n; i++) {
        cb.device = f->devices[i];
        /* Laid out anew: those of before are gone. */
        if (scope && scope->first)
            list_remove(cbs, cb.device, cb.program, false);
        list_add(cbs, &cb);
        device_report(cbs, cb.device, &site);
    }
    if (scope)
        scope->first = false;
    tt_unlock();
}

void tt_cbs_gone(struct tt_api *api, const void *device)
{
    struct tt_cbs_scope *scope = scope_now(&tt_cbs_ending);
    int fan = tt_fan_find(api, device);
    if (fan < 0 || !tt_lock())
        return;
    struct tt_cbs *cbs = tt_cbs_list();
    const struct tt_fan *f = tt_fan_at(fan);
    /* Without a word about whose they are, those of known programs wait for the program's own end. */
    bool any = !scope && !api->real[TT_PROGRAM_DESTROYED];
    for (uint32_t i = 0; i < f->n; i++)
        if (list_remove(cbs, f->devices[i], scope ? (uintptr_t)scope->program : 0, any))
            device_report(cbs, f->devices[i], NULL);
    tt_unlock();
}

void tt_cbs_of_program_gone(const void *program)
{
    if (!tt_lock())
        return;
    struct tt_cbs *cbs = tt_cbs_list();
    if (cbs->n && list_remove(cbs, -1, (uintptr_t)program, false))
        for (size_t i = 0; i < cbs->n; i = position(cbs, cbs->list[i].device, UINT64_MAX, true))
            device_report(cbs, cbs->list[i].device, NULL);
    tt_unlock();
}
