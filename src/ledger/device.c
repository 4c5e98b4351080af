/* One row per device of the machine, though every process numbers and names them in its own way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ledger/rows.h"

/* A device is the same by the strongest name that it has. A book that tells the uid and one that tells
 * only the bus give two rows: guessing that they are one could add up two devices. */
static bool same_device(const struct ledger_device *d, const struct book_device_view *v,
                        const char *host)
{
    if (strcmp(d->host, host) != 0)
        return false;
    if (d->uid[0] || v->uid[0])
        return strcmp(d->uid, v->uid) == 0;
    if (d->bus[0] || v->bus[0])
        return strcmp(d->bus, v->bus) == 0;
    return d->kind == v->kind && d->ordinal == v->ordinal && strcmp(d->name, v->name) == 0;
}

static uint64_t device_hash(const struct ledger *ledger, const struct book_device_view *v,
                            const char *host)
{
    uint64_t h = hash_string(host, ledger->seed);
    if (v->uid[0])
        return hash_combine(hash_string(v->uid, h), 1);
    if (v->bus[0])
        return hash_combine(hash_string(v->bus, h), 2);
    return hash_combine(hash_string(v->name, h), (uint64_t)v->kind << 32 | (uint32_t)v->ordinal);
}

static bool has_room(const struct ledger *ledger, uint32_t uid)
{
    if (ledger->n_devices >= LEDGER_DEVICES_MAX)
        return false;
    if (uid == 0 || ledger->n_devices < LEDGER_DEVICES_PER_UID_MAX)
        return true;
    size_t n = 0;
    for (size_t i = 0; i < ledger->n_devices; i++)
        n += ((const struct device_row *)ledger->devices[i])->creator_uid == uid;
    return n < LEDGER_DEVICES_PER_UID_MAX;
}

static struct device_row *device_new(struct ledger *ledger, const struct book_device_view *view,
                                     const char *host, uint64_t hash)
{
    if (ledger->n_devices == ledger->room_devices) {
        size_t room = ledger->room_devices ? ledger->room_devices * 2 : 16;
        struct ledger_device **devices = realloc(ledger->devices, room * sizeof(*devices));
        if (!devices)
            return NULL;
        ledger->devices = devices;
        ledger->room_devices = room;
    }
    struct device_row *row = calloc(1, sizeof(*row));
    if (!row || index_reserve(&ledger->devices_by_key) < 0) {
        free(row);
        return NULL;
    }
    row->d.index = (uint32_t)ledger->n_devices;
    row->d.kind = view->kind;
    row->d.ordinal = view->ordinal;
    memcpy(row->d.name, view->name, sizeof(row->d.name));
    memcpy(row->d.uid, view->uid, sizeof(row->d.uid));
    memcpy(row->d.bus, view->bus, sizeof(row->d.bus));
    snprintf(row->d.host, sizeof(row->d.host), "%s", host);
    index_insert(&ledger->devices_by_key, &row->by_key, hash);
    ledger->devices[ledger->n_devices++] = &row->d;
    return row;
}

struct ledger_device *ledger_device_ref(struct ledger *ledger, const struct book_device_view *view,
                                        const char *host, uint32_t uid)
{
    uint64_t hash = device_hash(ledger, view, host);
    for (struct index_node *node = index_first(&ledger->devices_by_key, hash); node;
         node = index_next(node->next, hash)) {
        struct device_row *row = index_row(node, struct device_row, by_key);
        if (same_device(&row->d, view, host)) {
            row->refs++;
            return &row->d;
        }
    }
    struct device_row *row = has_room(ledger, uid) ? device_new(ledger, view, host, hash) : NULL;
    if (!row)
        return NULL;
    row->creator_uid = uid;
    row->refs = 1;
    return &row->d;
}

void ledger_device_unref(struct ledger *ledger, struct ledger_device *device)
{
    struct device_row *row = (struct device_row *)device;
    if (!row || --row->refs > 0)
        return;
    /* The last row takes its place. */
    struct ledger_device *last = ledger->devices[--ledger->n_devices];
    last->index = row->d.index;
    ledger->devices[last->index] = last;
    index_remove(&ledger->devices_by_key, &row->by_key);
    free(row);
}

struct ledger_device *const *ledger_devices(const struct ledger *ledger, size_t *ret_n)
{
    *ret_n = ledger->n_devices;
    return ledger->devices;
}
