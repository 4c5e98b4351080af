/* Cells: what columns say of a row. See top_columns.h. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "cli/spark.h"
#include "cli/top_columns.h"
#include "ledger/host.h"

#define PSS_OLD_NS (15 * NS_PER_S) /* younger figures are as good as new */

enum { PSS_WIDTH = 5 };

const char *top_size(char text[static TOP_SIZE_MAX], uint64_t bytes)
{
    static const char units[] = "kMGTPE";
    if (bytes < 1000) {
        snprintf(text, TOP_SIZE_MAX, bytes ? "%uB" : "%u", (unsigned)bytes);
        return text;
    }
    double value = (double)bytes / 1000;
    size_t unit = 0;
    for (; value >= 999.5 && units[unit + 1]; unit++)
        value /= 1000;
    int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, TOP_SIZE_MAX, "%.*f%c", digits, value, units[unit]);
    return text;
}

const char *top_age(char text[static TOP_SIZE_MAX], uint64_t ns)
{
    uint64_t s = ns / NS_PER_S;
    if (s < 100)
        snprintf(text, TOP_SIZE_MAX, "%us", (unsigned)s);
    else if (s < 100 * 60)
        snprintf(text, TOP_SIZE_MAX, "%um", (unsigned)(s / 60));
    else if (s < 100 * 3600)
        snprintf(text, TOP_SIZE_MAX, "%uh", (unsigned)(s / 3600));
    else
        snprintf(text, TOP_SIZE_MAX, "%ud", (unsigned)(s / 86400));
    return text;
}

/* Growth is worth a look from 100 kB a second on, and an alarm where it fills the machine within 10 minutes. */
enum term_style top_rate_style(int64_t bytes_per_s, const struct host_system *system)
{
    if (bytes_per_s < 0)
        return STYLE_GOOD;
    if (bytes_per_s < 100000)
        return STYLE_DIM;
    if (system && system->valid & HOST_HAS_AVAILABLE &&
        (uint64_t)bytes_per_s > system->available_bytes / 600)
        return STYLE_BAD;
    return STYLE_WARN;
}

static void spaces(struct buffer *out, unsigned n)
{
    buffer_printf(out, "%*s", (int)n, "");
}

/* `text` in a style, in a cell of `width` columns. */
static void put(const struct term *term, struct buffer *out, const char *text,
                enum term_style style, unsigned width, bool right)
{
    unsigned need = term_columns(term, text);
    if (right && need < width)
        spaces(out, width - need);
    buffer_append_str(out, term_style(term, style));
    unsigned used = term_append(term, out, text, width);
    buffer_append_str(out, term_plain(term, style));
    if (!right) /* what is cut before a wide character is narrower than the cell */
        spaces(out, width - used);
}

static void put_unknown(const struct term *term, struct buffer *out, unsigned width, bool right)
{
    put(term, out, "-", STYLE_DIM, width, right);
}

static void put_rate(const struct top_cells *cells, struct buffer *out, int64_t rate,
                     unsigned width)
{
    const struct term *term = cells->term;
    char size[TOP_SIZE_MAX], text[TOP_SIZE_MAX + 16];
    uint64_t bytes = rate < 0 ? -(uint64_t)rate : (uint64_t)rate;
    if (bytes < 1000) { /* a page now and then is no growth */
        put(term, out, "0", STYLE_DIM, width, true);
        return;
    }
    const char *sign = term->utf8 ? (rate < 0 ? "\xe2\x96\xbc" : "\xe2\x96\xb2")
                       : rate < 0 ? "-"
                                  : "+";
    snprintf(text, sizeof(text), "%s%s/s", sign, top_size(size, bytes));
    put(term, out, text, top_rate_style(rate, cells->system), width, true);
}

/* "12.4M", and how old that is where it is old: "12.4M  3m". */
static void put_pss(const struct top_cells *cells, struct buffer *out, const struct top_row *row,
                    const char *text, unsigned width)
{
    char age[TOP_SIZE_MAX];
    int64_t old_ns;
    bool old = top_row_fact(row, TOP_FACT_PSS_AGE, &old_ns) && old_ns >= (int64_t)PSS_OLD_NS &&
               !row->folded;
    put(cells->term, out, text, old ? STYLE_DIM : STYLE_PLAIN, PSS_WIDTH + 1, true);
    put(cells->term, out, old ? top_age(age, (uint64_t)old_ns) : "", STYLE_DIM,
        width - PSS_WIDTH - 1, true);
}

static enum term_style size_style(const struct top_cells *cells, enum top_column column,
                                  int64_t value)
{
    if (value == 0)
        return STYLE_DIM;
    if (column != TOP_COLUMN_RSS && column != TOP_COLUMN_TREE)
        return STYLE_PLAIN;
    uint64_t total = cells->system ? cells->system->total_bytes : 0;
    return total && (uint64_t)value >= total / 4 ? STYLE_WARN : STYLE_PLAIN;
}

