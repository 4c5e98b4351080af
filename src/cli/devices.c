/* Devices, their spaces and who holds them, from tables of the query core. See devices.h. */
#include "cli/devices.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sum.h"
#include "cli/view.h"
#include "ledger/ledger.h"
#include "query/query.h"

enum { WHERE_MAX = 8192 };

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

const char *devices_space_label(char text[static DEVICES_SPACE_MAX], const char *name)
{
    size_t i = 0;
    for (; name[i] && i < DEVICES_SPACE_MAX - 1; i++)
        text[i] = name[i] == '_' ? ' ' : (char)toupper((unsigned char)name[i]);
    text[i] = '\0';
    return text;
}

/* ---- asking ---- */

struct taking {
    struct devices_view *view;
    const void *process; /* whose account was the last one: rows of a process come together */
    size_t room;
};

static bool known(const struct query_value *value)
{
    return value->state & QUERY_KNOWN;
}

/* Rows whose texts are not known have an empty one. */
static void copy(char *to, size_t size, const struct query_value *value)
{
    snprintf(to, size, "%.*s", known(value) ? (int)value->len : 0, value->text ? value->text : "");
}

static uint32_t space_of(const struct query_value *value)
{
    for (uint32_t space = 1; space <= MEMOIR_SPACE_MAX; space++)
        if (known(value) && strcmp(ledger_space_name(space), value->text) == 0)
            return space;
    return 0;
}

static int ask(const char *table, const char *where, const char *show, struct ledger *ledger,
               query_each_fn *each, struct taking *taking)
{
    /* Without a name for this machine, only devices of others have a node. */
    struct query_world world = {
        .ledger = ledger, .sees_all = true, .viewer_uid = geteuid(), .node = ""};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_error error;
    int r = query_new(&(struct query_spec){.table = table, .where = where, .show = show}, &query,
                      &error);
    return r < 0 ? r : query_each(query, &world, each, taking);
}

static struct devices_row *row_find(const struct devices_view *view,
                                    const struct query_value *device_id)
{
    for (size_t i = 0; i < view->n && known(device_id); i++)
        if (strcmp(view->rows[i].id, device_id->text) == 0)
            return &view->rows[i];
    return NULL;
}

/* ---- spaces ---- */

enum {
    SPACE_DEVICE,
    SPACE_LABEL,
    SPACE_NODE,
    SPACE_ORDINAL,
    SPACE_NAME,
    SPACE_KIND,
    SPACE_SPACE,
    SPACE_USED,
    SPACE_CAPACITY,
    SPACE_DISPUTED,
    SPACE_BLOCKS,
    SPACE_DRIVER_USED,
    SPACE_DRIVER_RESERVED,
    SPACE_UNATTRIBUTED,
};
static const char space_columns[] =
    "device_id,device,node,ordinal,device_name,device_kind,space,used,capacity,disputed,blocks,"
    "driver.used,driver.reserved,unattributed";

static struct devices_row *row_add(struct taking *taking, const struct query_value *v)
{
    struct devices_view *view = taking->view;
    if (view->n == taking->room) {
        size_t room = taking->room ? taking->room * 2 : 8;
        struct devices_row *rows = reallocarray(view->rows, room, sizeof(*rows));
        if (!rows)
            return NULL;
        view->rows = rows;
        taking->room = room;
    }
    struct devices_row *row = &view->rows[view->n++];
    *row = (struct devices_row){
        .ordinal = known(&v[SPACE_ORDINAL]) ? (int32_t)v[SPACE_ORDINAL].number : -1,
        .gpu = known(&v[SPACE_KIND]) && strcmp(v[SPACE_KIND].text, "gpu") == 0};
    copy(row->id, sizeof(row->id), &v[SPACE_DEVICE]);
    copy(row->label, sizeof(row->label), &v[SPACE_LABEL]);
    copy(row->name, sizeof(row->name), &v[SPACE_NAME]);
    copy(row->node, sizeof(row->node), &v[SPACE_NODE]);
    return row;
}

