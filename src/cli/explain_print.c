/* See explain_print.h. */
#include "cli/explain_print.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/units.h"
#include "cli/bar.h"
#include "cli/term.h"
#include "explain/explain.h"
#include "explain/sites.h"

enum {
    BAR_COLUMNS = 20,
    BARS_FROM = 78, /* columns: the longest title and its bar fit */
    NAME_INDENT = 20,
};

/* Colour and, where there is none, letter of each kind. */
static const struct {
    enum term_style style;
    char letter;
} looks[EXPLAIN_KINDS] = {
    [EXPLAIN_HEAP] = {STYLE_GOOD, 'h'},      [EXPLAIN_SLACK] = {STYLE_WARN, 's'},
    [EXPLAIN_OLDER] = {STYLE_DIM, 'b'},      [EXPLAIN_RUNTIME] = {STYLE_BLUE, 'r'},
    [EXPLAIN_ANONYMOUS] = {STYLE_CYAN, 'a'}, [EXPLAIN_STACK] = {STYLE_MAGENTA, 't'},
    [EXPLAIN_FILE] = {STYLE_PLAIN, 'f'},     [EXPLAIN_SHARED] = {STYLE_CYAN, 'm'},
    [EXPLAIN_DEVICE] = {STYLE_MAGENTA, 'd'}, [EXPLAIN_MEMOIR] = {STYLE_DIM, 'o'},
    [EXPLAIN_REST] = {STYLE_BAD, '?'},
};

static void figures(const struct term *term, struct buffer *out, uint64_t bytes, uint64_t all,
                    bool estimate, enum term_style style)
{
    char size[UNITS_TEXT_MAX], marked[UNITS_TEXT_MAX + 1], share[BAR_PERCENT_MAX];
    snprintf(marked, sizeof(marked), "%s%s", estimate ? "~" : "",
             units_format_bytes(size, bytes, UNITS_DECIMAL));
    buffer_printf(out, "%s%10s  %7s%s", term_style(term, style), marked,
                  bar_percent(share, bytes, all), term_plain(term, style));
}

static void name_line(const struct term *term, struct buffer *out, const char *name,
                      const char *via)
{
    unsigned room = term->width > NAME_INDENT + 8 ? term->width - NAME_INDENT - 4 : 0;
    buffer_append_str(out, "    ");
    term_append(term, out, name, room);
    if (via) {
        buffer_printf(out, "%s  via ", term_style(term, STYLE_DIM));
        term_append(term, out, via, room ? room / 2 : 0);
        buffer_append_str(out, term_plain(term, STYLE_DIM));
    }
    buffer_append_char(out, '\n');
}

static void hidden_line(const struct term *term, struct buffer *out, const char *what, size_t n,
                        uint64_t bytes, uint64_t all, bool estimate)
{
    char count[UNITS_TEXT_MAX];
    if (n == 0 || bytes == 0)
        return;
    figures(term, out, bytes, all, estimate, STYLE_DIM);
    buffer_printf(out, "    %s%s %s%s\n", term_style(term, STYLE_DIM), units_format_count(count, n),
                  what, term_plain(term, STYLE_DIM));
}

static void sites_hidden(const struct term *term, struct buffer *out, size_t n, uint64_t bytes,
                         uint64_t all)
{
    hidden_line(term, out, n == 1 ? "more site" : "more sites", n, bytes, all, true);
}

static void site_lines(const struct explain *e, const struct explain_sites *sites,
                       const struct term *term, struct buffer *out)
{
    for (size_t i = 0; i < sites->n; i++) {
        if (sites->all[i].bytes < e->rss_bytes / 500 && i > 0) {
            uint64_t rest = sites->others_bytes;
            for (size_t k = i; k < sites->n; k++)
                rest += sites->all[k].bytes;
            sites_hidden(term, out, sites->others + sites->n - i, rest, e->rss_bytes);
            return;
        }
        figures(term, out, sites->all[i].bytes, e->rss_bytes, true, STYLE_PLAIN);
        name_line(term, out, sites->all[i].text, sites->all[i].via);
    }
    sites_hidden(term, out, sites->others, sites->others_bytes, e->rss_bytes);
}

static bool kind_is_estimate(const struct explain *e, enum explain_kind kind)
{
    for (uint32_t i = 0; i < e->n_parts; i++)
        if (e->parts[i].kind == kind && e->parts[i].marks & EXPLAIN_ESTIMATE)
            return true;
    return false;
}

static void part_lines(const struct explain *e, enum explain_kind kind, size_t top,
                       const struct term *term, struct buffer *out)
{
    size_t first, hidden;
    uint64_t hidden_bytes;
    size_t n = explain_shown(e, kind, top, &first, &hidden_bytes, &hidden);
    for (size_t i = first; i < first + n; i++) {
        const struct explain_part *part = &e->parts[i];
        figures(term, out, part->bytes, e->rss_bytes, part->marks & EXPLAIN_ESTIMATE, STYLE_PLAIN);
        name_line(term, out, part->name, NULL);
    }
    hidden_line(term, out, "more", hidden, hidden_bytes, e->rss_bytes, kind_is_estimate(e, kind));
}

