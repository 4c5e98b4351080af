/* What changed between two looks: places, processes and their counters. See changes.h. */
#include "ledger/changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/sum.h"
#include "ledger/changes_rows.h"

/* ---- places ---- */

static bool same_place(const struct change_place *place, const struct ledger_device *device)
{
    if (!device)
        return place->host;
    return !place->host && place->ordinal == device->ordinal &&
           strcmp(place->uid, device->uid) == 0 && strcmp(place->bus, device->bus) == 0 &&
           strcmp(place->name, device->name) == 0 && strcmp(place->machine, device->host) == 0;
}

/* NULL without memory. */
static struct change_place *place_of(struct changes *c, const struct ledger_device *device)
{
    for (size_t i = 0; i < c->n_places; i++)
        if (same_place(c->places[i], device))
            return c->places[i];
    if (c->n_places == c->room_places) {
        size_t room = c->room_places ? c->room_places * 2 : 8;
        struct change_place **places = reallocarray(c->places, room, sizeof(struct change_place *));
        if (!places)
            return NULL;
        c->places = places;
        c->room_places = room;
    }
    struct change_place *place = calloc(1, sizeof(*place));
    if (!place)
        return NULL;
    place->host = !device;
    if (device) {
        place->ordinal = device->ordinal;
        memcpy(place->name, device->name, sizeof(place->name));
        memcpy(place->uid, device->uid, sizeof(place->uid));
        memcpy(place->bus, device->bus, sizeof(place->bus));
        memcpy(place->machine, device->host, sizeof(place->machine));
    }
    c->places[c->n_places++] = place;
    return place;
}

/* Rows of the ledger come and go; what they mean stays. */
static int places_update(struct changes *c, const struct ledger *ledger)
{
    size_t n;
    struct ledger_device *const *devices = ledger_devices(ledger, &n);
    struct change_place **of_device =
        reallocarray(c->of_device, n + 1, sizeof(struct change_place *));
    if (!of_device)
        return -ENOMEM;
    c->of_device = of_device;
    c->host = place_of(c, NULL);
    for (size_t i = 0; i < n; i++)
        if (!(of_device[i] = place_of(c, devices[i])))
            return -ENOMEM;
    return c->host ? 0 : -ENOMEM;
}

/* ---- tallies ---- */

static ssize_t tally_of(struct changes *c, struct snapshot *s, const struct ledger_account *a)
{
    struct change_place *place = a->device ? c->of_device[a->device->index] : c->host;
    for (size_t i = 0; i < s->n_tallies; i++)
        if (s->tallies[i].place == place && s->tallies[i].space == a->space)
            return (ssize_t)i;
    struct tally *tallies = reallocarray(s->tallies, s->n_tallies + 1, sizeof(*tallies));
    if (!tallies)
        return -ENOMEM;
    s->tallies = tallies;
    s->tallies[s->n_tallies] = (struct tally){.place = place, .space = a->space};
    return (ssize_t)s->n_tallies++;
}

/* New counters of all accounts. 1 when some have moved, 0 or -ENOMEM. Fills ret_tallies, by the number
 * of the process's account. */
static int tallies_update(struct changes *c, struct snapshot *s, const struct ledger_process *p,
                          uint32_t *ret_tallies)
{
    int any = s->pending;
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct ledger_account *a = &p->accounts[i];
        ret_tallies[i] = UINT32_MAX;
        if (a->space > MEMOIR_SPACE_MAX)
            continue;
        ssize_t at = tally_of(c, s, a);
        if (at < 0)
            return -ENOMEM;
        ret_tallies[i] = (uint32_t)at;
        struct tally *t = &s->tallies[at];
        /* An allocator keeps what it knows of a block beside the block; in the table are those of user
         * chains only. */
        t->tableless = a->source == BOOK_SOURCE_REGION ||
                       (book_source_counts_heap(a->source) && !t->has_blocks);
        if (!a->valid || !changes_moved(&t->last, &a->totals))
            continue;
        if (a->totals.alloc_blocks < t->last.alloc_blocks ||
            a->totals.freed_blocks < t->last.freed_blocks)
            changes_restart(t, &a->totals);
        t->last = a->totals;
        any = 1;
    }
    return any;
}

/* ---- processes ---- */

static struct snapshot *snapshot_find(struct changes *c, const struct ledger_process *p)
{
    uint64_t hash = hash_combine(p->start_ticks, (uint64_t)p->book_pid);
    for (struct index_node *node = index_first(&c->snapshots, hash); node;
         node = index_next(node->next, hash)) {
        struct snapshot *s = index_row(node, struct snapshot, node);
        /* Its book may have been made anew, by another daemon. */
        bool same_start = p->start_ticks != 0 || s->book_ns == p->book_realtime_ns;
        if (s->about.book_pid == p->book_pid && s->start_ticks == p->start_ticks && same_start &&
            s->exec_id == p->exec_id && s->pid_ns == p->pid_ns)
            return s;
    }
    if (index_reserve(&c->snapshots) < 0)
        return NULL;
    struct snapshot *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->about.book_pid = p->book_pid;
    s->start_ticks = p->start_ticks;
    s->exec_id = p->exec_id;
    s->pid_ns = p->pid_ns;
    s->book_ns = p->book_realtime_ns;
    index_insert(&c->snapshots, &s->node, hash);
    return s;
}

