/* See log_table.h. */
#include "cli/log_table.h"

#include <inttypes.h>
#include <stdio.h>

#include "ledger/changes.h"
#include "query/query.h"

typedef struct query_value value;

static const struct log_change *log_of(const struct query_row *row)
{
    return row->custom;
}

static const struct change *change_of(const struct query_row *row)
{
    return log_of(row)->change;
}

static void set_unless_empty(value *ret, const char *text)
{
    if (text && *text)
        query_set_text(ret, text);
}

static void get_time(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    query_set_number(ret, log_of(row)->real_ns);
}

static void get_kind(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    static const char *const words[] = {
        [CHANGE_ALLOC] = "alloc", [CHANGE_FREE] = "free", [CHANGE_UNSEEN] = "unseen",
        [CHANGE_BEGIN] = "begin", [CHANGE_GONE] = "gone", [CHANGE_HELD] = "held",
    };
    query_set_text(ret, words[change_of(row)->kind]);
}

static void get_pid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    if (change_of(row)->process->pid)
        query_set_number(ret, (uint64_t)change_of(row)->process->pid);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_uid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    query_set_number(ret, change_of(row)->process->uid);
}

static void get_program(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, value *ret)
{
    query_set_text(ret, change_of(row)->process->name);
}

static void get_user(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    set_unless_empty(ret, change_of(row)->process->user);
}

/* ---- where ---- */

static void get_device(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    static _Thread_local char text[96];
    const struct change_place *place = change_of(row)->place;
    if (!place)
        return;
    if (!place->host)
        snprintf(text, sizeof(text), "%d %s", place->ordinal, place->name);
    query_set_text(ret, place->host ? "host" : text);
}

static void get_ordinal(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, value *ret)
{
    const struct change_place *place = change_of(row)->place;
    if (place && !place->host && place->ordinal >= 0)
        query_set_number(ret, (uint64_t)place->ordinal);
}

enum { PLACE_NAME, PLACE_UID, PLACE_BUS };

static void get_place(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, value *ret)
{
    const struct change_place *place = change_of(row)->place;
    if (place && !place->host)
        set_unless_empty(ret, field->column->arg == PLACE_NAME  ? place->name
                              : field->column->arg == PLACE_UID ? place->uid
                                                                : place->bus);
}

static void get_space(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, value *ret)
{
    if (change_of(row)->place)
        query_set_text(ret, ledger_space_name(change_of(row)->space));
}

/* ---- what ---- */

static bool is_block(const struct change *c)
{
    return c->kind == CHANGE_ALLOC || c->kind == CHANGE_FREE;
}

static void get_id(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, value *ret)
{
    static _Thread_local char text[24];
    if (!is_block(change_of(row)))
        return;
    snprintf(text, sizeof(text), "0x%" PRIx64, change_of(row)->id);
    query_set_text(ret, text);
}

enum { NUMBER_BYTES, NUMBER_BLOCKS, NUMBER_FREED, NUMBER_FREED_BLOCKS, NUMBER_TOTAL };

static void get_number(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    const struct change *c = change_of(row);
    bool unseen = c->kind == CHANGE_UNSEEN;
    switch (field->column->arg) {
    case NUMBER_BYTES:
        if (c->kind != CHANGE_BEGIN)
            query_set_number(ret, unseen ? c->came_bytes : c->bytes);
        break;
    case NUMBER_BLOCKS:
        if (c->kind != CHANGE_BEGIN)
            query_set_number(ret, unseen ? c->came : is_block(c) ? 1 : c->blocks);
        break;
    case NUMBER_FREED:
        if (unseen)
            query_set_number(ret, c->went_bytes);
        break;
    case NUMBER_FREED_BLOCKS:
        if (unseen)
            query_set_number(ret, c->went);
        break;
    case NUMBER_TOTAL:
        if (c->place)
            query_set_number(ret, c->place->bytes[c->space]);
        break;
    }
}

static void get_tag(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    if (is_block(change_of(row)))
        set_unless_empty(ret, log_of(row)->tag(log_of(row)));
}

static void get_cause(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, value *ret)
{
    if (change_of(row)->kind == CHANGE_GONE)
        set_unless_empty(ret, log_of(row)->cause(log_of(row)));
}

static const struct query_column columns[] = {
    {"time", "when it was seen", QUERY_TIME, QUERY_MAX, .get = get_time},
    {"kind",
     "begin (a process keeps a book now), alloc, free, unseen (blocks that came, or went, between two looks), gone (a "
     "process no longer counts), held (what it held in one space)",
     QUERY_TEXT, .get = get_kind},
    {"pid", "process id as seen from here", QUERY_NUMBER, QUERY_SAME, .get = get_pid},
    {"program", NULL, QUERY_TEXT, .get = get_program},
    {"user", NULL, QUERY_TEXT, .get = get_user},
    {"uid", NULL, QUERY_NUMBER, QUERY_SAME, .get = get_uid},
    {"device", "number and name of the device, or host", QUERY_TEXT, .get = get_device},
    {"ordinal", NULL, QUERY_NUMBER, QUERY_SAME, .get = get_ordinal},
    {"device_name", NULL, QUERY_TEXT, .arg = PLACE_NAME, .get = get_place},
    {"device_uid", NULL, QUERY_TEXT, .arg = PLACE_UID, .get = get_place},
    {"device_bus", NULL, QUERY_TEXT, .arg = PLACE_BUS, .get = get_place},
    {"space", NULL, QUERY_TEXT, .get = get_space},
    {"id", NULL, QUERY_TEXT, .get = get_id},
    {"bytes", "size of the block; of what was held; of all that came, where it is unseen",
     QUERY_BYTES, .arg = NUMBER_BYTES, .get = get_number},
    {"blocks", "how many blocks it is about", QUERY_NUMBER, .arg = NUMBER_BLOCKS,
     .get = get_number},
    {"freed", "unseen: size of all that went", QUERY_BYTES, .arg = NUMBER_FREED, .get = get_number},
    {"freed_blocks", "unseen: how many went", QUERY_NUMBER, .arg = NUMBER_FREED_BLOCKS,
     .get = get_number},
    {"tag", NULL, QUERY_TEXT, .get = get_tag},
    {"total", "what all processes hold there after this change", QUERY_BYTES, QUERY_MAX,
     .arg = NUMBER_TOTAL, .get = get_number},
    {"cause", "gone: how it ended, where a daemon tells", QUERY_TEXT, .get = get_cause},
    {0},
};

const struct query_table log_table = {
    .name = "changes",
    .help = "one row for each block that comes or goes, and for each process that begins or ends",
    .columns = columns,
    .show = "time,kind,pid,program,device,ordinal,device_name,device_uid,space,id,bytes,blocks,"
            "freed,freed_blocks,tag,total,cause",
    .show_by = "count,bytes",
};
