/* The pages of the machine and of help. See top.h. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/bar.h"
#include "cli/top.h"
#include "ledger/host.h"

/* ---- the machine ---- */

static void line(struct top *t, const char *name, uint64_t bytes, uint64_t total, const char *what)
{
    char text[UNITS_TEXT_MAX], percent[BAR_PERCENT_MAX];
    unsigned width = t->term.width >= 100 ? 30 : 8;
    buffer_printf(&t->text, "  %-17s %10s  ", name, units_format_bytes(text, bytes, UNITS_DECIMAL));
    if (total) {
        struct term plain = t->term;
        plain.color = false; /* a large part is no alarm */
        bar_append(&plain, &t->text, bytes, total, width);
        buffer_printf(&t->text, " %7s  ", bar_percent(percent, bytes, total));
    }
    buffer_printf(&t->text, "%s%s%s\n", term_style(&t->term, STYLE_DIM), what,
                  term_plain(&t->term, STYLE_DIM));
}

static void title(struct top *t, const char *text)
{
    buffer_printf(&t->text, "%s%s%s\n", term_style(&t->term, STYLE_TITLE), text,
                  term_plain(&t->term, STYLE_TITLE));
}

static void parts_append(struct top *t, const struct host_system *s)
{
    static const struct {
        const char *name, *what;
    } words[HOST_PARTS] = {
        [HOST_PART_ANON] = {"processes", "memory that belongs to no file"},
        [HOST_PART_SHMEM] = {"shared memory", "and files in tmpfs"},
        [HOST_PART_CACHE] = {"files", "given back when needed"},
        [HOST_PART_BUFFERS] = {"buffers", "of disks, given back on demand"},
        [HOST_PART_SLAB_RECLAIMABLE] = {"kernel, can go", "names and inodes of files"},
        [HOST_PART_SLAB] = {"kernel, stays", "objects of the kernel"},
        [HOST_PART_PAGE_TABLES] = {"page tables", ""},
        [HOST_PART_STACKS] = {"kernel stacks", "of all threads"},
        [HOST_PART_PERCPU] = {"per CPU", ""},
        [HOST_PART_HUGETLB] = {"huge pages", "set aside, used or not"},
        [HOST_PART_FREE] = {"free", ""},
        [HOST_PART_REST] = {"rest", "not attributed by the kernel"},
    };
    uint64_t sum = 0;
    for (int p = 0; p < HOST_PARTS; p++) {
        sum += s->parts[p];
        line(t, words[p].name, s->parts[p], s->total_bytes, words[p].what);
    }
    line(t, "total", sum, 0, "the sum of these");
    if (s->excess_bytes)
        line(t, "counted twice", s->excess_bytes, 0,
             "parts overlap: they were read one after another");
}

static void pressure_append(struct top *t, const char *name, const struct pressure_stall *p)
{
    buffer_printf(&t->text, "  %-17s %4u.%02u %% %4u.%02u %% %4u.%02u %%\n", name, p->avg10 / 100,
                  p->avg10 % 100, p->avg60 / 100, p->avg60 % 100, p->avg300 / 100, p->avg300 % 100);
}

int top_page_machine(struct top *t)
{
    const struct host_system *s = host_system(t->source.host);
    if (!(s->valid & HOST_HAS_TOTAL)) {
        buffer_append_str(&t->text, "/proc/meminfo could not be read.\n");
        return 0;
    }
    title(t, "Memory of the machine");
    buffer_append_str(&t->text, "  ");
    top_memory_bar(&t->term, s, t->term.width > 8 ? t->term.width - 4 : 4, &t->text);
    buffer_append_str(&t->text, "\n  ");
    top_memory_legend(&t->term, s, &t->text);
    buffer_append_str(&t->text, "\n\n");
    parts_append(t, s);
    buffer_append_char(&t->text, '\n');
    if (s->valid & HOST_HAS_AVAILABLE) {
        line(t, "available", s->available_bytes, s->total_bytes, "for new programs");
        line(t, "used", s->used_bytes, s->total_bytes, "total less available");
    }
    line(t, "active", s->active_bytes, s->total_bytes, "used lately");
    line(t, "inactive", s->inactive_bytes, s->total_bytes, "the first to go");
    line(t, "dirty", s->dirty_bytes, s->total_bytes, "to be written to disks");
    if (s->swap_total_bytes)
        line(t, "swap", s->swap_total_bytes - s->swap_free_bytes, s->swap_total_bytes, "");
    buffer_append_char(&t->text, '\n');
    if (s->valid & HOST_HAS_PSI) {
        title(t, "Waiting for memory      10 s     1 min     5 min");
        pressure_append(t, "some task", &s->some);
        pressure_append(t, "all tasks", &s->full);
    } else {
        buffer_append_str(&t->text, "  This kernel tells no pressure (PSI).\n");
    }
    return 0;
}

/* ---- help ---- */

int top_page_help(struct top *t)
{
    static const char *const keys[][2] = {
        {"up, down, PgUp, PgDn", "choose a process; also j, k, Home, End, wheel, click"},
        {"Enter, double click", "all about it: figures, chart, books, call sites"},
        {"/", "filter by program, user, command or PID; Esc: all"},
        {"s, click a heading", "sort; < > by the column beside, r the other way round"},
        {"M, N", "sort by resident memory, by PID"},
        {"t", "tree; left folds a process, and sums up its family"},
        {"u", "processes of one user, and what users hold"},
        {"T", "only processes that keep a book"},
        {"C", "choose columns; Enter keeps them for the next time"},
        {"m", "the memory of the machine, part by part"},
        {"K", "also threads of the kernel"},
        {"Space", "stand still, and go on"},
        {"+, -", "look less often, more often"},
        {"?, q", "this help, end"},
    };
    title(t, "Keys");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        buffer_printf(&t->text, "  %s%-21s%s %s\n", term_style(&t->term, STYLE_TITLE), keys[i][0],
                      term_plain(&t->term, STYLE_TITLE), keys[i][1]);
    unsigned width = t->term.width < 100 ? t->term.width : 100;
    buffer_append_char(&t->text, '\n');
    title(t, "Figures");
    term_wrap(
        &t->text,
        "RSS counts shared pages in full, so a sum of it is too much; PSS divides them by how many share "
        "them. PSS is costly to read: a figure that is not fresh says how old it is. RATE is how the RSS "
        "grew over the last 10 seconds; it is red where that would fill the machine within 10 minutes. HEAP, "
        "PINNED and DEVICE come from the books that programs keep (memoir run PROGRAM). TREE is the RSS of a "
        "process and all below it. A dash is unknown, never 0; + after a figure: at least; ~ before it: "
        "an estimate. Sizes are decimal: 1k is 1,000 bytes.",
        2, width);
    buffer_append_char(&t->text, '\n');
    term_wrap(
        &t->text,
        "The bar of the machine adds up to its memory: processes, shared memory, huge pages, kernel, a rest "
        "that the kernel does not attribute, files (given back when needed) and free memory.",
        2, width);
    return 0;
}