static void snapshot_free(struct snapshot *s)
{
    blockset_release(&s->blocks);
    free(s->tallies);
    free(s);
}

/* What was there when we began is not told, but counts. Blocks are read after the counters: where there are
 * more than these say, the others came in between, and count as well. */
static void begin_quietly(struct changes *c, struct snapshot *s)
{
    for (size_t i = 0; i < c->came.n; i++) {
        struct tally *t = &s->tallies[c->came.events[i].tally];
        t->begun++;
        t->has_blocks = true;
        sum_add(&t->begun_bytes, c->came.events[i].block.bytes);
    }
    for (size_t i = 0; i < s->n_tallies; i++) {
        struct tally *t = &s->tallies[i];
        struct book_totals begun = t->last;
        if (t->begun > begun.live_blocks && t->begun_bytes >= begun.live_bytes) {
            begun.alloc_blocks += t->begun - begun.live_blocks;
            begun.alloc_bytes += t->begun_bytes - begun.live_bytes;
            begun.live_bytes = t->begun_bytes;
        }
        changes_restart(t, &begun);
        t->settled = t->last;
    }
}

static int tell_process(struct changes *c, struct snapshot *s, bool whole)
{
    int r = 0;
    s->pending = !whole;
    for (size_t i = 0; i < c->went.n && r == 0; i++)
        r = changes_tell_block(c, s, CHANGE_FREE, &c->went.events[i]);
    for (size_t i = 0; i < c->came.n && r == 0; i++)
        r = changes_tell_block(c, s, CHANGE_ALLOC, &c->came.events[i]);
    for (size_t i = 0; whole && i < s->n_tallies && r == 0; i++) {
        struct tally *t = &s->tallies[i];
        r = changes_tell_unseen(c, s, t);
        s->pending |= changes_moved(&t->settled, &t->last) || t->missing_ns;
        t->settled = t->last;
    }
    return r;
}

static int process_look(struct changes *c, const struct ledger_process *p)
{
    struct snapshot *s = snapshot_find(c, p);
    if (!s)
        return -ENOMEM;
    bool new = s->seen == 0;
    s->seen = c->looks;
    s->about.pid = p->valid & LEDGER_HAS_PID ? p->pid : 0;
    s->about.uid = p->uid;
    s->about.start_realtime_ns = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : 0;
    memcpy(s->about.name, p->name, sizeof(s->about.name));
    memcpy(s->about.user, p->user, sizeof(s->about.user));
    if (s->gone)
        return 0;
    if (new && c->looks > 1) {
        int r = changes_tell(c, &(struct change){.kind = CHANGE_BEGIN, .process = &s->about});
        if (r != 0)
            return r;
    } else if (new && !ledger_process_holds(p)) {
        s->gone = true; /* was so before we began */
        return 0;
    }
    MEMOIR_CLEANUP(freep)
    uint32_t *tallies = calloc(p->n_accounts + 1, sizeof(*tallies));
    if (!tallies)
        return -ENOMEM;
    int r = tallies_update(c, s, p, tallies);
    if (r > 0) {
        r = changes_blocks(c, s, p, tallies);
        if (r < 0)
            return r;
        if (new && c->looks == 1)
            begin_quietly(c, s);
        else
            r = tell_process(c, s, r == 1);
    }
    if (r >= 0 && !ledger_process_holds(p))
        r = changes_tell_gone(c, s, p->state);
    return r > 0 ? 0 : r;
}

static int vanished_look(struct changes *c)
{
    for (size_t i = 0; i < c->snapshots.n_buckets; i++)
        for (struct index_node *node = c->snapshots.buckets[i], *next; node; node = next) {
            struct snapshot *s = index_row(node, struct snapshot, node);
            next = node->next;
            if (s->seen == c->looks)
                continue;
            int r = s->gone ? 0 : changes_tell_gone(c, s, LEDGER_UNKNOWN);
            index_remove(&c->snapshots, node);
            snapshot_free(s);
            if (r != 0)
                return r;
        }
    return 0;
}

int changes_look(struct changes *c, struct ledger *ledger,
                 int (*each)(const struct change *change, void *context), void *context)
{
    size_t n;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    c->looks++;
    c->each = each;
    c->context = context;
    int r = places_update(c, ledger);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        r = process_look(c, processes[i]);
        if (r != 0)
            return r;
    }
    return vanished_look(c);
}

int changes_new(struct changes **ret_changes)
{
    struct changes *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    *ret_changes = c;
    return 0;
}

void changes_free(struct changes *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->snapshots.n_buckets; i++)
        for (struct index_node *node = c->snapshots.buckets[i], *next; node; node = next) {
            next = node->next;
            snapshot_free(index_row(node, struct snapshot, node));
        }
    index_release(&c->snapshots);
    for (size_t i = 0; i < c->n_places; i++)
        free(c->places[i]);
    free(c->places);
    free(c->of_device);
    free(c->came.events);
    free(c->went.events);
    free(c);
}

void changes_freep(struct changes **changes)
{
    changes_free(*changes);
}
