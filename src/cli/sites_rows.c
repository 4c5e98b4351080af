/* How rows of `memoir sites` look. See sites.h. */
#include "cli/sites.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/bar.h"
#include "profile/headline.h"
#include "profile/names.h"
#include "profile/words.h"

enum { BAR_COLUMNS = 8, TEXT_MAX = 1 << 16 };

/* What both tables end with. */
enum {
    WORD_SPACE,
    WORD_DEVICE_LABEL,
    WORD_DEVICE,
    WORD_DEVICE_NAME,
    WORD_DEVICE_UID,
    WORD_SITE,
    WORD_VIA,
    WORD_FUNCTION,
    WORD_FILE,
    WORD_LINE,
    WORD_MODULE,
    WORD_FRAME,
    WORD_ESTIMATE,
    WORD_STACK,
};

#define WORDS                                                                                     \
    {"space", "SPACE", "kind of memory", COLUMN_TEXT, COLUMN_HIDE_EMPTY, 40},                     \
        {"device_label",                                                                          \
         "DEVICE",                                                                                \
         "number and name of the device",                                                         \
         COLUMN_TEXT,                                                                             \
         COLUMN_STRETCH | COLUMN_SCREEN_ONLY | COLUMN_HIDE_EMPTY,                                 \
         30},                                                                                     \
        COLUMN_DEVICE, COLUMN_DEVICE_NAME, COLUMN_DEVICE_UID,                                     \
        {"site", "SITE",                                                                          \
         "the place in the code that asked: function and line where they are known, else module " \
         "and offset; what --by says",                                                            \
         COLUMN_TEXT, COLUMN_STRETCH | COLUMN_WIDE},                                              \
        {"via", NULL, "what the site calls to get its memory: a library, a wrapper of malloc",    \
         COLUMN_TEXT, COLUMN_EXPORT_ONLY},                                                        \
        {"function", NULL, "name of the function that asked", COLUMN_TEXT, COLUMN_EXPORT_ONLY},   \
        {"source_file", NULL, "source file", COLUMN_TEXT, COLUMN_EXPORT_ONLY},                    \
        {"line", NULL, "line in the source file", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},             \
        {"module", NULL, "path of the program or library", COLUMN_TEXT, COLUMN_EXPORT_ONLY},      \
        {"frame", NULL, "path of the module and offset in its file", COLUMN_TEXT,                 \
         COLUMN_EXPORT_ONLY},                                                                     \
        {"estimated", NULL, "the figures are estimated from samples", COLUMN_YES,                 \
         COLUMN_EXPORT_ONLY},                                                                     \
        {"stack", NULL,                                                                           \
         "with --by stack and --stacks: the functions from the outermost to the innermost, "      \
         "separated by ;",                                                                        \
         COLUMN_TEXT, COLUMN_EXPORT_ONLY},                                                        \
    {                                                                                             \
        0                                                                                         \
    }

enum {
    COL_LIVE,
    COL_BAR,
    COL_SHARE,
    COL_BLOCKS,
    COL_ALLOCATED,
    COL_ALLOCATED_BLOCKS,
    COL_GROWTH_RATE,
    COL_RATE,
    COL_CALL_RATE,
    COL_AGE,
    COL_FIRST_SEEN,
    COL_SITES,
    COL_WORDS,
};

const struct column sites_columns[] = {
    [COL_LIVE] = {"bytes", "LIVE", "bytes that it holds now", COLUMN_BYTES},
    [COL_BAR] = {"bar", "", "its part of all", COLUMN_TEXT, COLUMN_SCREEN_ONLY, 20},
    [COL_SHARE] = {"percent", "SHARE", "its part of all, of what the rows are sorted by",
                   COLUMN_PERCENT, 0, 60},
    [COL_BLOCKS] = {"blocks", "BLOCKS", "blocks that it holds now", COLUMN_NUMBER},
    [COL_ALLOCATED] = {"allocated", "ALLOCATED", "bytes that it asked for in all", COLUMN_BYTES, 0,
                       25},
    [COL_ALLOCATED_BLOCKS] = {"allocated_blocks", "CALLS", "blocks that it asked for in all",
                              COLUMN_NUMBER, 0, 55},
    [COL_GROWTH_RATE] = {"growth", "GROWS/S",
                         "with --for and --every: how much more it holds each second",
                         COLUMN_CHANGE_BYTES, COLUMN_HIDE_EMPTY, 4},
    [COL_RATE] = {"allocated_rate", "BYTES/S",
                  "with --for and --every: bytes that it asks for each second", COLUMN_BYTES,
                  COLUMN_HIDE_EMPTY, 5},
    [COL_CALL_RATE] = {"calls_rate", "CALLS/S",
                       "with --for and --every: blocks that it asks for each second", COLUMN_NUMBER,
                       COLUMN_HIDE_EMPTY, 6},
    [COL_AGE] = {"age", "SINCE", "since it asked for the first time", COLUMN_AGE, 0, 50},
    [COL_FIRST_SEEN] = {"first_seen", NULL, "when it asked for the first time", COLUMN_TIME,
                        COLUMN_EXPORT_ONLY},
    [COL_SITES] = {"call_sites", NULL, "sites of the book that were put together", COLUMN_NUMBER,
                   COLUMN_EXPORT_ONLY},
    WORDS,
};

