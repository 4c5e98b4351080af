/* Rows of the past. See past.h. */
#include "history/past.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "history/past_rows.h"
#include "history/table.h"
#include "query/query.h"

#define SUFFIX "_past"

struct past_window past_at(uint64_t time_s)
{
    uint64_t since_s = time_s / PAST_AT_STEP_S * PAST_AT_STEP_S;
    return (struct past_window){since_s, since_s + PAST_AT_STEP_S, PAST_AT_STEP_S};
}

int past_tables_register(void)
{
    static const struct query_table *const tables[] = {&history_table, &past_table_host,
                                                       &past_table_processes, &past_table_system,
                                                       &past_table_devices};
    int r = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables) && r == 0; i++)
        r = query_table_register(tables[i]);
    return r;
}

/* ---- questions ---- */

static int refuse(const char *name, struct query_error *ret_error)
{
    size_t len = 0, room = sizeof(ret_error->text);
    *ret_error = (struct query_error){.part = "table", .len = strlen(name)};
    len += (size_t)snprintf(ret_error->text, room,
                            "the past of the table %s is not recorded; that of", name);
    for (const struct query_table *const *t = query_tables(); *t; t++) {
        size_t n = strlen((*t)->name), suffix = strlen(SUFFIX);
        if (n > suffix && strcmp((*t)->name + n - suffix, SUFFIX) == 0 && len < room)
            len += (size_t)snprintf(ret_error->text + len, room - len, " %.*s,", (int)(n - suffix),
                                    (*t)->name);
    }
    if (len < room)
        snprintf(ret_error->text + len, room - len, " exited is, and history has all series");
    return -EINVAL;
}

/* Does the list have `time` among its columns? */
static bool has_time(const char *list)
{
    for (const char *at = list; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        at += strspn(at, " ");
        if (strcspn(at, ", ") == 4 && strncmp(at, "time", 4) == 0)
            return true;
    }
    return false;
}

static void test_time(struct buffer *texts, const char *op, uint64_t time_s)
{
    char text[QUERY_TIME_TEXT_MAX];
    buffer_printf(texts, "ended%s%s", op, query_time_text(text, time_s * NS_PER_S));
}

int past_spec(struct query_spec *spec, const struct past_window *window, struct buffer *texts,
              struct query_error *ret_error)
{
    char name[QUERY_NAME_MAX];
    const char *asked = spec->table && *spec->table ? spec->table : query_tables()[0]->name;
    const struct query_table *table = query_table_find(asked), *past;
    if (!window->until_s || !table || table->needs & QUERY_NEEDS_HISTORY)
        return 0; /* that there is no such table is told elsewhere */
    if (table->needs & QUERY_NEEDS_EXITS) {
        test_time(texts, ">=", window->since_s);
        buffer_append_str(texts, " and ");
        test_time(texts, "<", window->until_s);
        if (spec->where && *spec->where)
            buffer_printf(texts, ", (%s)", spec->where);
        spec->where = buffer_string(texts);
        return texts->error;
    }
    snprintf(name, sizeof(name), "%s" SUFFIX, table->name);
    past = query_table_find(name);
    if (!past)
        return refuse(table->name, ret_error);
    spec->table = past->name;
    if (spec->by && *spec->by && !has_time(spec->by) &&
        window->until_s - window->since_s > window->step_s) {
        buffer_printf(texts, "time,%s", spec->by);
        spec->by = buffer_string(texts);
    }
    if (spec->by && has_time(spec->by) && !(spec->sort && *spec->sort))
        spec->sort = "+time";
    return texts->error;
}
