/* `memoir devices` for programs: CSV and JSON, in exact units. See devices.h. */
#include <stdio.h>

#include "base/buffer.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/table.h"
#include "ledger/ledger.h"
#include "nvml/facts.h"

enum {
    COL_DEVICE,
    COL_DEVICE_NAME,
    COL_DEVICE_UID,
    COL_SPACE,
    COL_USED,
    COL_CAPACITY,
    COL_PERCENT,
    COL_BLOCKS,
    COL_PROCESSES,
    COL_BUS,
    COL_HOST,
    COL_DRIVER,
    COL_UNATTRIBUTED,
};

const struct column devices_columns[] = {
    [COL_DEVICE] = COLUMN_DEVICE,
    [COL_DEVICE_NAME] = COLUMN_DEVICE_NAME,
    [COL_DEVICE_UID] = COLUMN_DEVICE_UID,
    [COL_SPACE] = {"space", "SPACE",
                   "kind of memory; l1_total is the sum of l1, l1_small, cb and kernel",
                   COLUMN_TEXT},
    [COL_USED] = {"used_bytes", "USED", "what living processes hold there", COLUMN_BYTES},
    [COL_CAPACITY] = {"capacity_bytes", "CAPACITY",
                      "size of the space, as the driver or else the processes tell; absent where "
                      "none does",
                      COLUMN_BYTES},
    [COL_PERCENT] = {"used_percent", "USED", "used of capacity; absent where that is not known",
                     COLUMN_TEXT},
    [COL_BLOCKS] = {"blocks", "BLOCKS", "live blocks", COLUMN_NUMBER},
    [COL_PROCESSES] = {"processes", "PROCESSES", "living processes that hold something there",
                       COLUMN_NUMBER},
    [COL_BUS] = {"device_bus", NULL, "PCI address of the device", COLUMN_TEXT},
    [COL_HOST] = {"host", NULL, "the machine, where it is another one", COLUMN_TEXT},
    [COL_DRIVER] =
        {"driver_used_bytes", "DRIVER",
         "what the driver counts as used, of all processes; space dram of NVIDIA devices",
         COLUMN_BYTES},
    [COL_UNATTRIBUTED] = {"unattributed_bytes", "UNATTRIBUTED", "of it, more than is accounted",
                          COLUMN_BYTES},
    {0},
};

static void csv_row(struct table *t, const struct devices_row *row, const struct devices_space *s,
                    const char *space)
{
    const struct ledger_device *device = row->device;
    char text[BAR_PERCENT_MAX];
    table_row(t);
    table_set_device(t, COL_DEVICE, device->ordinal, device->name, device->uid);
    table_set_text(t, COL_SPACE, space);
    table_set_number(t, COL_USED, s->used);
    if (s->capacity) {
        table_set_number(t, COL_CAPACITY, s->capacity);
        snprintf(text, sizeof(text), "%.2f", 100.0 * (double)s->used / (double)s->capacity);
        table_set_text(t, COL_PERCENT, text);
    }
    table_set_number(t, COL_BLOCKS, s->blocks);
    table_set_number(t, COL_PROCESSES, s->processes);
    if (*device->bus)
        table_set_text(t, COL_BUS, device->bus);
    if (*device->host)
        table_set_text(t, COL_HOST, device->host);
    if (s->space != MEMOIR_SPACE_DRAM || !row->has_unattributed)
        return;
    table_set_number(t, COL_DRIVER, row->driver->used_bytes);
    table_set_number(t, COL_UNATTRIBUTED, row->unattributed);
}

int devices_print_csv(const struct devices_view *view, bool header, struct buffer *out)
{
    struct table t;
    table_init(&t, devices_columns);
    for (size_t d = 0; d < view->n; d++) {
        const struct devices_row *row = &view->rows[d];
        for (size_t i = 0; i < row->n_spaces; i++)
            csv_row(&t, row, &row->spaces[i], ledger_space_name(row->spaces[i].space));
        if (row->has_l1)
            csv_row(&t, row, &row->l1, "l1_total");
    }
    struct table_layout layout = {.header = header};
    int r = table_print_csv(&t, &layout, out);
    table_release(&t);
    return r;
}

static void json_space(struct json *json, const struct devices_space *s)
{
    if (s->space) {
        json_field_string(json, "space", ledger_space_name(s->space));
        json_field_string(json, "name", s->name);
    }
    json_field_u64(json, "used_bytes", s->used);
    if (s->capacity) {
        json_field_u64(json, "capacity_bytes", s->capacity);
        json_field_double(json, "used_percent", 100.0 * (double)s->used / (double)s->capacity);
    } else {
        json_field_null(json, "capacity_bytes");
        json_field_null(json, "used_percent");
    }
    json_field_bool(json, "capacity_disputed", s->disputed);
    json_field_u64(json, "blocks", s->blocks);
    json_field_u64(json, "processes", s->processes);
}

