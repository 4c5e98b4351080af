/* How `memoir devices` looks. See devices.h. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "cli/devices.h"

enum {
    WIDTH_USUAL = 80, /* where the width of the terminal is not known */
    WIDTH_MAX = 120,  /* bars longer than that tell no more */
    LABEL = 9,        /* columns: "buffers  " */
    SIZE = 8,         /* "999.9 MB" */
    PERCENT = 8,      /* " 100.0 %" */
    BLOCKS_MIN = 15,  /* " 123,456 blocks" */
    BAR_MIN = 8,
    TEXT_MAX = 64 << 10,
};

/* How one line is divided. */
struct plan {
    unsigned indent, width, bar;
    unsigned blocks; /* 0: no room for them */
};

/* For the largest count, but not narrower than usual, so that bars keep their length while it grows. */
static unsigned blocks_width(const struct devices_view *view)
{
    char count[UNITS_TEXT_MAX];
    uint64_t most = 0;
    for (size_t d = 0; d < view->n; d++)
        if (view->rows[d].blocks > most)
            most = view->rows[d].blocks;
    unsigned width = (unsigned)strlen(units_format_count(count, most)) + 8;
    return width > BLOCKS_MIN ? width : BLOCKS_MIN;
}

static struct plan plan_of(const struct devices_view *view, const struct devices_style *style,
                           const struct term *term)
{
    struct plan plan = {.indent = style->indent + 2, .width = term->width};
    if (!plan.width)
        plan.width = WIDTH_USUAL;
    if (plan.width > WIDTH_MAX)
        plan.width = WIDTH_MAX;
    unsigned fixed = plan.indent + LABEL + SIZE + 3 + SIZE + 2 + PERCENT;
    unsigned blocks = blocks_width(view);
    if (plan.width >= fixed + blocks + BAR_MIN * 2)
        plan.blocks = blocks;
    fixed += plan.blocks;
    plan.bar = plan.width > fixed + BAR_MIN ? plan.width - fixed : BAR_MIN;
    return plan;
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void spaces(struct buffer *out, unsigned n)
{
    buffer_printf(out, "%*s", (int)n, "");
}

/* ---- heading ---- */

static void print_heading(const struct devices_row *row, const struct plan *plan,
                          const struct term *term, struct buffer *out)
{
    char facts[96], count[UNITS_TEXT_MAX];
    snprintf(facts, sizeof(facts), "%zu process%s, %s block%s", row->n_owners,
             row->n_owners == 1 ? "" : "es", units_format_count(count, row->blocks),
             plural(row->blocks));
    unsigned right = (unsigned)strlen(facts);
    char title[256];
    snprintf(title, sizeof(title), "Device %s%s%s", row->label, *row->node ? " on " : "",
             row->node);
    unsigned start = plan->indent - 2;
    unsigned room = plan->width > start + right + 2 ? plan->width - start - right - 2 : 12;
    spaces(out, start);
    buffer_append_str(out, term_style(term, STYLE_TITLE));
    unsigned used = term_append(term, out, title, room);
    buffer_append_str(out, term_plain(term, STYLE_TITLE));
    spaces(out, room > used ? room - used + 2 : 2);
    buffer_printf(out, "%s%s%s\n", term_style(term, STYLE_DIM), facts, term_plain(term, STYLE_DIM));
}

/* ---- lines ---- */

static void print_label(const struct plan *plan, const char *name, const struct term *term,
                        struct buffer *out)
{
    spaces(out, plan->indent);
    unsigned used = term_append(term, out, name, LABEL - 1);
    spaces(out, LABEL - used);
}

/* What comes before the bar. */
static void print_figures(const struct plan *plan, const struct devices_space *s, const char *name,
                          const struct term *term, struct buffer *out)
{
    char used[UNITS_TEXT_MAX], capacity[UNITS_TEXT_MAX];
    print_label(plan, name, term, out);
    buffer_printf(out, "%*s / %-*s  ", SIZE, units_format_bytes(used, s->used, UNITS_DECIMAL), SIZE,
                  s->capacity ? units_format_bytes(capacity, s->capacity, UNITS_DECIMAL) : "?");
}

static void print_rest(const struct plan *plan, const struct devices_space *s,
                       const struct term *term, struct buffer *out)
{
    char percent[BAR_PERCENT_MAX], count[UNITS_TEXT_MAX];
    enum term_style style = bar_style(s->used, s->capacity);
    buffer_printf(out, "%s%*s%s", term_style(term, style), PERCENT,
                  bar_percent(percent, s->used, s->capacity), term_plain(term, style));
    if (plan->blocks)
        buffer_printf(out, "%*s block%s", (int)plan->blocks - 7,
                      units_format_count(count, s->blocks), plural(s->blocks));
    if (s->capacity && s->disputed)
        buffer_append_str(out, "  disputed");
    buffer_append_char(out, '\n');
}

static void print_unknown(const struct plan *plan, const struct devices_space *s,
                          struct buffer *out, const struct term *term)
{
    buffer_append_str(out, term_style(term, STYLE_DIM));
    unsigned used =
        term_append(term, out, s->disputed ? "capacity disputed" : "capacity unknown", plan->bar);
    buffer_append_str(out, term_plain(term, STYLE_DIM));
    spaces(out, plan->bar - used);
}

static void print_space(const struct plan *plan, const struct devices_space *s,
                        const struct term *term, struct buffer *out)
{
    char label[DEVICES_SPACE_MAX];
    print_figures(plan, s, devices_space_label(label, s->name), term, out);
    if (s->capacity)
        bar_append(term, out, s->used, s->capacity, plan->bar);
    else
        print_unknown(plan, s, out, term);
    print_rest(plan, s, term, out);
}

/* The sum as a stack, and below it what it is made of, each where it stands in the stack. */
static void print_l1(const struct plan *plan, const struct devices_row *row,
                     const struct term *term, struct buffer *out)
{
    struct bar_part parts[DEVICES_L1_PARTS];
    uint64_t whole = row->l1.capacity ? row->l1.capacity : row->l1.used;
    for (int i = 0; i < DEVICES_L1_PARTS; i++)
        parts[i] = (struct bar_part){.value = row->l1_parts[i].used};
    bar_divide(parts, DEVICES_L1_PARTS, whole ? whole : 1, plan->bar);
    print_figures(plan, &row->l1, "L1 total", term, out);
    if (row->l1.capacity)
        bar_append_stack(term, out, parts, DEVICES_L1_PARTS, row->l1.capacity, plan->bar);
    else
        print_unknown(plan, &row->l1, out, term);
    print_rest(plan, &row->l1, term, out);
    for (int i = 0; i < DEVICES_L1_PARTS; i++) {
        const struct devices_space *s = &row->l1_parts[i];
        if (i == DEVICES_L1_SMALL && !s->used)
            continue; /* few programs have any */
        char used[UNITS_TEXT_MAX], count[UNITS_TEXT_MAX];
        char name[DEVICES_SPACE_MAX + 4];
        snprintf(name, sizeof(name), " %s", s->name);
        print_label(plan, name, term, out);
        buffer_printf(out, "%*s   %-*s  ", SIZE, units_format_bytes(used, s->used, UNITS_DECIMAL),
                      SIZE, "");
        size_t before = out->len;
        if (row->l1.capacity)
            bar_append_part(term, out, parts, (size_t)i, plan->bar);
        unsigned drawn = term_columns(term, buffer_string(out) + before);
        if (plan->blocks) {
            spaces(out, plan->bar - drawn + PERCENT);
            buffer_printf(out, "%*s block%s", (int)plan->blocks - 7,
                          units_format_count(count, s->blocks), plural(s->blocks));
        }
        while (out->len && !out->error && out->data[out->len - 1] == ' ')
            out->data[--out->len] = '\0';
        buffer_append_char(out, '\n');
    }
}

/* ---- the driver ---- */

/* What the driver counts, as one more memory, and how much of it is in no account. */
static void print_driver(const struct plan *plan, const struct devices_row *row,
                         const struct term *term, struct buffer *out)
{
    struct devices_space s = devices_driver_space(row);
    char bytes[UNITS_TEXT_MAX], percent[BAR_PERCENT_MAX];
    const struct devices_driver *driver = &row->driver;
    if (!driver->present)
        return;
    if (!driver->has_used) {
        print_label(plan, "driver", term, out);
        buffer_printf(out, "%sdoes not tell what is used%s\n", term_style(term, STYLE_DIM),
                      term_plain(term, STYLE_DIM));
        return;
    }
    print_figures(plan, &s, "driver", term, out);
    if (s.capacity)
        bar_append(term, out, s.used, s.capacity, plan->bar);
    else
        print_unknown(plan, &s, out, term);
    enum term_style style = bar_style(s.used, s.capacity);
    buffer_printf(out, "%s%*s%s\n", term_style(term, style), PERCENT,
                  bar_percent(percent, s.used, s.capacity), term_plain(term, style));
    if (!driver->has_unattributed || (!driver->unattributed && !driver->reserved))
        return;
    print_label(plan, "", term, out);
    buffer_printf(out, "%s%*s unattributed", term_style(term, STYLE_DIM), SIZE,
                  units_format_bytes(bytes, driver->unattributed, UNITS_DECIMAL));
    if (driver->has_reserved)
        buffer_printf(out, ", %s more reserved by the driver itself",
                      units_format_bytes(bytes, driver->reserved, UNITS_DECIMAL));
    buffer_printf(out, "%s\n", term_plain(term, STYLE_DIM));
}

/* A device that only the driver knows has one line, and not one more that says 0. */
static bool is_accounted(const struct devices_row *row, const struct devices_space *s)
{
    return !row->driver.present || s->space != MEMOIR_SPACE_DRAM || s->used || s->blocks;
}

/* ---- owners ---- */

/* "train.py 3.2 GB (PID 7)"; "train.py 3.2 GB of 3.8 GB (PID 7)" where the driver counts more; "Xorg 90.2 MB by driver (PID 9)"
 * for one that keeps no book. */
static void owner_text(const struct devices_owner *owner, struct buffer *text)
{
    char bytes[UNITS_TEXT_MAX];
    buffer_reset(text);
    if (!owner->has_book) {
        buffer_printf(
            text, "%s %s by driver (PID %u%s)", *owner->program ? owner->program : "unknown",
            owner->has_driver ? units_format_bytes(bytes, owner->driver, UNITS_DECIMAL) : "?",
            owner->driver_pid, owner->pid ? "" : " of the driver");
        return;
    }
    uint64_t n = owner->bytes ? owner->bytes : owner->by_space[MEMOIR_SPACE_SYSTEM];
    buffer_printf(text, "%s %s", owner->program, units_format_bytes(bytes, n, UNITS_DECIMAL));
    if (owner->has_driver && owner->driver > n)
        buffer_printf(text, " of %s", units_format_bytes(bytes, owner->driver, UNITS_DECIMAL));
    if (owner->pid)
        buffer_printf(text, " (PID %d)", (int)owner->pid);
}

/* As many as fit in a line; the rest are counted. */
static void print_owners(const struct plan *plan, const struct devices_row *row,
                         const struct term *term, struct buffer *out)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    unsigned at = plan->indent + LABEL;
    if (row->n_owners == 0)
        return;
    print_label(plan, "held by", term, out);
    for (size_t i = 0; i < row->n_owners; i++) {
        owner_text(&row->owners[i], &text);
        char more[48];
        int more_len = snprintf(more, sizeof(more), ", and %zu more", row->n_owners - i);
        unsigned width = term_columns(term, buffer_string(&text)) + (i ? 2 : 0);
        unsigned reserve = i + 1 < row->n_owners ? (unsigned)more_len : 0;
        if (i > 0 && at + width + reserve > plan->width) {
            buffer_append_str(out, more);
            break;
        }
        buffer_append_str(out, i ? ", " : "");
        unsigned room = plan->width > at + reserve ? plan->width - at - reserve : 1;
        at += term_append(term, out, buffer_string(&text), i ? 0 : room) + (i ? 2 : 0);
    }
    buffer_append_char(out, '\n');
}

static bool in_l1(uint32_t space)
{
    return space == MEMOIR_SPACE_L1 || space == MEMOIR_SPACE_CB || space == MEMOIR_SPACE_KERNEL ||
           space == MEMOIR_SPACE_L1_SMALL;
}

void devices_print(const struct devices_view *view, const struct devices_style *style,
                   const struct term *term, struct buffer *out)
{
    struct plan plan = plan_of(view, style, term);
    for (size_t d = 0; d < view->n; d++) {
        const struct devices_row *row = &view->rows[d];
        if (d > 0)
            buffer_append_char(out, '\n');
        print_heading(row, &plan, term, out);
        bool l1_done = !row->has_l1;
        for (size_t i = 0; i < row->n_spaces; i++) {
            if (!is_accounted(row, &row->spaces[i]))
                continue;
            if (!in_l1(row->spaces[i].space))
                print_space(&plan, &row->spaces[i], term, out);
            else if (!l1_done)
                print_l1(&plan, row, term, out);
            l1_done |= in_l1(row->spaces[i].space);
        }
        print_driver(&plan, row, term, out);
        if (style->owners)
            print_owners(&plan, row, term, out);
    }
}
