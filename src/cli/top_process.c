/* The page of one process. See top.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/ps.h"
#include "cli/top.h"
#include "ledger/follow.h"
#include "ledger/host.h"
#include "ledger/ledger.h"

enum {
    FACT_WIDTH = 38, /* of a label and its figure: two stand side by side in 80 columns */
    NOTE_MAX = 48,
};

static void section(struct top *t, const char *title)
{
    buffer_printf(&t->text, "\n%s%s%s\n", term_style(&t->term, STYLE_TITLE), title,
                  term_plain(&t->term, STYLE_TITLE));
}

/* ---- figures ---- */

struct facts {
    struct top *t;
    const struct top_row *row;
    unsigned columns, at; /* facts in a line, and in this line already */
};

static void fact(struct facts *f, const char *label, const char *value, const char *note,
                 enum term_style style)
{
    const struct term *term = &f->t->term;
    struct buffer *out = &f->t->text;
    if (f->at == 0)
        buffer_append_str(out, "  ");
    buffer_printf(out, "%s%-12s%s%s%11s%s", term_style(term, STYLE_DIM), label,
                  term_plain(term, STYLE_DIM), term_style(term, style), value,
                  term_plain(term, style));
    unsigned used = 12 + 11;
    if (*note) {
        buffer_printf(out, " %s", term_style(term, STYLE_DIM));
        used += 1 + term_append(term, out, note, FACT_WIDTH - used - 2);
        buffer_append_str(out, term_plain(term, STYLE_DIM));
    }
    if (++f->at == f->columns) {
        buffer_append_char(out, '\n');
        f->at = 0;
    } else {
        buffer_printf(out, "%*s", used < FACT_WIDTH ? (int)(FACT_WIDTH - used) : 1, "");
    }
}

static void facts_end(struct facts *f)
{
    if (f->at)
        buffer_append_char(&f->t->text, '\n');
    f->at = 0;
}

static void bytes_fact(struct facts *f, const char *label, enum top_figure figure, const char *note)
{
    char text[UNITS_TEXT_MAX];
    const struct top_figures *own = &f->row->own;
    if (own->known >> figure & 1)
        fact(f, label, units_format_bytes(text, (uint64_t)own->value[figure], UNITS_DECIMAL), note,
             STYLE_PLAIN);
    else
        fact(f, label, "-", "", STYLE_DIM);
}

static void rate_fact(struct facts *f, const char *label, enum top_figure figure)
{
    char text[UNITS_TEXT_MAX], rate[UNITS_TEXT_MAX + 8];
    const struct top_figures *own = &f->row->own;
    if (!(own->known >> figure & 1)) {
        fact(f, label, "-", "not yet", STYLE_DIM);
        return;
    }
    int64_t value = own->value[figure];
    units_format_bytes(text, value < 0 ? -(uint64_t)value : (uint64_t)value, UNITS_DECIMAL);
    snprintf(rate, sizeof(rate), "%s%s/s", value < 0 ? "-" : value ? "+" : "", text);
    fact(f, label, rate, "", top_rate_style(value, host_system(f->t->source.host)));
}

/* "now", "12s ago"; "" where it is not known. */
static void old_note(char note[static NOTE_MAX], const struct top_row *row, enum top_fact fact)
{
    char age[TOP_SIZE_MAX];
    int64_t ns;
    if (!top_row_fact(row, fact, &ns))
        note[0] = '\0';
    else if (ns < (int64_t)(2 * NS_PER_S))
        snprintf(note, NOTE_MAX, "now");
    else
        snprintf(note, NOTE_MAX, "%s ago", top_age(age, (uint64_t)ns));
}

