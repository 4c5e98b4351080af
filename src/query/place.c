/* Columns that tell on which device and in which space memory is; several tables have them. */
#include <stdio.h>

#include <memoir/memoir.h>

#include "ledger/ledger.h"
#include "query/table_process.h"

void place_device(const struct query_world *world, const struct query_row *row,
                  const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[96];
    if (!row->device) {
        query_set_text(ret, "host");
        return;
    }
    snprintf(text, sizeof(text), "%d %s", row->device->ordinal, row->device->name);
    query_set_text(ret, text);
}

void place_device_id(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[LEDGER_DEVICE_ID_MAX];
    const struct ledger_device *d = row->device;
    if (!d)
        return;
    const char *node = d->host[0] ? d->host : world->node ? world->node : "";
    query_set_text(ret, ledger_device_id(text, d->uid, d->bus, d->ordinal, d->name, node));
}

void place_ordinal(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    if (row->device && row->device->ordinal >= 0)
        query_set_number(ret, (uint64_t)row->device->ordinal);
}

void place_text(const struct query_world *world, const struct query_row *row,
                const struct query_field *field, struct query_value *ret)
{
    const struct ledger_device *d = row->device;
    const char *text = !d                                 ? ""
                       : field->column->arg == PLACE_NAME ? d->name
                       : field->column->arg == PLACE_UID  ? d->uid
                                                          : d->bus;
    if (*text)
        query_set_text(ret, text);
}

void place_kind(const struct query_world *world, const struct query_row *row,
                const struct query_field *field, struct query_value *ret)
{
    static const char *const names[] = {
        [MEMOIR_DEVICE_OTHER] = "other",
        [MEMOIR_DEVICE_GPU] = "gpu",
        [MEMOIR_DEVICE_NPU] = "npu",
        [MEMOIR_DEVICE_FPGA] = "fpga",
        [MEMOIR_DEVICE_SIMULATED] = "simulated",
    };
    if (row->device)
        query_set_text(ret, row->device->kind < sizeof(names) / sizeof(names[0])
                                ? names[row->device->kind]
                                : "other");
}

void place_space(const struct query_world *world, const struct query_row *row,
                 const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret,
                   ledger_space_name(row->account ? row->account->space : row->capacity->space));
}

void query_set_node(struct query_value *value, const struct query_world *world, const char *node)
{
    if (node && *node)
        query_set_text(value, node);
    else if (world->node)
        query_set_text(value, world->node);
}

void query_get_node(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    query_set_node(ret, world, NULL);
}

void query_set_user(struct query_value *value, const struct query_world *world, uint32_t uid)
{
    static _Thread_local char number[16];
    const char *name = world->user_name ? world->user_name(uid, world->context) : NULL;
    if (!name)
        snprintf(number, sizeof(number), "%u", uid);
    query_set_text(value, name ? name : number);
}

void query_get_one(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, 1);
}
