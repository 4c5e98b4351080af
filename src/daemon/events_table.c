/* The table `events`. See events_table.h. */
#include "daemon/events_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/asking.h"
#include "daemon/events.h"
#include "query/query.h"

static const struct event *event_of(const struct query_row *row)
{
    return row->custom;
}

enum { TEXT_KIND, TEXT_PROGRAM, TEXT_TEXT };

static void get_text(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct event *event = event_of(row);
    const char *text = field->column->arg == TEXT_KIND      ? event_kind_name(event->kind)
                       : field->column->arg == TEXT_PROGRAM ? event->program
                                                            : event->text;
    if (*text)
        query_set_text(ret, text);
}

static void get_user(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct event *event = event_of(row);
    if (event->pid)
        query_set_user(ret, world, event->uid);
}

enum { NUMBER_SEQ, NUMBER_TIME, NUMBER_PID, NUMBER_UID, NUMBER_BYTES };

static void get_number(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct event *event = event_of(row);
    switch (field->column->arg) {
    case NUMBER_SEQ:
        query_set_number(ret, event->id);
        break;
    case NUMBER_TIME:
        query_set_number(ret, event->real_ns);
        break;
    case NUMBER_PID:
        if (event->pid)
            query_set_number(ret, (uint64_t)event->pid);
        break;
    case NUMBER_UID:
        if (event->pid)
            query_set_number(ret, event->uid);
        break;
    case NUMBER_BYTES:
        if (event->has_bytes)
            query_set_number(ret, event->bytes);
        break;
    }
}

static const struct query_column columns[] = {
    {"seq", "number of the event; only grows, also from one memoird to the next", QUERY_NUMBER,
     QUERY_MAX, .arg = NUMBER_SEQ, .get = get_number},
    {"time", "when it happened", QUERY_TIME, QUERY_MAX, .arg = NUMBER_TIME, .get = get_number},
    {"kind", "came, went, killed, oom, leak, device or tracking", QUERY_TEXT, .arg = TEXT_KIND,
     .get = get_text},
    {"node", "name of the machine", QUERY_TEXT, .get = query_get_node},
    {"pid", "process id", QUERY_NUMBER, QUERY_SAME, .arg = NUMBER_PID, .get = get_number},
    {"program", "name of the program", QUERY_TEXT, .arg = TEXT_PROGRAM, .get = get_text},
    {"user", "who owns the process", QUERY_TEXT, .get = get_user},
    {"uid", "the same as a number", QUERY_NUMBER, QUERY_SAME, .arg = NUMBER_UID, .get = get_number},
    {"bytes", "that it held, or had at most", QUERY_BYTES, .arg = NUMBER_BYTES, .get = get_number},
    {"message", "what happened, for people", QUERY_TEXT, .arg = TEXT_TEXT, .get = get_text},
    {0},
};

/* What the viewer may not know of an event is left out of the row, by the one rule of events. */
static int give(struct query_scan *scan, const struct event *event,
                const struct asking_viewer *viewer)
{
    struct event reduced;
    if (!event_visible(event, viewer))
        return 0;
    if (!event_detailed(event, viewer)) {
        reduced = event_reduced(event);
        event = &reduced;
    }
    return scan->each(scan, &(struct query_row){.custom = event});
}

static int scan(struct query_scan *scan)
{
    const struct query_world *world = scan->world;
    struct asking_viewer viewer = {.sees_all = world->sees_all, .uid = world->viewer_uid};
    if (world->events && world->events->one)
        return give(scan, world->events->one, &viewer);
    if (!world->events || !world->events->events)
        return 0;
    MEMOIR_CLEANUP(freep)
    const struct event **list = calloc(EVENTS_KEPT, sizeof(struct event *));
    if (!list)
        return -ENOMEM;
    size_t n = events_read(world->events->events, &viewer, 0, list, EVENTS_KEPT);
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++)
        r = give(scan, list[i], &viewer);
    return r;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = event_of(row)->uid;
    return event_of(row)->pid != 0;
}

const struct query_table events_table = {
    .name = "events",
    .help = "one row for each event: processes that came, went or were killed, leaks, devices",
    .columns = columns,
    .needs = QUERY_NEEDS_EVENTS,
    .show = "seq,time,kind,pid,program,bytes,message",
    .show_by = "count,time",
    .sort = "+seq",
    .scan = scan,
    .owner = owner,
};
