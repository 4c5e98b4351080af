/* The table of lines: one row for each line of a program's own code that asked for memory, of each kind of memory. A line speaks for
 * all stacks below it (headline.h), so that memory counts where the program decides about it and not inside a library; the table
 * `sites` has the places that call the allocator. Rows are those of rows.h by caller: exact, but for lines that only sampling
 * found. */
#include "profile/tables.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "profile/gathered.h"
#include "profile/headline.h"
#include "profile/names.h"
#include "profile/profile.h"
#include "profile/rows.h"
#include "profile/words.h"
#include "query/table_process.h"

enum { NAMED_AT_ONCE = 1000 }; /* more rows than this: all names together are found quicker */

struct line_row {
    struct gathered_row row; /* first */
    const struct row *line;
};

static const struct line_row *row_of(const struct query_row *row)
{
    return row->custom;
}

/* What the line calls, too. */
static const struct profile_frame *name_row(const struct query_row *row)
{
    struct gathered *g = row_of(row)->row.of;
    const struct row *line = row_of(row)->line;
    if (!line->frames)
        return NULL;
    for (size_t i = 0; i < (line->inside ? 2 : 1); i++)
        profile_name(g->profile, gathered_symbols(g), *(line->frames - i));
    return &g->profile->frames[line->frames[0]];
}

/* ---- columns ---- */

enum { TEXT_SITE, TEXT_VIA };

static void get_words(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    bool via = field->column->arg == TEXT_VIA;
    struct buffer *out = &row_of(row)->row.of->lists[field->column->arg];
    if (!name_row(row)) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    buffer_reset(out);
    if (via)
        words_via(row_of(row)->line, ROWS_BY_CALLER, out);
    else
        words_site(row_of(row)->line, ROWS_BY_CALLER, true, out);
    if (out->len)
        query_set_text(ret, buffer_string(out));
}

enum { CODE_FUNCTION, CODE_FILE, CODE_LINE, CODE_MODULE };

static void get_code(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct profile_frame *f = name_row(row);
    const struct profile *p = row_of(row)->row.of->profile;
    ret->state = QUERY_UNKNOWN;
    if (!f)
        return;
    uint32_t frame = row_of(row)->line->frames[0];
    const struct profile_line *line =
        f->n_lines ? &p->lines[f->first_line + headline_line(p, frame)] : NULL;
    if (field->column->arg == CODE_LINE) {
        if (line && line->line)
            query_set_number(ret, line->line);
        return;
    }
    const char *text = field->column->arg == CODE_MODULE     ? profile_module_path(p, frame)
                       : !line                               ? ""
                       : field->column->arg == CODE_FUNCTION ? profile_text(p, line->function)
                                                             : profile_text(p, line->file);
    if (*text)
        query_set_text(ret, text);
}

/* The frame itself: the same in every run. */
enum { FRAME_PLACE, FRAME_KEY };

static void get_frame(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char key[24], place[PROFILE_STRING_MAX + 32];
    const struct profile_frame *f = name_row(row);
    const struct profile *p = row_of(row)->row.of->profile;
    if (!f) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    const char *path = profile_module_path(p, row_of(row)->line->frames[0]);
    if (field->column->arg == FRAME_KEY)
        snprintf(key, sizeof(key), "%016" PRIx64, f->key);
    else
        snprintf(place, sizeof(place), "%s+0x%" PRIx64, path, f->offset);
    if (field->column->arg == FRAME_KEY || *path)
        query_set_text(ret, field->column->arg == FRAME_KEY ? key : place);
}

enum { SINCE_TIME, SINCE_AGE };

static void get_since(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    uint64_t then = row_of(row)->line->first_seen_ns, now = world->now_real_ns;
    if (!then)
        ret->state = QUERY_UNKNOWN;
    else if (field->column->arg == SINCE_TIME)
        query_set_number(ret, then);
    else
        query_set_number(ret, now > then ? now - then : 0);
}

static void get_sites(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row_of(row)->line->sites);
}

/* ---- the table ---- */

#define PRIVATE .flags = QUERY_DETAIL | QUERY_PRIVATE

static const struct query_column columns[] = {
    PROCESS_COLUMNS,
    DEVICE_COLUMNS(QUERY_DETAIL),
    {"site", "the line of the program's own code that asked", QUERY_TEXT, PRIVATE, .arg = TEXT_SITE,
     .get = get_words},
    {"via", NULL, QUERY_TEXT, PRIVATE, .arg = TEXT_VIA, .get = get_words},
    {"function", NULL, QUERY_TEXT, PRIVATE, .arg = CODE_FUNCTION, .get = get_code},
    {"source_file", NULL, QUERY_TEXT, PRIVATE, .arg = CODE_FILE, .get = get_code},
    {"line", NULL, QUERY_NUMBER, QUERY_SAME, PRIVATE, .arg = CODE_LINE, .get = get_code},
    {"module", NULL, QUERY_TEXT, PRIVATE, .arg = CODE_MODULE, .get = get_code},
    {"frame", NULL, QUERY_TEXT, PRIVATE, .arg = FRAME_PLACE, .get = get_frame},
    {"key", "the place's number, the same in every run of the same program", QUERY_TEXT, PRIVATE,
     .arg = FRAME_KEY, .get = get_frame},
    GATHERED_FIGURES,
    {"first_seen", NULL, QUERY_TIME, QUERY_MIN, .flags = QUERY_DETAIL, .arg = SINCE_TIME,
     .get = get_since},
    {"age", "since it asked for the first time", QUERY_AGE, .flags = QUERY_DETAIL, .arg = SINCE_AGE,
     .get = get_since},
    {"call_sites", NULL, QUERY_NUMBER, .flags = QUERY_DETAIL, .get = get_sites},
    {0},
};

static int rows(struct query_scan *scan, struct gathered *g)
{
    MEMOIR_CLEANUP(rows_release)
    struct rows rows = {0};
    struct symbolizer *symbols = gathered_symbols(g);
    bool (*goes_on)(size_t done, size_t all, void *context) = g->world ? g->world->goes_on : NULL;
    void *context = g->world ? g->world->context : NULL;
    int r = headlines_find_all(g->profile, symbols, goes_on, context);
    if (r == 0)
        r = rows_add(&rows, g->profile, &(struct rows_filter){.by = ROWS_BY_CALLER}, false);
    if (r == 0 && rows.n > NAMED_AT_ONCE)
        r = profile_name_all(g->profile, symbols, PROFILE_NAMES_INNERMOST, goes_on, context);
    for (size_t i = 0; i < rows.n && r == 0; i++) {
        const struct row *line = &rows.list[i];
        struct line_row row = {{g, &line->now, line->estimate}, line};
        r = gathered_each(scan, g, &row, line->account);
    }
    return r;
}

static int scan_lines(struct query_scan *scan)
{
    return gathered_scan(scan, rows);
}

const struct query_table profile_table_lines = {
    .name = "lines",
    .help = "one row for each line of a program's own code that asked for memory",
    .columns = columns,
    .show = "pid,program,device,space,site,bytes,blocks,allocated",
    .show_by = "bytes,blocks,allocated",
    .sort = "-bytes,-allocated,+pid,+key",
    /* Which line speaks for a stack takes names, whether they are shown or not. */
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_BLOCKS | QUERY_NEEDS_SYMBOLS,
    .costly = true,
    .private_rows = true,
    .scan = scan_lines,
    .owner = process_owner,
    .usual = process_lives,
    .unusual_by = "state",
};