static void put_figure(const struct top_cells *cells, struct buffer *out, const struct top_row *row,
                       enum top_column column, unsigned width)
{
    int figure = top_column_figure(column);
    const struct top_figures *f = column == TOP_COLUMN_TREE ? &row->sum : top_row_figures(row);
    char text[TOP_SIZE_MAX], marked[TOP_SIZE_MAX + 4];
    if (!(f->known >> figure & 1)) {
        if (column == TOP_COLUMN_PSS)
            put_pss(cells, out, row, "-", width);
        else
            put_unknown(cells->term, out, width, true);
        return;
    }
    int64_t value = f->value[figure];
    if (figure >= TOP_RATE_10S && figure <= TOP_RATE_10MIN) {
        put_rate(cells, out, value, width);
        return;
    }
    if (top_fields[column].type == COLUMN_NUMBER)
        snprintf(text, sizeof(text), "%lld", (long long)value);
    else
        top_size(text, (uint64_t)value);
    snprintf(marked, sizeof(marked), "%s%s%s", f->estimate >> figure & 1 ? "~" : "", text,
             f->partial >> figure & 1 ? "+" : "");
    if (column == TOP_COLUMN_PSS)
        put_pss(cells, out, row, marked, width);
    else
        put(cells->term, out, marked, size_style(cells, column, value), width, true);
}

static void put_share(const struct top_cells *cells, struct buffer *out, const struct top_row *row,
                      unsigned width)
{
    const struct top_figures *f = top_row_figures(row);
    char text[16];
    if (!(f->known >> TOP_RSS & 1) || !cells->system || !cells->system->total_bytes) {
        put_unknown(cells->term, out, width, true);
        return;
    }
    snprintf(text, sizeof(text), "%.1f",
             100.0 * (double)f->value[TOP_RSS] / (double)cells->system->total_bytes);
    put(cells->term, out, text, STYLE_PLAIN, width, true);
}

/* Each point is the most of some looks. Its height is where it lies between the least and the most that is shown,
 * with a floor so that noise does not look like mountains. */
static void put_trend(const struct top_cells *cells, struct buffer *out, const struct top_row *row,
                      unsigned width)
{
    enum { POINTS_MAX = 64, LOOKS_A_POINT = 5 };
    struct spark_point points[POINTS_MAX] = {0};
    unsigned n = width < POINTS_MAX ? width : POINTS_MAX;
    uint64_t least = UINT64_MAX, most = 0;
    for (unsigned i = 0; row->trace && i < n; i++) {
        /* Looks stay in their point, so that the picture moves by whole characters. */
        uint64_t point = cells->looks / LOOKS_A_POINT;
        if (point + 1 < n - i)
            continue;
        uint64_t first = (point + 1 - (n - i)) * LOOKS_A_POINT;
        for (uint64_t look = first; look < first + LOOKS_A_POINT; look++) {
            if (look < row->trace->first || look > row->trace->last ||
                look + TOP_TREND <= cells->looks)
                continue;
            uint32_t kib = row->trace->kib[look % TOP_TREND];
            if (kib == UINT32_MAX)
                continue;
            points[i].present = true;
            points[i].value = kib > points[i].value ? kib : points[i].value;
        }
        if (!points[i].present)
            continue;
        least = points[i].value < least ? points[i].value : least;
        most = points[i].value > most ? points[i].value : most;
    }
    uint64_t floor = least == UINT64_MAX ? 0 : least - (least < most / 20 ? least : most / 20);
    for (unsigned i = 0; i < n; i++)
        points[i].value = points[i].present ? points[i].value - floor + 1 : 0;
    buffer_append_str(out, term_style(cells->term, STYLE_CYAN));
    spark_append(out, cells->term->utf8, points, n, most - floor + most / 20 + 1);
    buffer_append_str(out, term_plain(cells->term, STYLE_CYAN));
    spaces(out, width - n);
}

/* "│ ├─train.py". Where it is too deep for the room, all from some depth on stand below each other. */
static unsigned put_branch(const struct top_cells *cells, struct buffer *out,
                           const struct top_row *row, unsigned width)
{
    enum { PIECE = 2 };
    bool utf8 = cells->term->utf8;
    uint32_t most = width / 2 / PIECE, shown = row->depth < most ? row->depth : most;
    if (!cells->tree || !shown)
        return 0;
    buffer_append_str(out, term_style(cells->term, STYLE_DIM));
    for (uint32_t d = 1; d <= shown; d++) {
        bool more = d < 64 && row->more >> d & 1;
        const char *piece = d == row->depth ? more   ? utf8 ? "├─" : "|-"
                                              : utf8 ? "└─"
                                                     : "`-"
                            : d == most     ? utf8 ? "… " : "~ "
                            : more          ? utf8 ? "│ " : "| "
                                            : "  ";
        buffer_append_str(out, piece);
    }
    buffer_append_str(out, term_plain(cells->term, STYLE_DIM));
    return PIECE * shown;
}

