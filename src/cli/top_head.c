/* What stands above the list: the memory of the machine, and its devices. See top.h. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/bar.h"
#include "cli/devices.h"
#include "cli/top.h"
#include "ledger/follow.h"
#include "ledger/host.h"

enum {
    DEVICES_SHOWN = 4,
    HEIGHT_FULL = 18,    /* screens of fewer lines have no legend, no swap and no devices */
    HEIGHT_DEVICES = 22, /* and of fewer than this one device only */
    BAR_MAX = 60,
    WIDTH_LEGEND = 100, /* narrower screens have shorter names of the parts */
};

/* Parts of the machine's memory that stand together in the bar. They add up to the total. */
static const struct {
    const char *name, *brief;
    const char *glyph, *ascii;
    enum term_style style;
    uint32_t parts; /* bits of enum host_part */
} groups[] = {
    {"processes", "procs", "█", "#", STYLE_GOOD, 1u << HOST_PART_ANON},
    {"shared", "shm", "▓", "=", STYLE_MAGENTA, 1u << HOST_PART_SHMEM},
    {"huge", "huge", "▚", "H", STYLE_WARN, 1u << HOST_PART_HUGETLB},
    {"kernel", "kernel", "▒", "%", STYLE_BLUE,
     1u << HOST_PART_SLAB_RECLAIMABLE | 1u << HOST_PART_SLAB | 1u << HOST_PART_PAGE_TABLES |
         1u << HOST_PART_STACKS | 1u << HOST_PART_PERCPU},
    {"rest", "rest", "▞", "?", STYLE_PLAIN, 1u << HOST_PART_REST},
    {"files", "files", "▄", "+", STYLE_CYAN, 1u << HOST_PART_CACHE | 1u << HOST_PART_BUFFERS},
    {"free", "free", "░", ".", STYLE_DIM, 1u << HOST_PART_FREE},
};
enum { GROUPS = sizeof(groups) / sizeof(groups[0]) };

static uint64_t group_bytes(const struct host_system *system, size_t group)
{
    uint64_t bytes = 0;
    for (int p = 0; p < HOST_PARTS; p++)
        if (groups[group].parts >> p & 1)
            bytes += system->parts[p];
    return bytes;
}

/* Cells of each group, `columns` in all. What is there has one at least, taken from the largest. */
static void divide(const struct host_system *system, unsigned columns,
                   unsigned cells[static GROUPS])
{
    uint64_t before = 0, total = 0;
    for (size_t g = 0; g < GROUPS; g++)
        total += group_bytes(system, g);
    size_t largest = 0;
    for (size_t g = 0; g < GROUPS; g++) {
        uint64_t after = before + group_bytes(system, g);
        double share = total ? (double)columns / (double)total : 0;
        cells[g] =
            (unsigned)((double)after * share + 0.5) - (unsigned)((double)before * share + 0.5);
        before = after;
        largest = cells[g] > cells[largest] ? g : largest;
    }
    for (size_t g = 0; g < GROUPS; g++)
        if (!cells[g] && group_bytes(system, g) && cells[largest] > GROUPS) {
            cells[g]++;
            cells[largest]--;
        }
}

void top_memory_bar(const struct term *term, const struct host_system *system, unsigned columns,
                    struct buffer *out)
{
    unsigned cells[GROUPS];
    divide(system, columns, cells);
    for (size_t g = 0; g < GROUPS; g++) {
        if (!cells[g])
            continue;
        buffer_append_str(out, term_style(term, groups[g].style));
        for (unsigned i = 0; i < cells[g]; i++)
            buffer_append_str(out, term->utf8 ? groups[g].glyph : groups[g].ascii);
        buffer_append_str(out, term_plain(term, groups[g].style));
    }
}

void top_memory_legend(const struct term *term, const struct host_system *system,
                       struct buffer *out)
{
    char size[TOP_SIZE_MAX];
    bool brief = term->width < WIDTH_LEGEND;
    for (size_t g = 0; g < GROUPS; g++) {
        uint64_t bytes = group_bytes(system, g);
        if (!bytes)
            continue;
        buffer_printf(out, "%s%s%s%s%s %s%s", term_style(term, groups[g].style),
                      term->utf8 ? groups[g].glyph : groups[g].ascii,
                      term_plain(term, groups[g].style), brief ? "" : " ",
                      brief ? groups[g].brief : groups[g].name, top_size(size, bytes),
                      brief ? " " : "  ");
    }
}

static void title_append(struct top *t, struct buffer *out)
{
    const struct top_rows *rows = &t->source.rows;
    char clock[16], count[UNITS_TEXT_MAX], every[UNITS_TEXT_MAX];
    time_t now = time(NULL);
    struct tm tm;
    strftime(clock, sizeof(clock), "%T", localtime_r(&now, &tm));
    buffer_printf(out, "%smemoir top%s %s  %s processes, %zu tracked",
                  term_style(&t->term, STYLE_TITLE), term_plain(&t->term, STYLE_TITLE), clock,
                  units_format_count(count, rows->user_processes), rows->tracked);
    if (rows->shown != rows->user_processes)
        buffer_printf(out, ", %zu shown", rows->shown);
    uint64_t left_out = host_left_out(t->source.host);
    if (left_out)
        buffer_printf(out, ", %s left out", units_format_count(count, left_out));
    if (t->paused)
        buffer_printf(out, "  %spaused%s", term_style(&t->term, STYLE_WARN),
                      term_plain(&t->term, STYLE_WARN));
    else
        buffer_printf(out, "  %severy %s%s", term_style(&t->term, STYLE_DIM),
                      units_format_duration(every, t->interval_ns),
                      term_plain(&t->term, STYLE_DIM));
    buffer_append_char(out, '\n');
}

