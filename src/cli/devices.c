/* Devices, their spaces and their owners, from the ledger. See devices.h. */
#include "cli/devices.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sum.h"
#include "ledger/driver.h"
#include "ledger/ledger.h"
#include "nvml/facts.h"

/* Spaces that lie in L1, and where they stand in its stack. */
static const uint32_t l1_spaces[DEVICES_L1_PARTS] = {
    [DEVICES_L1_BUFFERS] = MEMOIR_SPACE_L1,
    [DEVICES_L1_CBS] = MEMOIR_SPACE_CB,
    [DEVICES_L1_KERNELS] = MEMOIR_SPACE_KERNEL,
    [DEVICES_L1_SMALL] = MEMOIR_SPACE_L1_SMALL,
};
static const char *const l1_names[DEVICES_L1_PARTS] = {
    [DEVICES_L1_BUFFERS] = "buffers",
    [DEVICES_L1_CBS] = "CBs",
    [DEVICES_L1_KERNELS] = "kernels",
    [DEVICES_L1_SMALL] = "small",
};

bool devices_match(const struct ledger_device *device, const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end != text && !*end && number == device->ordinal)
        return true;
    return (*device->uid && strcasecmp(device->uid, text) == 0) ||
           (*device->bus && strcasecmp(device->bus, text) == 0) ||
           strcasecmp(device->name, text) == 0;
}

const char *devices_label(char text[static DEVICES_LABEL_MAX], const struct ledger_device *device)
{
    snprintf(text, DEVICES_LABEL_MAX, "%d%s%s", device->ordinal, *device->name ? " " : "",
             device->name);
    return text;
}

const char *devices_space_label(char text[static DEVICES_SPACE_MAX], const char *name)
{
    size_t i = 0;
    for (; name[i] && i < DEVICES_SPACE_MAX - 1; i++)
        text[i] = name[i] == '_' ? ' ' : (char)toupper((unsigned char)name[i]);
    text[i] = '\0';
    return text;
}

static uint64_t most(const struct devices_owner *owner)
{
    uint64_t driver = owner->fact && owner->fact->has_used ? owner->fact->used_bytes : 0;
    return driver > owner->bytes ? driver : owner->bytes;
}

static int by_bytes(const void *a, const void *b)
{
    const struct devices_owner *x = a, *y = b;
    uint64_t size_x = most(x), size_y = most(y);
    if (size_x != size_y)
        return size_x < size_y ? 1 : -1;
    pid_t pid_x = x->process ? x->process->book_pid : (pid_t)x->fact->pid;
    pid_t pid_y = y->process ? y->process->book_pid : (pid_t)y->fact->pid;
    return (pid_x > pid_y) - (pid_x < pid_y);
}

static struct devices_owner *owner_add(struct devices_row *row)
{
    if (row->n_owners == row->room_owners) {
        size_t room = row->room_owners ? row->room_owners * 2 : 4;
        struct devices_owner *owners = reallocarray(row->owners, room, sizeof(*owners));
        if (!owners)
            return NULL;
        row->owners = owners;
        row->room_owners = room;
    }
    struct devices_owner *owner = &row->owners[row->n_owners++];
    *owner = (struct devices_owner){0};
    return owner;
}

/* The owner that `p` is of this device: the last one, or a new one. NULL without memory. */
static struct devices_owner *owner_of(struct devices_row *row, const struct ledger_process *p)
{
    if (row->n_owners && row->owners[row->n_owners - 1].process == p)
        return &row->owners[row->n_owners - 1];
    struct devices_owner *owner = owner_add(row);
    if (owner)
        owner->process = p;
    return owner;
}