static void take_driver(struct devices_row *row, const struct query_value *v)
{
    const struct query_value *used = &v[SPACE_DRIVER_USED];
    if (!used->state)
        return;
    row->driver = (struct devices_driver){.present = true,
                                          .has_used = known(used),
                                          .used = used->number,
                                          .capacity = v[SPACE_CAPACITY].number,
                                          .has_reserved = known(&v[SPACE_DRIVER_RESERVED]),
                                          .reserved = v[SPACE_DRIVER_RESERVED].number,
                                          .has_unattributed = known(&v[SPACE_UNATTRIBUTED]),
                                          .unattributed = v[SPACE_UNATTRIBUTED].number};
}

static int take_space(const struct query_row *unused, const struct query_value *v, void *context)
{
    struct taking *taking = context;
    struct devices_row *row = row_find(taking->view, &v[SPACE_DEVICE]);
    if (!row)
        row = row_add(taking, v);
    if (!row)
        return -ENOMEM;
    take_driver(row, v);
    struct devices_space space = {
        .space = space_of(&v[SPACE_SPACE]),
        .used = v[SPACE_USED].number,
        .capacity = v[SPACE_CAPACITY].number,
        .disputed = v[SPACE_DISPUTED].number,
        .blocks = v[SPACE_BLOCKS].number,
    };
    copy(space.name, sizeof(space.name), &v[SPACE_SPACE]);
    bool empty = !space.capacity && !space.disputed && !space.used && !space.blocks;
    if (!space.space || empty || row->n_spaces > MEMOIR_SPACE_MAX)
        return 0;
    row->spaces[row->n_spaces++] = space;
    if (space.space == MEMOIR_SPACE_SYSTEM)
        return 0;
    sum_add(&row->used, space.used);
    sum_add(&row->blocks, space.blocks);
    return 0;
}

/* ---- who holds them ---- */

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

enum {
    HOLDER_DEVICE,
    HOLDER_SPACE,
    HOLDER_PID,
    HOLDER_PROGRAM,
    HOLDER_HOLDS,
    HOLDER_BYTES,
    HOLDER_BLOCKS,
};
static const char holder_columns[] = "device_id,space,pid,program,holds,bytes,blocks";

static int take_holder(const struct query_row *row, const struct query_value *v, void *context)
{
    struct taking *taking = context;
    struct devices_view *view = taking->view;
    struct devices_row *device = row_find(view, &v[HOLDER_DEVICE]);
    uint32_t space = space_of(&v[HOLDER_SPACE]);
    if (!device || !space)
        return 0;
    bool lives = v[HOLDER_HOLDS].number, own = space != MEMOIR_SPACE_SYSTEM;
    bool first = taking->process != row->process;
    taking->process = row->process;
    view->processes += first && lives;
    view->gone += first && !lives;
    if (!lives) {
        sum_add(&view->gone_bytes, own ? v[HOLDER_BYTES].number : 0);
        return 0;
    }
    struct devices_owner *owner = device->n_owners ? &device->owners[device->n_owners - 1] : NULL;
    if (!owner || owner->process != row->process) {
        owner = owner_add(device);
        if (!owner)
            return -ENOMEM;
        owner->process = row->process;
        owner->has_book = true;
        owner->pid = known(&v[HOLDER_PID]) ? (pid_t)v[HOLDER_PID].number : 0;
        copy(owner->program, sizeof(owner->program), &v[HOLDER_PROGRAM]);
    }
    sum_add(&owner->by_space[space], v[HOLDER_BYTES].number);
    sum_add(&owner->bytes, own ? v[HOLDER_BYTES].number : 0);
    sum_add(&owner->blocks, own ? v[HOLDER_BLOCKS].number : 0);
    return 0;
}

