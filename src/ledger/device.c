/* One row per device of the machine, though every process numbers and names them in its own way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/hash.h"
#include "ledger/region.h"
#include "ledger/rows.h"

/* Who knows only that it is one of Tenstorrent's calls it by this name, others say which: they mean the same
 * where the number is equal. */
static bool is_any(uint32_t kind, const char *name)
{
    return kind == MEMOIR_DEVICE_NPU && strcmp(name, REGION_DEVICE_NAME) == 0;
}

/* The rule of doc/book.md. Each step decides where both tell what it needs. */
static bool same_device(const struct ledger_device *d, const struct book_device_view *v,
                        const char *host)
{
    if (strcmp(d->host, host) != 0)
        return false;
    if (d->uid[0] && v->uid[0])
        return strcmp(d->uid, v->uid) == 0;
    if (d->bus[0] && v->bus[0])
        return strcmp(d->bus, v->bus) == 0;
    return d->kind == v->kind && d->ordinal == v->ordinal &&
           (strcmp(d->name, v->name) == 0 || is_any(d->kind, d->name) || is_any(v->kind, v->name));
}

char *ledger_device_id(char text[static LEDGER_DEVICE_ID_MAX], const char *uid, const char *bus,
                       int32_t ordinal, const char *name, const char *node)
{
    if (*uid)
        snprintf(text, LEDGER_DEVICE_ID_MAX, "%.63s", uid);
    else if (*bus)
        snprintf(text, LEDGER_DEVICE_ID_MAX, "%.31s@%.63s", bus, node);
    else
        snprintf(text, LEDGER_DEVICE_ID_MAX, "%d %.63s@%.63s", ordinal, name, node);
    return text;
}

/* One for each step of the rule. */
struct keys {
    uint64_t uid, bus, name;
};

static struct keys device_keys(const struct ledger *ledger, const struct book_device_view *v,
                               const char *host)
{
    uint64_t h = hash_string(host, ledger->seed);
    const char *name = v->kind == MEMOIR_DEVICE_NPU ? "" : v->name; /* see is_any() */
    return (struct keys){
        .uid = hash_combine(hash_string(v->uid, h), 1),
        .bus = hash_combine(hash_string(v->bus, h), 2),
        .name = hash_combine(hash_string(name, h), (uint64_t)v->kind << 32 | (uint32_t)v->ordinal),
    };
}

#define FIND_IN(index, member, key)                                          \
    for (struct index_node *node = index_first(&(index), key); node;         \
         node = index_next(node->next, key)) {                               \
        struct device_row *row = index_row(node, struct device_row, member); \
        if (same_device(&row->d, view, host))                                \
            return row;                                                      \
    }

static struct device_row *device_find(const struct ledger *ledger,
                                      const struct book_device_view *view, const char *host,
                                      const struct keys *keys)
{
    if (view->uid[0])
        FIND_IN(ledger->devices_by_uid, by_uid, keys->uid)
    if (view->bus[0])
        FIND_IN(ledger->devices_by_bus, by_bus, keys->bus)
    FIND_IN(ledger->devices_by_name, by_name, keys->name)
    return NULL;
}

static bool has_room(struct ledger *ledger, uint32_t uid)
{
    if (ledger->n_devices >= LEDGER_DEVICES_MAX)
        return false;
    const struct uid_row *row = ledger_uid(ledger, uid);
    return row && (uid == 0 || row->devices < LEDGER_DEVICES_PER_UID_MAX);
}

/* What one book does not tell another may. Room in the indexes was made with the row: they have as many
 * places as there are rows. */
static void device_learn(struct ledger *ledger, struct device_row *row,
                         const struct book_device_view *view, const struct keys *keys)
{
    if (!row->d.uid[0] && view->uid[0]) {
        memcpy(row->d.uid, view->uid, sizeof(row->d.uid));
        index_insert(&ledger->devices_by_uid, &row->by_uid, keys->uid);
    }
    if (is_any(row->d.kind, row->d.name) && row->d.kind == view->kind)
        memcpy(row->d.name, view->name, sizeof(row->d.name));
    if (!row->d.bus[0] && view->bus[0]) {
        memcpy(row->d.bus, view->bus, sizeof(row->d.bus));
        index_insert(&ledger->devices_by_bus, &row->by_bus, keys->bus);
    }
}

static struct device_row *device_new(struct ledger *ledger, const struct book_device_view *view,
                                     const char *host, const struct keys *keys)
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
    if (!row || index_reserve(&ledger->devices_by_uid) < 0 ||
        index_reserve(&ledger->devices_by_bus) < 0 || index_reserve(&ledger->devices_by_name) < 0) {
        free(row);
        return NULL;
    }
    row->d.index = (uint32_t)ledger->n_devices;
    row->d.kind = view->kind;
    row->d.ordinal = view->ordinal;
    memcpy(row->d.name, view->name, sizeof(row->d.name));
    snprintf(row->d.host, sizeof(row->d.host), "%s", host);
    index_insert(&ledger->devices_by_name, &row->by_name, keys->name);
    device_learn(ledger, row, view, keys);
    ledger->devices[ledger->n_devices++] = &row->d;
    return row;
}

struct ledger_device *ledger_device_ref(struct ledger *ledger, const struct book_device_view *view,
                                        const char *host, uint32_t uid)
{
    struct keys keys = device_keys(ledger, view, host);
    struct device_row *row = device_find(ledger, view, host, &keys);
    uid = accountable_uid(uid);
    if (row) {
        device_learn(ledger, row, view, &keys);
        row->refs++;
        return &row->d;
    }
    row = has_room(ledger, uid) ? device_new(ledger, view, host, &keys) : NULL;
    if (!row)
        return NULL;
    row->creator_uid = uid;
    row->refs = 1;
    ledger_uid(ledger, uid)->devices++; /* has_room() made it */
    return &row->d;
}

void ledger_device_number(struct ledger *ledger, struct ledger_device *device, int32_t ordinal)
{
    struct device_row *row = device_row(device);
    if (device->ordinal == ordinal)
        return;
    device->ordinal = ordinal;
    struct book_device_view view = {.kind = device->kind, .ordinal = ordinal};
    memcpy(view.name, device->name, sizeof(view.name));
    index_remove(&ledger->devices_by_name, &row->by_name); /* whose place it keeps */
    index_insert(&ledger->devices_by_name, &row->by_name,
                 device_keys(ledger, &view, device->host).name);
}

void ledger_device_unref(struct ledger *ledger, struct ledger_device *device)
{
    struct device_row *row = (struct device_row *)device;
    if (!row || --row->refs > 0)
        return;
    ledger_uid(ledger, row->creator_uid)->devices--;
    /* The last row takes its place. */
    struct ledger_device *last = ledger->devices[--ledger->n_devices];
    last->index = row->d.index;
    ledger->devices[last->index] = last;
    if (row->d.uid[0])
        index_remove(&ledger->devices_by_uid, &row->by_uid);
    if (row->d.bus[0])
        index_remove(&ledger->devices_by_bus, &row->by_bus);
    index_remove(&ledger->devices_by_name, &row->by_name);
    free(row);
}

struct ledger_device *const *ledger_devices(const struct ledger *ledger, size_t *ret_n)
{
    *ret_n = ledger->n_devices;
    return ledger->devices;
}