static void kind_lines(const struct explain *e, enum explain_kind kind,
                       const struct explain_sites *sites, size_t top, const struct term *term,
                       struct buffer *out)
{
    uint64_t bytes = explain_sum(e, kind);
    if (bytes == 0)
        return;
    figures(term, out, bytes, e->rss_bytes, kind_is_estimate(e, kind), STYLE_TITLE);
    struct bar_part part = {.value = bytes};
    buffer_printf(out, "  %s%s%s", term_style(term, looks[kind].style), explain_kind_title(kind),
                  term_plain(term, looks[kind].style));
    if (kind == EXPLAIN_HEAP)
        buffer_append_str(out, e->live_known ? ": blocks in use, by call site"
                                             : ": in use or free, no book tells");
    if (!term->width || term->width >= BARS_FROM) {
        bar_divide(&part, 1, e->rss_bytes, BAR_COLUMNS);
        buffer_printf(out, "  %s", term_style(term, looks[kind].style));
        for (unsigned i = 0; i < part.cells; i++)
            buffer_append_str(out, term->utf8 ? "█" : "#");
        buffer_append_str(out, term_plain(term, looks[kind].style));
    }
    buffer_append_char(out, '\n');
    if (kind == EXPLAIN_HEAP && sites)
        site_lines(e, sites, term, out);
    else
        part_lines(e, kind, top, term, out);
}

void explain_print_bar(const struct explain *e, unsigned columns, const struct term *term,
                       struct buffer *out)
{
    struct bar_part parts[EXPLAIN_KINDS];
    for (int i = 0; i < EXPLAIN_KINDS; i++)
        parts[i] = (struct bar_part){.value = explain_sum(e, i)};
    bar_divide(parts, EXPLAIN_KINDS, e->rss_bytes ? e->rss_bytes : 1, columns);
    for (int i = 0; i < EXPLAIN_KINDS; i++) {
        if (!parts[i].cells)
            continue;
        buffer_append_str(out, term_style(term, looks[i].style));
        for (unsigned k = 0; k < parts[i].cells; k++)
            if (term->color && term->utf8)
                buffer_append_str(out, "█");
            else
                buffer_append_char(out, looks[i].letter);
        buffer_append_str(out, term_plain(term, looks[i].style));
    }
}

static void notes(const struct explain *e, const struct term *term, struct buffer *out)
{
    char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
    if (e->live_known && e->absent_bytes)
        buffer_printf(out, "Not in the sum: %s of %s in use on the heap are not resident.\n",
                      units_format_bytes(a, e->absent_bytes, UNITS_DECIMAL),
                      units_format_bytes(b, e->live_bytes, UNITS_DECIMAL));
    if (e->swap_bytes)
        buffer_printf(out, "Not in the sum: %s in swap.\n",
                      units_format_bytes(a, e->swap_bytes, UNITS_DECIMAL));
    if (e->hugetlb_bytes)
        buffer_printf(out, "Not in the sum: %s in pages of hugetlbfs.\n",
                      units_format_bytes(a, e->hugetlb_bytes, UNITS_DECIMAL));
    if (!e->memory_read)
        buffer_append_str(out, "Its memory may not be read (ptrace rights): runtimes are told by "
                               "the size and alignment of mappings only.\n");
    uint64_t huge = 0;
    for (uint32_t i = 0; i < e->n_parts; i++)
        huge += e->parts[i].huge_bytes;
    if (huge)
        buffer_printf(out, "%s of it in huge pages.\n", units_format_bytes(a, huge, UNITS_DECIMAL));
    (void)term;
}

void explain_print(const struct explain *e, const struct explain_sites *sites, size_t top,
                   const struct term *term, struct buffer *out)
{
    char rss[UNITS_TEXT_MAX], n[UNITS_TEXT_MAX], threads[UNITS_TEXT_MAX];
    buffer_printf(out, "%s resident in %s mappings, %s thread%s\n",
                  units_format_bytes(rss, e->rss_bytes, UNITS_DECIMAL),
                  units_format_count(n, e->n_mappings), units_format_count(threads, e->n_threads),
                  e->n_threads == 1 ? "" : "s");
    unsigned columns = term->width && term->width < 80 ? term->width : 80;
    explain_print_bar(e, columns, term, out);
    buffer_append_char(out, '\n');
    for (int i = 0; i < EXPLAIN_KINDS; i++)
        kind_lines(e, i, sites, top, term, out);
    notes(e, term, out);
}

struct named {
    enum explain_kind kind;
    uint64_t bytes;
};

static int by_size(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    return a->bytes < b->bytes ? 1 : a->bytes > b->bytes ? -1 : (int)a->kind - (int)b->kind;
}

void explain_print_line(const struct explain *e, const struct term *term, struct buffer *out)
{
    struct named kinds[EXPLAIN_KINDS];
    const char *comma = "";
    for (int i = 0; i < EXPLAIN_KINDS; i++)
        kinds[i] = (struct named){i, explain_sum(e, i)};
    qsort(kinds, EXPLAIN_KINDS, sizeof(kinds[0]), by_size);
    for (int i = 0; i < EXPLAIN_KINDS; i++) {
        char size[UNITS_TEXT_MAX];
        if (kinds[i].bytes == 0 || kinds[i].bytes < e->rss_bytes / 100)
            break;
        buffer_append_str(out, comma);
        comma = ", ";
        size_t first, hidden;
        uint64_t hidden_bytes;
        /* A runtime says more by its name. */
        if (kinds[i].kind == EXPLAIN_RUNTIME &&
            explain_shown(e, EXPLAIN_RUNTIME, 1, &first, &hidden_bytes, &hidden) == 1 &&
            e->parts[first].bytes >= kinds[i].bytes / 2)
            term_append(term, out, e->parts[first].name, 0);
        else
            buffer_append_str(out, explain_kind_title(kinds[i].kind));
        buffer_printf(out, " %s", units_format_bytes(size, kinds[i].bytes, UNITS_DECIMAL));
    }
}