static void memory_append(struct top *t, const struct host_system *system, bool legend,
                          struct buffer *out)
{
    char available[TOP_SIZE_MAX], total[TOP_SIZE_MAX];
    unsigned words = 30; /* " 12.4G available of 63.9G" and the name */
    unsigned columns = t->term.width > words + 10 ? t->term.width - words : 10;
    columns = columns < BAR_MAX ? columns : BAR_MAX;
    buffer_append_str(out, "Mem  ");
    top_memory_bar(&t->term, system, columns, out);
    if (system->valid & HOST_HAS_AVAILABLE) {
        enum term_style style = bar_style(system->used_bytes, system->total_bytes);
        style = style == STYLE_GOOD ? STYLE_PLAIN : style;
        buffer_printf(out, " %s%s available%s of %s", term_style(&t->term, style),
                      top_size(available, system->available_bytes), term_plain(&t->term, style),
                      top_size(total, system->total_bytes));
    } else {
        buffer_printf(out, " of %s", top_size(total, system->total_bytes));
    }
    buffer_append_char(out, '\n');
    if (!legend)
        return;
    buffer_append_str(out, "     ");
    top_memory_legend(&t->term, system, out);
    buffer_append_char(out, '\n');
}

static void pressure_append(struct top *t, const struct host_system *system, struct buffer *out)
{
    char used[TOP_SIZE_MAX], total[TOP_SIZE_MAX];
    buffer_append_str(out, "Swap ");
    if (system->swap_total_bytes)
        buffer_printf(out, "%s of %s",
                      top_size(used, system->swap_total_bytes - system->swap_free_bytes),
                      top_size(total, system->swap_total_bytes));
    else
        buffer_append_str(out, "none");
    if (system->valid & HOST_HAS_PSI) {
        uint32_t some = system->some.avg10, full = system->full.avg10;
        enum term_style style = full >= 1000 || some >= 2500 ? STYLE_BAD
                                : full >= 100 || some >= 500 ? STYLE_WARN
                                                             : STYLE_PLAIN;
        buffer_printf(out,
                      "   waiting for memory: %s%u.%02u %% some, %u.%02u %% all%s of the last 10 s",
                      term_style(&t->term, style), some / 100, some % 100, full / 100, full % 100,
                      term_plain(&t->term, style));
    }
    buffer_append_char(out, '\n');
}

static void device_append(struct top *t, const struct devices_row *row, struct buffer *out)
{
    char space[DEVICES_SPACE_MAX], used[TOP_SIZE_MAX], size[TOP_SIZE_MAX];
    const struct devices_space *shown[2] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < row->n_spaces && n == 0; i++)
        if (row->spaces[i].space == MEMOIR_SPACE_DRAM)
            shown[n++] = &row->spaces[i];
    if (row->has_l1)
        shown[n++] = &row->l1;
    for (size_t i = 0; i < row->n_spaces && n == 0; i++)
        shown[n++] = &row->spaces[i];
    buffer_append_str(out, "Dev  ");
    term_append(&t->term, out, row->label, 24);
    for (size_t i = 0; i < n; i++) {
        const struct devices_space *s = shown[i];
        buffer_printf(out, "  %s ", s == &row->l1 ? "L1" : devices_space_label(space, s->name));
        if (s->capacity)
            bar_append(&t->term, out, s->used, s->capacity, t->term.width >= 100 ? 16 : 8);
        buffer_printf(out, " %s/%s", top_size(used, s->used),
                      s->capacity ? top_size(size, s->capacity) : "?");
    }
    buffer_append_char(out, '\n');
}

void top_head_append(struct top *t, struct buffer *out)
{
    const struct host_system *system = host_system(t->source.host);
    bool full = t->term.height >= HEIGHT_FULL;
    title_append(t, out);
    if (system->valid & HOST_HAS_TOTAL) {
        memory_append(t, system, full, out);
        if (full)
            pressure_append(t, system, out);
    }
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {0};
    if (!full || devices_view_take(follow_ledger(t->source.follow), NULL, &view) < 0)
        return;
    size_t most = t->term.height >= HEIGHT_DEVICES ? DEVICES_SHOWN : 1;
    for (size_t i = 0; i < view.n && i < most; i++)
        device_append(t, &view.rows[i], out);
    if (view.n > most)
        buffer_printf(out, "     %sand %zu more devices: memoir devices%s\n",
                      term_style(&t->term, STYLE_DIM), view.n - most,
                      term_plain(&t->term, STYLE_DIM));
}