static void figures_append(struct top *t, const struct top_row *row)
{
    char when[NOTE_MAX], details[NOTE_MAX], text[UNITS_TEXT_MAX];
    int64_t oom;
    unsigned columns = (t->term.width > 2 ? t->term.width - 2 : 1) / FACT_WIDTH;
    struct facts f = {t, row, columns < 1 ? 1 : columns < 3 ? columns : 3, 0};
    old_note(when, row, TOP_FACT_PSS_AGE);
    old_note(details, row, TOP_FACT_DETAILS_AGE);
    section(t, "Memory");
    bytes_fact(&f, "RSS", TOP_RSS, "resident");
    bytes_fact(&f, "PSS", TOP_PSS, when);
    bytes_fact(&f, "USS", TOP_USS, when);
    bytes_fact(&f, "anonymous", TOP_ANON, details);
    bytes_fact(&f, "files", TOP_FILE, details);
    bytes_fact(&f, "shared mem", TOP_SHMEM, details);
    bytes_fact(&f, "swap", TOP_SWAP, details);
    bytes_fact(&f, "dirty", TOP_DIRTY, when);
    bytes_fact(&f, "peak RSS", TOP_PEAK, "ever");
    bytes_fact(&f, "VMS", TOP_VMS, "address space");
    bytes_fact(&f, "heap", TOP_HEAP, "live, by its books");
    bytes_fact(&f, "pinned", TOP_PINNED, "by its books");
    bytes_fact(&f, "devices", TOP_DEVICE, "by its books");
    if (row->own.known >> TOP_MAJOR_FAULTS & 1)
        fact(&f, "disk faults",
             units_format_count(text, (uint64_t)row->own.value[TOP_MAJOR_FAULTS]), details,
             STYLE_PLAIN);
    if (top_row_fact(row, TOP_FACT_OOM, &oom))
        fact(&f, "OOM score", units_format_count(text, (uint64_t)oom), when, STYLE_PLAIN);
    facts_end(&f);
    section(t, "Growth of the resident memory");
    rate_fact(&f, "10 seconds", TOP_RATE_10S);
    rate_fact(&f, "1 minute", TOP_RATE_1MIN);
    rate_fact(&f, "10 minutes", TOP_RATE_10MIN);
    facts_end(&f);
}

/* ---- who it is ---- */

static void named(struct top *t, const char *label, const char *text)
{
    buffer_printf(&t->text, "  %s%-11s%s ", term_style(&t->term, STYLE_DIM), label,
                  term_plain(&t->term, STYLE_DIM));
    term_append(&t->term, &t->text, text, t->term.width > 30 ? t->term.width - 15 : 15);
    buffer_append_char(&t->text, '\n');
}

/* A command line in as many lines as it takes, six at most. */
static void command_append(struct top *t, const char *command)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer safe = BUFFER_INIT(TOP_TEXT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer wrapped = BUFFER_INIT(TOP_TEXT_MAX);
    term_append(&t->term, &safe, *command ? command : "-", 0);
    term_wrap(&wrapped, buffer_string(&safe), 2, t->term.width > 20 ? t->term.width - 1 : 20);
    int lines = 0;
    for (const char *p = buffer_string(&wrapped); *p && lines < 6; p++) {
        lines += *p == '\n';
        buffer_append_char(&t->text, *p);
    }
}

static void named_if(struct top *t, const char *label, const char *text)
{
    if (text && *text)
        named(t, label, text);
}

static void cgroup_append(struct top *t, const struct top_row *row)
{
    char limit[UNITS_TEXT_MAX], room[UNITS_TEXT_MAX], text[2 * UNITS_TEXT_MAX + 32];
    int64_t limit_bytes, headroom_bytes, rank;
    named_if(t, "cgroup", row->cgroup);
    snprintf(text, sizeof(text), row->facts_unknown >> TOP_FACT_LIMIT & 1 ? "-" : "none");
    if (top_row_fact(row, TOP_FACT_LIMIT, &limit_bytes) &&
        top_row_fact(row, TOP_FACT_HEADROOM, &headroom_bytes))
        snprintf(text, sizeof(text), "%s, %s of it free",
                 units_format_bytes(limit, (uint64_t)limit_bytes, UNITS_DECIMAL),
                 units_format_bytes(room, (uint64_t)headroom_bytes, UNITS_DECIMAL));
    if (row->cgroup)
        named(t, "limit", text);
    named_if(t, "container", row->container);
    named_if(t, "pod", row->pod);
    named_if(t, "job", row->job);
    if (top_row_fact(row, TOP_FACT_RANK, &rank)) {
        snprintf(text, sizeof(text), "%lld", (long long)rank);
        named(t, "rank", text);
    }
}

static void identity_append(struct top *t, const struct top_row *row)
{
    char text[UNITS_TEXT_MAX];
    int64_t age_ns;
    buffer_append_str(&t->text, term_style(&t->term, STYLE_TITLE));
    term_append(&t->term, &t->text, top_column_text(TOP_COLUMN_PROGRAM, row), 40);
    buffer_printf(&t->text, "%s  PID %d", term_plain(&t->term, STYLE_TITLE), (int)row->pid);
    if (row->parent > 0)
        buffer_printf(&t->text, ", child of %d", (int)row->parent);
    if (row->user) {
        buffer_append_str(&t->text, ", user ");
        term_append(&t->term, &t->text, row->user, 24);
    }
    if (row->own.known >> TOP_THREADS & 1)
        buffer_printf(&t->text, ", %s thread%s",
                      units_format_count(text, (uint64_t)row->own.value[TOP_THREADS]),
                      row->own.value[TOP_THREADS] == 1 ? "" : "s");
    if (top_row_fact(row, TOP_FACT_AGE, &age_ns))
        buffer_printf(&t->text, ", %s old", units_format_duration(text, (uint64_t)age_ns));
    buffer_append_str(&t->text, t->paused ? "  (paused)\n" : "\n");
    command_append(t, top_column_text(TOP_COLUMN_COMMAND, row));
    named_if(t, "program", row->exe);
    cgroup_append(t, row);
}