static void json_text(struct json *json, const char *key, const char *text)
{
    if (*text)
        json_field_string(json, key, text);
    else
        json_field_null(json, key);
}

static void json_number(struct json *json, const char *key, bool known, uint64_t number)
{
    if (known)
        json_field_u64(json, key, number);
    else
        json_field_null(json, key);
}

static void json_who(struct json *json, const struct ledger_process *p,
                     const struct nvml_process *fact)
{
    bool here = fact && fact->is_here;
    bool has_pid = p ? p->valid & LEDGER_HAS_PID : here;
    json_number(json, "pid", has_pid, p ? (uint64_t)p->pid : fact->pid);
    json_text(json, "program", p ? p->name : here ? fact->comm : "");
    json_number(json, "uid", p || here, p ? p->uid : fact->uid);
    json_number(json, "driver_pid", fact, fact ? fact->pid : 0);
}

static void json_driver(struct json *json, const struct devices_row *row, const char *version)
{
    const struct nvml_device *d = row->driver;
    json_key(json, "driver");
    if (!d) {
        json_null(json);
        return;
    }
    json_object_begin(json);
    json_text(json, "version", version);
    json_number(json, "used_bytes", d->valid & NVML_HAS_USED, d->used_bytes);
    json_number(json, "reserved_bytes", d->valid & NVML_HAS_RESERVED, d->reserved_bytes);
    json_number(json, "capacity_bytes", d->valid & NVML_HAS_TOTAL, d->total_bytes);
    json_number(json, "unattributed_bytes", row->has_unattributed, row->unattributed);
    json_object_end(json);
}

static void json_owner(struct json *json, const struct devices_owner *owner)
{
    const struct ledger_process *p = owner->process;
    const struct nvml_process *fact = owner->fact;
    json_object_begin(json);
    json_who(json, p, fact);
    json_number(json, "bytes", p, owner->bytes);
    json_number(json, "blocks", p, owner->blocks);
    json_number(json, "driver_bytes", fact && fact->has_used, fact ? fact->used_bytes : 0);
    json_key(json, "spaces");
    json_object_begin(json);
    for (uint32_t space = 0; space <= MEMOIR_SPACE_MAX; space++)
        if (owner->by_space[space])
            json_field_u64(json, ledger_space_name(space), owner->by_space[space]);
    json_object_end(json);
    json_object_end(json);
}

static void json_device(struct json *json, const struct devices_row *row, const char *version)
{
    const struct ledger_device *d = row->device;
    json_object_begin(json);
    if (d->ordinal >= 0)
        json_field_i64(json, "device", d->ordinal);
    else
        json_field_null(json, "device");
    json_field_string(json, "device_name", d->name);
    json_text(json, "device_uid", d->uid);
    json_text(json, "device_bus", d->bus);
    json_text(json, "host", d->host);
    json_field_u64(json, "used_bytes", row->used);
    json_field_u64(json, "blocks", row->blocks);
    json_field_u64(json, "processes", row->n_owners);
    json_driver(json, row, version);
    json_key(json, "spaces");
    json_array_begin(json);
    for (size_t i = 0; i < row->n_spaces; i++) {
        json_object_begin(json);
        json_space(json, &row->spaces[i]);
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "l1_total");
    if (row->has_l1) {
        json_object_begin(json);
        json_space(json, &row->l1);
        json_field_u64(json, "buffers_bytes", row->l1_parts[DEVICES_L1_BUFFERS].used);
        json_field_u64(json, "cb_bytes", row->l1_parts[DEVICES_L1_CBS].used);
        json_field_u64(json, "kernel_bytes", row->l1_parts[DEVICES_L1_KERNELS].used);
        json_field_u64(json, "l1_small_bytes", row->l1_parts[DEVICES_L1_SMALL].used);
        json_object_end(json);
    } else {
        json_null(json);
    }
    json_key(json, "owners");
    json_array_begin(json);
    for (size_t i = 0; i < row->n_owners; i++)
        json_owner(json, &row->owners[i]);
    json_array_end(json);
    json_object_end(json);
}

int devices_print_json(const struct devices_view *view, struct buffer *out)
{
    struct json json;
    command_json_begin(&json, out, "memoir.devices/1");
    json_key(&json, "devices");
    json_array_begin(&json);
    for (size_t d = 0; d < view->n; d++)
        json_device(&json, &view->rows[d], view->driver_version);
    json_array_end(&json);
    json_field_u64(&json, "gone_processes", view->gone);
    json_field_u64(&json, "gone_bytes", view->gone_bytes);
    json_object_end(&json);
    buffer_append_char(out, '\n');
    return json_finish(&json);
}
