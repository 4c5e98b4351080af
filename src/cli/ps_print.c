/* How `memoir ps` looks. See ps.h. */
#include <errno.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/ps.h"

void ps_view_release(struct ps_view *view)
{
    if (view->processes.columns)
        table_release(&view->processes);
    if (view->details.columns)
        table_release(&view->details);
    free(view->owner);
    *view = (struct ps_view){0};
}

void ps_view_detail(struct ps_view *view)
{
    if (view->details.n_rows == view->cap_owner) {
        size_t cap = view->cap_owner ? view->cap_owner * 2 : 64;
        size_t *owner = reallocarray(view->owner, cap, sizeof(*owner));
        if (!owner) {
            view->details.error = -ENOMEM;
            return;
        }
        view->owner = owner;
        view->cap_owner = cap;
    }
    size_t row = view->details.n_rows;
    table_row(&view->details);
    if (view->details.n_rows > row)
        view->owner[row] = view->processes.n_rows - 1;
}

/* Details of one process come one after another, so `*at` walks over them once. */
static void json_details(const struct ps_view *view, size_t process, const size_t *first,
                         struct json *json)
{
    json_key(json, view->details_name);
    json_array_begin(json);
    for (size_t i = first[process]; i < first[process + 1]; i++) {
        json_object_begin(json);
        table_json_row(&view->details, i, PS_OWN_COLUMNS, json);
        json_object_end(json);
    }
    json_array_end(json);
}

/* For each process the number of its first detail; one more entry ends the last. */
static size_t *details_index(const struct ps_view *view)
{
    size_t *first = malloc((view->processes.n_rows + 1) * sizeof(*first));
    if (!first)
        return NULL;
    size_t i = 0;
    for (size_t p = 0; p <= view->processes.n_rows; p++) {
        while (i < view->details.n_rows && view->owner[i] < p)
            i++;
        first[p] = i;
    }
    return first;
}

static int print_json(const struct ps_view *view, const char *schema, const size_t *order,
                      struct buffer *out)
{
    MEMOIR_CLEANUP(freep)
    size_t *first = details_index(view);
    if (!first)
        return -ENOMEM;
    struct json json;
    command_json_begin(&json, out, schema);
    json_key(&json, "processes");
    json_array_begin(&json);
    for (size_t i = 0; i < view->processes.n_rows; i++) {
        size_t row = order ? order[i] : i;
        json_object_begin(&json);
        table_json_row(&view->processes, row, 0, &json);
        json_details(view, row, first, &json);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    buffer_append_char(out, '\n');
    return json_finish(&json);
}

int ps_print(const struct ps_view *view, const struct ps_style *style, const struct term *term,
             struct buffer *out)
{
    bool details = style->details && style->format != PS_JSON;
    const struct table *table = details ? &view->details : &view->processes;
    if (view->processes.error || view->details.error)
        return view->processes.error ? view->processes.error : view->details.error;
    MEMOIR_CLEANUP(freep)
    size_t *order = NULL;
    if (style->sort) {
        struct table_sort sort;
        if (table_sort_parse(table->columns, style->sort, &sort) < 0)
            return -EINVAL;
        int r = table_sort(table, &sort, &order);
        if (r < 0)
            return r;
    }
    struct table_layout layout = {.header = style->header, .order = order};
    if (style->format == PS_JSON)
        return print_json(view, style->schema, order, out);
    if (style->format == PS_CSV)
        return table_print_csv(table, &layout, out);
    if (style->both && details) {
        struct table_layout above = {.header = style->header};
        table_print(&view->processes, &above, term, out);
        if (view->details.n_rows == 0)
            return out->error;
        buffer_append_char(out, '\n');
    }
    return table_print(table, &layout, term, out);
}
