/* The table `events`: what happened lately, one row for each event. `seq > N` is the cursor of a question that is
 * repeated. memoird registers it; world.events is a struct events_world. */
#pragma once

struct event;
struct events;
struct query_table;

struct events_world {
    const struct events *events; /* NULL: none */
    const struct event *one;     /* this event alone, as it happens; NULL: all that are kept */
};

extern const struct query_table events_table;
