/* The table of stacks: one row for each way through the code that leads to memory of a process. Flame graphs and icicles fold
 * its rows. Figures are those of stacks.h: exact, or an exact figure divided among sampled stacks, which are marked. */
#include "profile/tables.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "profile/gathered.h"
#include "profile/headline.h"
#include "profile/names.h"
#include "profile/profile.h"
#include "profile/stacks.h"
#include "profile/words.h"
#include "query/table_process.h"

struct stack_row {
    struct gathered_row row; /* first */
    const struct stack *stack;
};

static const struct stack_row *row_of(const struct query_row *row)
{
    return row->custom;
}

/* ---- frames ---- */

enum list { LIST_FRAMES, LIST_FUNCTIONS, LIST_PLACES, LIST_MODULES, LIST_KEYS };
_Static_assert(LIST_KEYS + 1 == GATHERED_LISTS, "a buffer for each");

/* Calls compiled into each other at a frame are entries of their own. */
static void append(const struct profile *p, uint32_t frame, size_t line, enum list list,
                   struct buffer *out)
{
    char text[PROFILE_LABEL_MAX];
    size_t from = out->len;
    switch (list) {
    case LIST_FRAMES:
        words_frame(p, frame, line, out);
        break;
    case LIST_FUNCTIONS:
        buffer_append_str(out, profile_function(p, frame, line, text));
        break;
    case LIST_PLACES:
        buffer_append_str(out, profile_place(p, frame, line, text));
        break;
    case LIST_MODULES:
        buffer_append_str(out, profile_module_path(p, frame));
        break;
    case LIST_KEYS:
        buffer_printf(out, "%016" PRIx64, p->frames[frame].key);
        break;
    }
    for (size_t i = from; i < out->len; i++) /* a line feed ends an entry */
        if (out->data[i] == '\n')
            out->data[i] = ' ';
}

static void get_list(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct stack *s = row_of(row)->stack;
    struct gathered *g = row_of(row)->row.of;
    struct buffer *out = &g->lists[field->column->arg];
    buffer_reset(out);
    gathered_name_all(g);
    for (size_t i = s->n_frames; i-- > 0;)
        for (size_t k = words_lines(g->profile, s->frames[i]); k-- > 0;) {
            if (i + 1 < s->n_frames || k + 1 < words_lines(g->profile, s->frames[i]))
                buffer_append_char(out, '\n');
            append(g->profile, s->frames[i], k, (enum list)field->column->arg, out);
        }
    if (s->n_frames && !out->error)
        query_set_frames(ret, buffer_string(out));
    else
        ret->state = QUERY_UNKNOWN;
}

/* The line that speaks for the stack (headline.h). */
static void get_site(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[4096];
    const struct stack *s = row_of(row)->stack;
    struct gathered *g = row_of(row)->row.of;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(sizeof(text));
    gathered_name_all(g);
    if (!s->n_frames) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    uint32_t frame = s->frames[headline_frame(g->profile, s->frames, s->n_frames)];
    words_frame(g->profile, frame, headline_line(g->profile, frame), &out);
    snprintf(text, sizeof(text), "%s", buffer_string(&out));
    query_set_text(ret, text);
}

static void get_key(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[24];
    const struct stack *s = row_of(row)->stack;
    uint64_t key = 0;
    for (size_t i = 0; i < s->n_frames; i++)
        key = hash_combine(key, row_of(row)->row.of->profile->frames[s->frames[i]].key);
    snprintf(text, sizeof(text), "%016" PRIx64, key);
    query_set_text(ret, text);
}

/* ---- the table ---- */

#define LIST(name, which)                                                            \
    {                                                                                \
        name, NULL, QUERY_FRAMES, .flags = QUERY_DETAIL | QUERY_PRIVATE,             \
                                  .needs = QUERY_NEEDS_SYMBOLS, .arg = LIST_##which, \
                                  .get = get_list                                    \
    }

static const struct query_column columns[] = {
    PROCESS_COLUMNS,
    DEVICE_COLUMNS(QUERY_DETAIL),
    {"key", "number of the stack, the same in every run of the same program", QUERY_TEXT,
     .flags = QUERY_DETAIL | QUERY_PRIVATE, .get = get_key},
    LIST("frames", FRAMES),
    LIST("functions", FUNCTIONS),
    LIST("places", PLACES),
    LIST("modules", MODULES),
    LIST("keys", KEYS),
    {"site", NULL, QUERY_TEXT, .flags = QUERY_DETAIL | QUERY_PRIVATE, .needs = QUERY_NEEDS_SYMBOLS,
     .get = get_site},
    GATHERED_FIGURES,
    {0},
};

static int rows(struct query_scan *scan, struct gathered *g)
{
    MEMOIR_CLEANUP(stacks_release)
    struct stacks stacks = {0};
    int r = stacks_take(g->profile, &stacks);
    for (size_t i = 0; i < stacks.n && r == 0; i++) {
        const struct stack *s = &stacks.list[i];
        struct stack_row row = {{g, &s->figures, s->estimate}, s};
        r = gathered_each(scan, g, &row, s->account);
    }
    return r;
}

static int scan_stacks(struct query_scan *scan)
{
    return gathered_scan(scan, rows);
}

const struct query_table profile_table_stacks = {
    .name = "stacks",
    .help = "one row for each stack of calls that leads to memory of a process",
    .columns = columns,
    .show = "pid,program,space,bytes,blocks,allocated,frames",
    .show_by = "bytes,blocks,allocated",
    .sort = "-bytes,-allocated,+pid,+key",
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_BLOCKS,
    .costly = true,
    .private_rows = true,
    .scan = scan_stacks,
    .owner = process_owner,
    .usual = process_lives,
    .unusual_by = "state",
};