/* What one process holds, put to the devices that are shown. `rows` is by the number of the device. */
static int add_holder(struct devices_view *view, struct devices_row *const *rows,
                      const struct ledger_process *p)
{
    bool holds = false, lives = ledger_process_holds(p);
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct ledger_account *a = &p->accounts[i];
        struct devices_row *row = a->device ? rows[a->device->index] : NULL;
        if (!row || !a->valid || a->space > MEMOIR_SPACE_MAX || !a->totals.live_blocks)
            continue;
        holds = true;
        bool own = a->space != MEMOIR_SPACE_SYSTEM;
        if (!lives) {
            sum_add(&view->gone_bytes, own ? a->totals.live_bytes : 0);
            continue;
        }
        struct devices_owner *owner = owner_of(row, p);
        if (!owner)
            return -ENOMEM;
        sum_add(&owner->by_space[a->space], a->totals.live_bytes);
        sum_add(&owner->bytes, own ? a->totals.live_bytes : 0);
        sum_add(&owner->blocks, own ? a->totals.live_blocks : 0);
    }
    view->processes += holds && lives;
    view->gone += holds && !lives;
    return 0;
}

/* ---- what the driver says ---- */

static struct devices_owner *owner_find(struct devices_row *row, size_t n,
                                        const struct nvml_process *fact)
{
    for (size_t i = 0; i < n && fact->is_here; i++) {
        const struct ledger_process *p = row->owners[i].process;
        if (p->valid & LEDGER_HAS_PID && !*p->host && p->pid == (pid_t)fact->pid)
            return &row->owners[i];
    }
    return NULL;
}

/* Processes that the driver counts, with those of the books or beside them. */
static int add_driver(struct devices_row *row, const struct ledger *ledger)
{
    size_t n, with_book = row->n_owners;
    const struct nvml_process *facts = ledger_driver_processes(ledger, row->device, &n);
    row->driver = row->device->driver;
    row->has_unattributed = ledger_driver_unattributed(row->device, &row->unattributed);
    for (size_t i = 0; i < n; i++) {
        struct devices_owner *owner = owner_find(row, with_book, &facts[i]);
        if (!owner)
            owner = owner_add(row);
        if (!owner)
            return -ENOMEM;
        owner->fact = &facts[i];
    }
    return 0;
}

static uint32_t holders(const struct devices_row *row, uint32_t space)
{
    uint32_t n = 0;
    for (size_t i = 0; i < row->n_owners; i++)
        n += row->owners[i].by_space[space] > 0;
    return n;
}

static void add_spaces(struct devices_row *row)
{
    for (uint32_t space = 1; space <= MEMOIR_SPACE_MAX; space++) {
        const struct ledger_capacity *c = &row->device->spaces[space];
        uint64_t capacity = ledger_capacity_for(c, geteuid());
        if (c->space != space || (!capacity && !c->disputed && !c->used && !c->blocks))
            continue;
        struct devices_space *s = &row->spaces[row->n_spaces++];
        *s = (struct devices_space){
            .space = space,
            .used = c->used,
            .capacity = capacity,
            .disputed = c->disputed,
            .blocks = c->blocks,
            .processes = holders(row, space),
        };
        snprintf(s->name, sizeof(s->name), "%s", *c->name ? c->name : ledger_space_name(space));
        if (space == MEMOIR_SPACE_SYSTEM)
            continue;
        row->used += c->used;
        sum_add(&row->blocks, c->blocks);
    }
}

static uint32_t l1_holders(const struct devices_row *row)
{
    uint32_t n = 0;
    for (size_t i = 0; i < row->n_owners; i++) {
        bool holds = false;
        for (int part = 0; part < DEVICES_L1_PARTS; part++)
            holds |= row->owners[i].by_space[l1_spaces[part]] > 0;
        n += holds;
    }
    return n;
}