enum {
    DIFF_CHANGE,
    DIFF_LIVE,
    DIFF_BEFORE,
    DIFF_BLOCKS_CHANGE,
    DIFF_BLOCKS,
    DIFF_BLOCKS_BEFORE,
    DIFF_ALLOCATED_CHANGE,
    DIFF_ALLOCATED_BLOCKS_CHANGE,
    DIFF_WORDS,
};

const struct column sites_diff_columns[] = {
    [DIFF_CHANGE] = {"bytes_change", "CHANGE", "how many bytes more it holds", COLUMN_CHANGE_BYTES},
    [DIFF_LIVE] = {"bytes", "LIVE", "bytes that it holds at the later moment", COLUMN_BYTES},
    [DIFF_BEFORE] = {"bytes_before", "BEFORE", "bytes that it held at the earlier one",
                     COLUMN_BYTES, 0, 30},
    [DIFF_BLOCKS_CHANGE] = {"blocks_change", "BLOCKS", "how many blocks more it holds",
                            COLUMN_CHANGE},
    [DIFF_BLOCKS] = {"blocks", NULL, "blocks that it holds at the later moment", COLUMN_NUMBER,
                     COLUMN_EXPORT_ONLY},
    [DIFF_BLOCKS_BEFORE] = {"blocks_before", NULL, "blocks that it held at the earlier one",
                            COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [DIFF_ALLOCATED_CHANGE] = {"allocated_change", "ALLOCATED",
                               "bytes that it asked for in between; less than 0 where the later is "
                               "another run",
                               COLUMN_CHANGE_BYTES, 0, 25},
    [DIFF_ALLOCATED_BLOCKS_CHANGE] = {"allocated_blocks_change", "CALLS",
                                      "blocks that it asked for in between", COLUMN_CHANGE, 0, 50},
    WORDS,
};

const struct column *sites_columns_of(const struct sites_style *style)
{
    return style->diff ? sites_diff_columns : sites_columns;
}

/* ---- words ---- */

/* What a row of this kind has in common: a row by file has no one function. */
static void set_code(struct table *t, size_t first, const struct row *row, enum rows_by by)
{
    const struct profile *p = row->profile;
    char frame[PROFILE_STRING_MAX + 32];
    if (!row->frames || !row->n_frames || by >= ROWS_BY_SPACE)
        return;
    uint32_t number = row_headline(row, by);
    const struct profile_frame *f = &p->frames[number];
    const struct profile_line *line =
        f->n_lines ? &p->lines[f->first_line + headline_line(p, number)] : NULL;
    const char *path = profile_module_path(p, number);
    if (line && line->function && by <= ROWS_BY_FUNCTION)
        table_set_text(t, first + WORD_FUNCTION, profile_text(p, line->function));
    if (line && line->file && (by <= ROWS_BY_STACK || by == ROWS_BY_FILE))
        table_set_text(t, first + WORD_FILE, profile_text(p, line->file));
    if (line && line->line && by <= ROWS_BY_STACK)
        table_set_number(t, first + WORD_LINE, line->line);
    if (*path && by != ROWS_BY_FILE)
        table_set_text(t, first + WORD_MODULE, path);
    if (*path && by <= ROWS_BY_STACK) {
        snprintf(frame, sizeof(frame), "%s+0x%" PRIx64, path, f->offset);
        table_set_text(t, first + WORD_FRAME, frame);
    }
}

static void set_words(struct table *t, size_t first, const struct row *row,
                      const struct sites_style *style, const struct term *term)
{
    const struct profile *p = row->profile;
    const struct profile_account *a = &p->accounts[row->account];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    words_site(row, style->by, term->utf8, &text);
    table_set_text(t, first + WORD_SITE, buffer_string(&text));
    buffer_reset(&text);
    words_via(row, style->by, &text);
    if (text.len) {
        table_set_text(t, first + WORD_VIA, buffer_string(&text));
        table_set_via(t, first + WORD_SITE, buffer_string(&text));
    }
    if (style->by != ROWS_BY_DEVICE)
        table_set_text(t, first + WORD_SPACE, profile_text(p, a->name));
    if (style->by != ROWS_BY_SPACE && a->has_device) {
        buffer_reset(&text);
        words_device(p, a, &text);
        if (style->by != ROWS_BY_DEVICE)
            table_set_text(t, first + WORD_DEVICE_LABEL, buffer_string(&text));
        table_set_device(t, first + WORD_DEVICE, a->ordinal, profile_text(p, a->device_name),
                         profile_text(p, a->device_uid));
    }
    set_code(t, first, row, style->by);
    table_set_number(t, first + WORD_ESTIMATE, row->estimate);
    if (row->frames && (style->by == ROWS_BY_STACK || style->stacks)) {
        buffer_reset(&text);
        words_folded(row, &text);
        table_set_text(t, first + WORD_STACK, buffer_string(&text));
    }
}

/* ---- figures ---- */

static uint64_t per_second(uint64_t n, uint64_t ns)
{
    return (uint64_t)((unsigned __int128)n * NS_PER_S / ns);
}

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static void set_rates(struct table *t, const struct row *row, uint64_t ns)
{
    const struct profile_figures *now = &row->now, *before = &row->before;
    int64_t change = rows_change(now->live_bytes, before->live_bytes);
    uint64_t size = per_second(change < 0 ? -(uint64_t)change : (uint64_t)change, ns);
    table_set_change(t, COL_GROWTH_RATE, change < 0 ? -(int64_t)size : (int64_t)size);
    if (size)
        table_set_style(t, COL_GROWTH_RATE, change > 0 ? STYLE_WARN : STYLE_GOOD);
    table_set_number(t, COL_RATE, per_second(grown(now->alloc_bytes, before->alloc_bytes), ns));
    table_set_number(t, COL_CALL_RATE,
                     per_second(grown(now->alloc_blocks, before->alloc_blocks), ns));
}

static void set_share(struct table *t, const struct rows *rows, const struct row *row,
                      const struct sites_style *style, const struct term *term)
{
    uint64_t value = rows_value(&row->now, style->measure);
    uint64_t all = rows_value(&rows->now, style->measure);
    if (!all)
        return;
    struct term plain = {.utf8 = term->utf8};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer bar = BUFFER_INIT(TEXT_MAX);
    bar_append(&plain, &bar, value, all, BAR_COLUMNS);
    table_set_text(t, COL_BAR, buffer_string(&bar));
    table_set_number(t, COL_SHARE, (uint64_t)((unsigned __int128)value * 10000 / all));
}

static void set_moment(struct table *t, const struct rows *rows, const struct row *row,
                       const struct sites_style *style, const struct term *term)
{
    const struct profile_figures *f = &row->now;
    unsigned marks = row->estimate ? TABLE_MARK_ESTIMATE : 0;
    table_set_number(t, COL_LIVE, f->live_bytes);
    table_set_number(t, COL_BLOCKS, f->live_blocks);
    table_set_number(t, COL_ALLOCATED, f->alloc_bytes);
    table_set_number(t, COL_ALLOCATED_BLOCKS, f->alloc_blocks);
    for (size_t i = COL_LIVE; i <= COL_ALLOCATED_BLOCKS; i++)
        table_set_marks(t, i, marks);
    set_share(t, rows, row, style, term);
    if (style->rate_ns)
        set_rates(t, row, style->rate_ns);
    if (row->first_seen_ns) {
        uint64_t age_ns = grown(style->now_real_ns, row->first_seen_ns);
        table_set_number(t, COL_AGE, age_ns);
        table_set_number(t, COL_FIRST_SEEN, row->first_seen_ns);
    }
    table_set_number(t, COL_SITES, row->sites);
}

static void set_diff(struct table *t, const struct row *row)
{
    const struct profile_figures *now = &row->now, *before = &row->before;
    unsigned marks = row->estimate ? TABLE_MARK_ESTIMATE : 0;
    int64_t change = rows_change(now->live_bytes, before->live_bytes);
    table_set_change(t, DIFF_CHANGE, change);
    if (change)
        table_set_style(t, DIFF_CHANGE, change > 0 ? STYLE_BAD : STYLE_GOOD);
    table_set_number(t, DIFF_LIVE, now->live_bytes);
    table_set_number(t, DIFF_BEFORE, before->live_bytes);
    table_set_change(t, DIFF_BLOCKS_CHANGE, rows_change(now->live_blocks, before->live_blocks));
    table_set_number(t, DIFF_BLOCKS, now->live_blocks);
    table_set_number(t, DIFF_BLOCKS_BEFORE, before->live_blocks);
    table_set_change(t, DIFF_ALLOCATED_CHANGE, rows_change(now->alloc_bytes, before->alloc_bytes));
    table_set_change(t, DIFF_ALLOCATED_BLOCKS_CHANGE,
                     rows_change(now->alloc_blocks, before->alloc_blocks));
    for (size_t i = 0; i < DIFF_WORDS; i++)
        table_set_marks(t, i, marks);
}

void sites_rows(const struct rows *rows, size_t n, const struct sites_style *style,
                const struct term *term, struct table *table)
{
    for (size_t i = 0; i < n && i < rows->n && !table->error; i++) {
        const struct row *row = &rows->list[i];
        table_row(table);
        if (style->diff)
            set_diff(table, row);
        else
            set_moment(table, rows, row, style, term);
        set_words(table, style->diff ? DIFF_WORDS : COL_WORDS, row, style, term);
    }
}

/* ---- whole stacks ---- */

static void stack_head(const struct rows *rows, const struct row *row,
                       const struct sites_style *style, const struct term *term, struct buffer *out)
{
    char text[UNITS_TEXT_MAX], more[UNITS_TEXT_MAX];
    const char *about = row->estimate ? "~" : "";
    const struct profile_account *a = &row->profile->accounts[row->account];
    buffer_append_str(out, term_style(term, STYLE_TITLE));
    if (style->diff) {
        int64_t change = rows_change(row->now.live_bytes, row->before.live_bytes);
        uint64_t size = change < 0 ? -(uint64_t)change : (uint64_t)change;
        buffer_printf(out, "%s%s%s, ", about, change < 0 ? "-" : "+",
                      units_format_bytes(text, size, UNITS_DECIMAL));
    }
    buffer_printf(out, "%s%s in %s%s block%s", about,
                  units_format_bytes(text, row->now.live_bytes, UNITS_DECIMAL), about,
                  units_format_count(more, row->now.live_blocks),
                  row->now.live_blocks == 1 ? "" : "s");
    buffer_append_str(out, term_plain(term, STYLE_TITLE));
    uint64_t all = rows_value(&rows->now, style->measure);
    if (all)
        buffer_printf(out, ", %.1f %%",
                      (double)rows_value(&row->now, style->measure) * 100 / (double)all);
    buffer_printf(out, ", %s%s allocated in all, ", about,
                  units_format_bytes(text, row->now.alloc_bytes, UNITS_DECIMAL));
    term_append(term, out, profile_text(row->profile, a->name), 0);
    buffer_append_char(out, '\n');
}

void sites_print_stacks(const struct rows *rows, size_t n, const struct sites_style *style,
                        const struct term *term, struct buffer *out)
{
    for (size_t i = 0; i < n && i < rows->n; i++) {
        const struct row *row = &rows->list[i];
        if (i)
            buffer_append_char(out, '\n');
        stack_head(rows, row, style, term, out);
        for (size_t k = 0; row->frames && k < row->n_frames; k++)
            for (size_t l = 0; l < words_lines(row->profile, row->frames[k]); l++) {
                MEMOIR_CLEANUP(buffer_release)
                struct buffer line = BUFFER_INIT(TEXT_MAX);
                words_frame(row->profile, row->frames[k], l, &line);
                buffer_append_str(out, "    ");
                term_append(term, out, buffer_string(&line), term->width > 8 ? term->width - 4 : 0);
                buffer_append_char(out, '\n');
            }
        if (row->cut)
            buffer_append_str(out, "    ...\n");
        if (row->bare)
            buffer_append_str(out, "    (who called it is not known)\n");
    }
}