/* ---- its books ---- */

static const char *advice(enum host_tracked tracked)
{
    switch (tracked) {
    case HOST_TRACKED_YES:
        return "Every allocation of its heap is accounted, by the line that made it.";
    case HOST_TRACKED_ASKED:
        return "It was started with the tracker but keeps no book: it may have allocated too little "
               "so far, its books may lie elsewhere (--dir), or it may have been refused one. memoir "
               "doctor tells what could be wrong.";
    case HOST_TRACKED_NOT_ASKED:
        return "It was started without the tracker. Start it by: memoir run PROGRAM, and every "
               "allocation is accounted by the line that made it.";
    case HOST_TRACKED_STATIC:
        return "It is a static program: nothing can be preloaded into it. Link it dynamically, or "
               "let it report by itself with -lmemoir.";
    case HOST_TRACKED_GO:
        return "Go's runtime has an allocator of its own, which calls no malloc. Go's own profiles "
               "(runtime/pprof) tell of its heap; what C code in it allocates can be tracked if it "
               "is started by memoir run.";
    case HOST_TRACKED_SETUID:
        return "The loader preloads nothing into setuid programs and those with capabilities. Start "
               "it by memoir run as the user that it becomes.";
    case HOST_TRACKED_32BIT:
        return "It is a 32-bit program; the tracker is a 64-bit library. Build it for 64 bits.";
    case HOST_TRACKED_MACHINE:
        return "It is a program of another processor, which an emulator runs.";
    case HOST_TRACKED_LIBC:
        return "It has another C library than the tracker was built for (musl, say). Let it report by "
               "itself with -lmemoir.";
    case HOST_TRACKED_KERNEL:
        return "A thread of the kernel has no memory of its own.";
    case HOST_TRACKED_UNKNOWN:
        break;
    }
    return "It is another user's, or was not looked at yet: only root may see how it was started.";
}

static int books_append(struct top *t, const struct top_row *row, bool outside)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer title = BUFFER_INIT(256);
    enum host_tracked tracked = host_tracked_find(row->tracked);
    buffer_printf(&title, "Tracked: %s", host_tracked_name(tracked));
    section(t, buffer_string(&title));
    term_wrap(&t->text, advice(tracked), 2, t->term.width < 100 ? t->term.width : 100);
    if (outside && tracked == HOST_TRACKED_YES)
        term_wrap(&t->text, "Most of its resident memory is not heap, and so is not accounted.", 2,
                  t->term.width < 100 ? t->term.width : 100);
    if (!row->has_book)
        return 0;
    buffer_printf(&t->text, "  More: memoir sites %d, memoir leaks %d, memoir flame %d\n",
                  (int)row->pid, (int)row->pid, (int)row->pid);
    MEMOIR_CLEANUP(query_sheet_freep)
    struct query_sheet *sheet = NULL;
    struct table_layout layout = {.header = true};
    int r = ps_sheet(follow_ledger(t->source.follow), (uint64_t)row->pid, true, &sheet);
    if (r == 0 && sheet->table.n_rows) {
        section(t, "What its books say");
        r = table_print(&sheet->table, &layout, &t->term, &t->text);
    }
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer sites = BUFFER_INIT(TOP_TEXT_MAX);
    r = top_sites_append(t, row, &sites);
    if (r < 0 || !sites.len)
        return r;
    section(t, "Call sites that hold the most");
    buffer_append(&t->text, sites.data, sites.len);
    return 0;
}

int top_page_process(struct top *t)
{
    const struct top_row *row = top_chosen(t);
    if (!row) {
        buffer_printf(&t->text,
                      "PID %d is gone.\n\n  How it ended: memoir exited %d\n  Esc leads back.\n",
                      (int)t->chosen, (int)t->chosen);
        return 0;
    }
    identity_append(t, row);
    figures_append(t, row);
    bool outside = top_explain_append(t, row->pid);
    top_chart_recent(t, row);
    top_chart_history(t, row);
    return books_append(t, row, outside);
}