static void put_program(const struct top_cells *cells, struct buffer *out,
                        const struct top_row *row, unsigned width)
{
    char text[128];
    const char *name = top_column_text(TOP_COLUMN_PROGRAM, row);
    unsigned used = put_branch(cells, out, row, width);
    if (row->folded)
        snprintf(text, sizeof(text), "[+%u] %s", row->below, name);
    else
        snprintf(text, sizeof(text), "%s", name);
    enum term_style style = row->context || row->kernel ? STYLE_DIM
                            : row->has_book             ? STYLE_TITLE
                                                        : STYLE_PLAIN;
    put(cells->term, out, text, style, width - used, false);
}

static void put_tracked(const struct top_cells *cells, struct buffer *out,
                        const struct top_row *row, unsigned width)
{
    static const char *const words[] = {
        [HOST_TRACKED_UNKNOWN] = "-",       [HOST_TRACKED_YES] = "yes",
        [HOST_TRACKED_ASKED] = "asked",     [HOST_TRACKED_NOT_ASKED] = "no",
        [HOST_TRACKED_STATIC] = "static",   [HOST_TRACKED_GO] = "Go",
        [HOST_TRACKED_SETUID] = "setuid",   [HOST_TRACKED_32BIT] = "32-bit",
        [HOST_TRACKED_MACHINE] = "machine", [HOST_TRACKED_LIBC] = "libc",
        [HOST_TRACKED_KERNEL] = "kernel",
    };
    enum host_tracked tracked = host_tracked_find(row->tracked);
    bool yes = tracked == HOST_TRACKED_YES;
    /* A program may report by itself, or be observed, without every malloc being accounted. */
    put(cells->term, out, row->has_book && !yes ? "book" : words[tracked],
        yes ? STYLE_GOOD : STYLE_DIM, width, false);
}

static void put_text(const struct top_cells *cells, struct buffer *out, const char *text,
                     enum term_style style, unsigned width)
{
    if (*text)
        put(cells->term, out, text, style, width, false);
    else
        put_unknown(cells->term, out, width, false);
}

/* A number, an age or a size that is no figure. */
static void put_fact(const struct top_cells *cells, struct buffer *out, const struct top_row *row,
                     enum top_column column, unsigned width)
{
    char text[24] = "";
    int64_t number;
    if (!top_column_number(column, row, &number)) {
        put_unknown(cells->term, out, width, true);
        return;
    }
    if (column == TOP_COLUMN_STATE)
        text[0] = row->state;
    else if (top_fields[column].type == COLUMN_AGE)
        top_age(text, (uint64_t)number);
    else if (top_fields[column].type == COLUMN_BYTES)
        top_size(text, (uint64_t)number);
    else
        snprintf(text, sizeof(text), "%lld", (long long)number);
    put(cells->term, out, text, STYLE_PLAIN, width, true);
}

static void put_cell(const struct top_cells *cells, struct buffer *out, const struct top_row *row,
                     enum top_column column, unsigned width)
{
    switch (column) {
    case TOP_COLUMN_PROGRAM:
        put_program(cells, out, row, width);
        break;
    case TOP_COLUMN_SHARE:
        put_share(cells, out, row, width);
        break;
    case TOP_COLUMN_TREND:
        put_trend(cells, out, row, width);
        break;
    case TOP_COLUMN_TRACKED:
        put_tracked(cells, out, row, width);
        break;
    case TOP_COLUMN_USER:
    case TOP_COLUMN_COMMAND:
    case TOP_COLUMN_JOB:
    case TOP_COLUMN_CONTAINER:
    case TOP_COLUMN_POD:
    case TOP_COLUMN_CGROUP:
        put_text(cells, out, top_column_text(column, row),
                 column == TOP_COLUMN_COMMAND ? STYLE_DIM : STYLE_PLAIN, width);
        break;
    default:
        if (top_column_figure(column) >= 0)
            put_figure(cells, out, row, column, width);
        else
            put_fact(cells, out, row, column, width);
    }
}

void top_row_append(const struct top_cells *cells, const struct top_layout *layout,
                    const struct top_row *row, struct buffer *out)
{
    for (size_t i = 0; i < layout->n; i++) {
        if (i)
            buffer_append_char(out, ' ');
        put_cell(cells, out, row, layout->column[i], layout->width[i]);
    }
}

void top_heading_append(const struct term *term, const struct top_layout *layout,
                        enum top_column sort, bool ascending, struct buffer *out)
{
    const char *arrow = term->utf8 ? (ascending ? "▲" : "▼") : ascending ? "^" : "v";
    for (size_t i = 0; i < layout->n; i++) {
        enum top_column column = layout->column[i];
        const struct column *field = &top_fields[column];
        bool here = column == sort,
             age = column == TOP_COLUMN_PSS; /* which the figures end before */
        unsigned room = age ? PSS_WIDTH + 1 : layout->width[i];
        char text[64];
        if (i)
            buffer_append_char(out, ' ');
        snprintf(text, sizeof(text), "%s%s", field->title, here ? arrow : "");
        if (here && term_columns(term, text) > room) /* the arrow says more than the last letter */
            snprintf(text, sizeof(text), "%.*s%s", (int)room - 1, field->title, arrow);
        put(term, out, text, here ? STYLE_TITLE : STYLE_PLAIN, room, field->type != COLUMN_TEXT);
        spaces(out, layout->width[i] - room);
    }
}