enum { COUNTED_DEVICE, COUNTED_PID, COUNTED_DRIVER_PID, COUNTED_PROGRAM, COUNTED_BYTES };
static const char counted_columns[] = "device_id,pid,driver_pid,program,driver";

/* Processes that the driver counts, with those of the books or beside them. */
static int take_counted(const struct query_row *unused, const struct query_value *v, void *context)
{
    struct taking *taking = context;
    struct devices_row *device = row_find(taking->view, &v[COUNTED_DEVICE]);
    if (!device)
        return 0;
    struct devices_owner *owner = NULL;
    pid_t pid = known(&v[COUNTED_PID]) ? (pid_t)v[COUNTED_PID].number : 0;
    for (size_t i = 0; pid && i < device->n_owners && !owner; i++)
        if (device->owners[i].has_book && device->owners[i].pid == pid)
            owner = &device->owners[i];
    if (!owner) {
        owner = owner_add(device);
        if (!owner)
            return -ENOMEM;
        owner->pid = pid;
        copy(owner->program, sizeof(owner->program), &v[COUNTED_PROGRAM]);
    }
    owner->driver_pid = (uint32_t)v[COUNTED_DRIVER_PID].number;
    owner->has_driver = known(&v[COUNTED_BYTES]);
    owner->driver = v[COUNTED_BYTES].number;
    return 0;
}

/* ---- sums and order ---- */

static uint64_t most(const struct devices_owner *owner)
{
    uint64_t driver = owner->has_driver ? owner->driver : 0;
    return driver > owner->bytes ? driver : owner->bytes;
}

static int by_bytes(const void *a, const void *b)
{
    const struct devices_owner *x = a, *y = b;
    uint64_t size_x = most(x), size_y = most(y);
    if (size_x != size_y)
        return size_x < size_y ? 1 : -1;
    uint32_t pid_x = x->pid ? (uint32_t)x->pid : x->driver_pid;
    uint32_t pid_y = y->pid ? (uint32_t)y->pid : y->driver_pid;
    return (pid_x > pid_y) - (pid_x < pid_y);
}

static void add_l1(struct devices_row *row)
{
    snprintf(row->l1.name, sizeof(row->l1.name), "l1");
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
            sum_add(&row->l1.used, s->used);
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
    const struct devices_row *x = a, *y = b;
    int node = strcmp(x->node, y->node);
    if (node)
        return node;
    if (x->ordinal != y->ordinal)
        return x->ordinal < y->ordinal ? -1 : 1;
    int name = strcmp(x->name, y->name);
    return name ? name : strcmp(x->id, y->id);
}

int devices_view_take(struct ledger *ledger, const char *device, struct devices_view *ret_view)
{
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {0};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX), holders = BUFFER_INIT(WHERE_MAX);
    struct taking taking = {.view = &view};
    if (device)
        view_test_device(&where, device);
    buffer_printf(&holders, "blocks>0 and state!=none"); /* those that are gone, too */
    if (device)
        view_test_device(&holders, device);
    int r = where.error ? where.error : holders.error;
    if (r == 0)
        r = ask("devices", buffer_string(&where), space_columns, ledger, take_space, &taking);
    if (r == 0)
        r = ask("accounts", buffer_string(&holders), holder_columns, ledger, take_holder, &taking);
    if (r == 0)
        r = ask("device_processes", buffer_string(&where), counted_columns, ledger, take_counted,
                &taking);
    buffer_release(&holders);
    if (r < 0)
        return r;
    for (size_t i = 0; i < view.n; i++) {
        struct devices_row *row = &view.rows[i];
        if (row->n_owners)
            qsort(row->owners, row->n_owners, sizeof(*row->owners), by_bytes);
        add_l1(row);
    }
    if (view.n)
        qsort(view.rows, view.n, sizeof(*view.rows), by_number);
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
    return (struct devices_space){.name = "driver",
                                  .space = MEMOIR_SPACE_DRAM,
                                  .used = row->driver.used,
                                  .capacity = row->driver.capacity};
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