static void add_l1(struct devices_row *row)
{
    row->l1 = (struct devices_space){.name = "l1", .processes = l1_holders(row)};
    for (int part = 0; part < DEVICES_L1_PARTS; part++) {
        struct devices_space *to = &row->l1_parts[part];
        snprintf(to->name, sizeof(to->name), "%s", l1_names[part]);
        to->space = l1_spaces[part];
        for (size_t i = 0; i < row->n_spaces; i++) {
            const struct devices_space *s = &row->spaces[i];
            if (s->space != l1_spaces[part])
                continue;
            row->has_l1 = true;
            to->used = s->used;
            to->blocks = s->blocks;
            to->processes = s->processes;
            row->l1.used += s->used;
            sum_add(&row->l1.blocks, s->blocks);
            if (s->space == MEMOIR_SPACE_L1) {
                row->l1.capacity = s->capacity;
                row->l1.disputed = s->disputed;
            }
        }
    }
}

static int by_number(const void *a, const void *b)
{
    const struct ledger_device *x = ((const struct devices_row *)a)->device;
    const struct ledger_device *y = ((const struct devices_row *)b)->device;
    int host = strcmp(x->host, y->host);
    if (host)
        return host;
    if (x->ordinal != y->ordinal)
        return x->ordinal < y->ordinal ? -1 : 1;
    int name = strcmp(x->name, y->name);
    return name ? name : strcmp(x->uid, y->uid);
}

int devices_view_take(const struct ledger *ledger, const char *device,
                      struct devices_view *ret_view)
{
    size_t n_devices, n_processes;
    struct ledger_device *const *devices = ledger_devices(ledger, &n_devices);
    struct ledger_process *const *processes = ledger_processes(ledger, &n_processes);
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {.rows = calloc(n_devices + 1, sizeof(*view.rows))};
    MEMOIR_CLEANUP(freep)
    struct devices_row **rows = calloc(n_devices + 1, sizeof(struct devices_row *));
    if (!view.rows || !rows)
        return -ENOMEM;
    for (size_t i = 0; i < n_devices; i++) {
        if (device && !devices_match(devices[i], device))
            continue;
        rows[i] = &view.rows[view.n++];
        rows[i]->device = devices[i];
    }
    for (size_t i = 0; i < n_processes; i++) {
        int r = add_holder(&view, rows, processes[i]);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < view.n; i++) {
        struct devices_row *row = &view.rows[i];
        int r = add_driver(row, ledger);
        if (r < 0)
            return r;
        if (row->n_owners)
            qsort(row->owners, row->n_owners, sizeof(*row->owners), by_bytes);
        add_spaces(row);
        add_l1(row);
    }
    qsort(view.rows, view.n, sizeof(*view.rows), by_number);
    view.driver_version = ledger_driver_version(ledger);
    *ret_view = view;
    view = (struct devices_view){0};
    return 0;
}

void devices_view_release(struct devices_view *view)
{
    for (size_t i = 0; i < view->n; i++)
        free(view->rows[i].owners);
    free(view->rows);
    *view = (struct devices_view){0};
}

static double percent(const struct devices_space *s)
{
    return s->capacity ? 100.0 * (double)s->used / (double)s->capacity : 0;
}

struct devices_space devices_driver_space(const struct devices_row *row)
{
    struct devices_space s = {.name = "driver", .space = MEMOIR_SPACE_DRAM};
    if (row->driver && row->driver->valid & NVML_HAS_USED)
        s.used = row->driver->used_bytes;
    if (row->driver && row->driver->valid & NVML_HAS_TOTAL)
        s.capacity = row->driver->total_bytes;
    return s;
}

double devices_fullest(const struct devices_view *view)
{
    double fullest = 0;
    for (size_t d = 0; d < view->n; d++) {
        const struct devices_row *row = &view->rows[d];
        for (size_t i = 0; i < row->n_spaces; i++)
            if (percent(&row->spaces[i]) > fullest)
                fullest = percent(&row->spaces[i]);
        if (percent(&row->l1) > fullest)
            fullest = percent(&row->l1);
        struct devices_space driver = devices_driver_space(row);
        if (percent(&driver) > fullest)
            fullest = percent(&driver);
    }
    return fullest;
}
