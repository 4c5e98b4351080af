/* memoir sites: which lines of a program hold its memory, now, over time, and compared with before. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/profile_source.h"
#include "cli/sites.h"
#include "cli/space_word.h"
#include "cli/view.h"
#include "cli/view_process.h"
#include "profile/headline.h"
#include "profile/profile.h"
#include "profile/snapshot.h"
#include "profile/words.h"
#include "query/document.h"

enum {
    OUTPUT_MAX = 512 << 20,
    TOP_SCREEN = 20, /* rows on screen unless asked for more */
    TOP_STACKS = 5,  /* whole stacks take more room */
    EVERY_MIN_MS = 50,
};
#define TOP_UNSET UINT64_MAX

struct sites_values {
    struct command_common common;
    const char *dir, *space, *min, *save;
    uint64_t top, every_ns, for_ns;
    struct view_options view; /* of these only where, show, sort and columns of --by */
    const char *by_word;
    int by;
    bool live, allocated, blocks, stacks, diff, no_names, at_peak;
    bool json, csv, no_header;
    int color;
};

static const struct sites_values defaults = {.top = TOP_UNSET};

#define AT(field) offsetof(struct sites_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"by", 'b', OPTION_STRING, AT(by_word), "WHAT",
     "a row for each caller (the line that asked), stack, function, file, module, space or device "
     "(default: caller); or columns of the table lines, as in memoir query"},
    VIEW_OPTION_WHERE,
    VIEW_OPTION_SHOW,
    {"sort", 0, OPTION_STRING, AT(view.sort), "COLUMNS",
     "the order, as in memoir query; --where, --show and --sort print the table lines as memoir query does"},
    {"top", 'n', OPTION_NUMBER, AT(top), "N",
     "show N rows at most; 0 shows all (default: 20 on screen, 5 with --stacks, all in JSON and "
     "CSV)"},
    {"limit", 0, OPTION_NUMBER, AT(top), "N", "the same, as other commands call it"},
    {"live", 0, OPTION_FLAG, AT(live),
     .help = "those that hold the most bytes first (the default)"},
    {"allocated", 0, OPTION_FLAG, AT(allocated),
     .help = "those that asked for the most bytes in all first"},
    {"blocks", 0, OPTION_FLAG, AT(blocks), .help = "those that hold the most blocks first"},
    {"space", 0, OPTION_STRING, AT(space), "SPACE",
     "only this kind of memory: heap, dram, l1, pinned ..."},
    {"min", 'm', OPTION_STRING, AT(min), "SIZE",
     "only rows with this much and more of what they are sorted by: 64K, 25.5MB; with --diff, "
     "that changed so much"},
    {"at-peak", 0, OPTION_FLAG, AT(at_peak),
     .help = "what each held when the process held the most, instead of what it holds now"},
    {"stacks", 's', OPTION_FLAG, AT(stacks), .help = "show the whole stack of each row"},
    {"save", 0, OPTION_STRING, AT(save), "FILE",
     "write all sites with their names to FILE, to look at them or compare them later"},
    {"diff", 0, OPTION_FLAG, AT(diff),
     .help = "compare two moments, each a file that --save wrote or a process as it is now; what "
             "grew most comes first"},
    {"every", 'e', OPTION_DURATION, AT(every_ns), "TIME",
     "show it again and again, with what happened in between each second"},
    {"for", 0, OPTION_DURATION, AT(for_ns), "TIME",
     "with --every: end after this time; alone: look twice, so far apart, and show what happened "
     "in between each second"},
    {"no-names", 0, OPTION_FLAG, AT(no_names),
     .help = "do not look up functions and lines: faster, sites are then modules and offsets"},
    /* What other commands call the same. */
    {"no-sites", 0, OPTION_FLAG, AT(no_names), .hidden = true},
    {"limit", 0, OPTION_NUMBER, AT(top), "N", .hidden = true},
    OPTION_JSON,
    OPTION_CSV,
    OPTION_NO_HEADER,
    OPTION_COLOR,
    OPTIONS_ELSEWHERE,
    OPTION_DIR,
    {0},
};

static const struct command_example examples[] = {
    {"memoir sites 4242", "the lines of a process that hold the most memory"},
    {"memoir sites server --by function --top 10", "all processes of a program, by function"},
    {"memoir sites 4242 --stacks --top 3", "how the largest came about"},
    {"memoir sites 4242 --at-peak", "which lines held the most when the process was largest"},
    {"memoir sites 4242 --for 10s", "which lines allocate now, and how fast what they hold grows"},
    {"memoir sites 4242 --save before.sites", "keep this moment"},
    {"memoir sites --diff before.sites 4242", "what has grown since"},
    {"memoir sites 4242 --where 'bytes>1MB' --by space --json", "as memoir query answers"},
    {"memoir sites 4242 --json | jq '.sites[] | {site, live_bytes}'", "for programs"},
    {0},
};

static const struct command_fields fields[] = {
    {"Fields of a row", sites_columns},
    {"Fields of a row of --diff", sites_diff_columns},
    {0},
};

static const struct command_section sections[] = {
    {"EXACT AND ESTIMATED",
     "Every block counts for the line that asked for it, so all figures are exact, in every grouping "
     "but one. By stack, programs that sample their stacks (the default of memoir run) have the exact "
     "figures of each line divided among the stacks that were seen to lead to it: such rows are marked "
     "with ~ on screen and \"estimated\" in JSON and CSV, and their sum is exact. So are lines of Python scripts, "
     "which only sampling finds. With MEMOIR_STACKS=all stacks are exact too."},
    {"AT THE PEAK",
     "A process writes down what each line holds when its heap has fallen below its peak. The sum over "
     "all lines differs from the recorded peak by at most the error that memoir run prints with it, and "
     "each line is as it was at one moment of that time. With --at-peak, live stands for that "
     "in all forms of output; \"at_peak\" in JSON says so. Accounts have peaks of their own: the heap's and a "
     "device's need not be at the same time."},
    {"WHAT IS THE SAME AT TWO MOMENTS",
     "A site is its place in the files of the program and of its libraries, which is the same in every "
     "run, wherever they are loaded. Where the two moments are of different builds, sites are the same if "
     "function, file and line are."},
    {"JSON",
     "The document is one object: \"schema\" (\"memoir.sites/3\"), \"time\", \"pid\", \"program\", "
     "\"processes\", \"taken\", \"by\", \"at_peak\", \"matched\" (rows before --top), \"bytes\", \"blocks\", "
     "\"allocated\" and \"allocated_blocks\" (of all sites), \"bytes_estimated\" (the part of "
     "it that is in rows that are estimates), \"accounted\" (what the "
     "process holds, with and without a site; null in --diff), \"interval\" (seconds between two moments, else "
     "null), and \"sites\", an array of objects with the fields above. With --by stack and --stacks each "
     "has \"frames\", an array of \"function\", \"file\", \"line\", \"module\", \"offset\" and \"inlined\" "
     "from the innermost on."},
    {0},
};

/* ---- what was asked for ---- */

struct ask {
    const struct sites_values *v;
    struct rows_filter filter;
    enum rows_measure measure;
    uint64_t min;
    size_t top; /* SIZE_MAX: all */
    struct profile_source source;
};

/* One of rows_by_words; below 0: none of them. */
static int by_of(const char *word)
{
    for (int i = 0; word && rows_by_words[i]; i++)
        if (strcmp(rows_by_words[i], word) == 0)
            return i;
    return word ? -1 : ROWS_BY_CALLER;
}

/* Is it a question to the table, rather than one of the ways that only this command has? */
static bool is_question(const struct sites_values *v)
{
    return v->view.where || v->view.show || v->view.sort || by_of(v->by_word) < 0;
}

static int check(const struct sites_values *v, const struct operands *operands)
{
    int wanted = v->diff ? 2 : 1;
    if (v->json && v->csv)
        return command_misuse(&cmd_sites, "--json and --csv exclude each other");
    if (is_question(v) && (v->diff || v->every_ns || v->for_ns || v->save || v->stacks))
        return command_misuse(&cmd_sites,
                              "--where, --show, --sort and columns in --by go with neither "
                              "--diff, --every, --for, --save nor --stacks");
    if (v->at_peak && (v->diff || v->every_ns || v->for_ns))
        return command_misuse(&cmd_sites, "--at-peak goes with neither --diff, --every nor --for");
    if (v->live + v->allocated + v->blocks > 1)
        return command_misuse(&cmd_sites, "--live, --allocated and --blocks exclude each other");
    if (v->diff && (v->every_ns || v->for_ns || v->save))
        return command_misuse(&cmd_sites, "--diff goes with neither --every, --for nor --save");
    if (v->save && (v->every_ns || v->for_ns))
        return command_misuse(&cmd_sites,
                              "--save is of one moment; it does not go with --every and --for");
    if (v->every_ns && v->every_ns < EVERY_MIN_MS * NS_PER_MS)
        return command_misuse(&cmd_sites, "--every cannot be faster than every 0.05 seconds");
    if (v->for_ns && v->for_ns < EVERY_MIN_MS * NS_PER_MS)
        return command_misuse(&cmd_sites, "--for cannot be shorter than 0.05 seconds");
    if (operands->n != wanted)
        return command_misuse(&cmd_sites, "%s",
                              v->diff ? "--diff takes two moments, files or processes: memoir "
                                        "sites --diff before.sites 4242"
                                      : "of which process? memoir sites PID; memoir ps lists them");
    return COMMAND_OK;
}

static int ask_parse(struct ask *ask, const struct sites_values *v)
{
    *ask = (struct ask){
        .v = v,
        .filter.by = (enum rows_by)(by_of(v->by_word) < 0 ? ROWS_BY_CALLER : by_of(v->by_word)),
        .measure = v->allocated ? ROWS_ALLOCATED
                   : v->blocks  ? ROWS_BLOCKS
                                : ROWS_LIVE,
        .top = v->top == 0           ? SIZE_MAX
               : v->top != TOP_UNSET ? (size_t)v->top
               : v->json || v->csv   ? SIZE_MAX
               : v->stacks           ? TOP_STACKS
                                     : TOP_SCREEN,
    };
    if (v->stacks && ask->filter.by == ROWS_BY_CALLER)
        ask->filter.by = ROWS_BY_STACK;
    if (v->min && units_parse_bytes(v->min, &ask->min) < 0)
        return command_misuse(&cmd_sites, "invalid size '%s' for --min: try 64K, 25.5MB or 4096",
                              v->min);
    return v->space ? space_word_parse(&cmd_sites, v->space, false, &ask->filter.space)
                    : COMMAND_OK;
}

/* ---- rows ---- */

/* Names that grouping needs; those that only the rows shown need come later. */
static int name_for_groups(struct ask *ask, struct profile *p)
{
    int r = ask->filter.by < ROWS_BY_SPACE ? profile_source_headlines(&ask->source, p) : 0;
    if (r < 0 || (ask->filter.by != ROWS_BY_FUNCTION && ask->filter.by != ROWS_BY_FILE))
        return r;
    return profile_source_name(&ask->source, p, PROFILE_NAMES_INNERMOST);
}

static void name_shown(struct ask *ask, struct rows *rows)
{
    for (size_t i = 0; i < rows->n && i < ask->top; i++) {
        const struct row *row = &rows->list[i];
        size_t n = !row->frames ? 0 : ask->filter.by == ROWS_BY_STACK ? row->n_frames : 1;
        const uint32_t *frames = n && row->inside ? row->frames - 1 : row->frames;
        n += n && row->inside; /* what the line calls, too */
        /* The profile is ours: rows only borrow it. */
        for (size_t k = 0; k < n; k++)
            profile_name((struct profile *)row->profile, ask->source.symbolizer, frames[k]);
    }
}

static int rows_take(struct ask *ask, const struct profile *now, const struct profile *before,
                     bool growth, struct rows *rows)
{
    int r = before ? headlines_agree((struct profile *)now, (struct profile *)before) : 0;
    if (before && r == 0)
        r = rows_add(rows, before, &ask->filter, true);
    if (r == 0)
        r = rows_add(rows, now, &ask->filter, false);
    if (r < 0)
        return r;
    rows_sort(rows, ask->measure, growth);
    if (ask->min)
        rows_min(rows, ask->measure, growth, ask->min);
    /* Many rows want many names: all at once is quicker, and shows how far it is. */
    if (rows->n > 1000 && ask->top > 1000 && ask->filter.by <= ROWS_BY_STACK) {
        enum profile_names_which which =
            ask->filter.by == ROWS_BY_STACK ? PROFILE_NAMES_ALL : PROFILE_NAMES_INNERMOST;
        r = profile_source_name(&ask->source, (struct profile *)now, which);
    }
    name_shown(ask, rows);
    return r;
}

/* ---- printing ---- */

struct picture {
    const struct profile *now, *before; /* before: NULL, or with --diff or rates */
    const struct rows *rows;
    struct sites_style style;
};

static void print_json(const struct ask *ask, const struct picture *pic, const struct table *table,
                       struct buffer *out)
{
    struct words_json o = {
        .by = ask->filter.by,
        .measure = ask->measure,
        .top = ask->top,
        .stacks = ask->v->stacks,
        .filtered = ask->filter.space != 0,
        .diff = pic->style.diff,
        .rate_ns = pic->style.rate_ns,
    };
    struct json json;
    command_json_begin(&json, out, "memoir.sites/3");
    if (!o.diff) {
        words_json_rows(pic->now, pic->rows, &o, &json);
    } else {
        words_json_head(pic->now, pic->rows, &o, &json);
        json_key(&json, "sites");
        json_array_begin(&json);
        for (size_t i = 0; i < table->n_rows; i++) {
            json_object_begin(&json);
            table_json_row(table, i, 0, &json);
            if (o.stacks || o.by == ROWS_BY_STACK)
                words_json_frames(&pic->rows->list[i], &json);
            json_object_end(&json);
        }
        json_array_end(&json);
    }
    query_document_end(&json);
    buffer_append_char(out, '\n');
    json_finish(&json);
}

static void print_change(const struct picture *pic, struct buffer *out, const struct term *term)
{
    char text[UNITS_TEXT_MAX];
    int64_t change = rows_change(pic->rows->now.live_bytes, pic->rows->before.live_bytes);
    uint64_t size = change < 0 ? -(uint64_t)change : (uint64_t)change;
    enum term_style style = change > 0 ? STYLE_BAD : STYLE_GOOD;
    buffer_printf(out, "; %s%s%s%s", change ? term_style(term, style) : "",
                  change > 0   ? "+"
                  : change < 0 ? "-"
                               : "",
                  units_format_bytes(text, size, UNITS_DECIMAL),
                  change ? term_plain(term, style) : "");
    uint64_t now_ns = pic->now->taken_real_ns, then_ns = pic->before->taken_real_ns;
    if (now_ns > then_ns)
        buffer_printf(out, " in %s", units_format_duration(text, now_ns - then_ns));
}

/* What the figures leave out, and what of them is not exact. */
static void remarks(const struct ask *ask, const struct picture *pic, struct buffer *out)
{
    char text[UNITS_TEXT_MAX], more[UNITS_TEXT_MAX];
    const struct rows *rows = pic->rows;
    uint64_t all = pic->now->accounted.live_bytes;
    if (rows->n > ask->top)
        buffer_printf(out, "Shown: %s of %s rows. --top 0 shows all.\n",
                      units_format_count(text, ask->top), units_format_count(more, rows->n));
    if (rows->estimated.alloc_bytes)
        buffer_append_str(out,
                          "Rows with ~ are estimates: the exact figures of each caller, divided "
                          "among the stacks that were sampled.\n");
    if (ask->source.losses.sites_full)
        buffer_printf(out, "The book had no room for the sites of %s calls.\n",
                      units_format_count(text, ask->source.losses.sites_full));
    /* While a process runs the two are not of the very same moment: a percent is no news. */
    if (!pic->style.diff && !ask->filter.space && all > rows->now.live_bytes &&
        all - rows->now.live_bytes > all / 100 && !ask->min)
        buffer_printf(out, "%s more %s held by blocks without a site.\n",
                      units_format_bytes(text, all - rows->now.live_bytes, UNITS_DECIMAL),
                      pic->now->at_peak ? "were" : "are");
    if (ask->source.losses.books_unread)
        buffer_printf(out, "%zu book%s could not be read; memoir doctor tells why.\n",
                      ask->source.losses.books_unread,
                      ask->source.losses.books_unread == 1 ? "" : "s");
}

static void summary(const struct ask *ask, const struct picture *pic, const struct term *term,
                    struct buffer *out)
{
    char bytes[UNITS_TEXT_MAX], blocks[UNITS_TEXT_MAX], all[UNITS_TEXT_MAX];
    char who[PROFILE_WHO_MAX];
    const struct profile_figures *f = &pic->rows->now;
    buffer_printf(out, "\n%s", term_style(term, STYLE_TITLE));
    term_append(term, out, profile_who(pic->now, who), 0);
    buffer_printf(out, ": %s %s in %s block%s, %s allocated in all%s",
                  units_format_bytes(bytes, f->live_bytes, UNITS_DECIMAL),
                  pic->now->at_peak ? "at the peak" : "live",
                  units_format_count(blocks, f->live_blocks), f->live_blocks == 1 ? "" : "s",
                  units_format_bytes(all, f->alloc_bytes, UNITS_DECIMAL),
                  term_plain(term, STYLE_TITLE));
    if (pic->style.diff)
        print_change(pic, out, term);
    buffer_append_char(out, '\n');
    remarks(ask, pic, out);
}

static int print(const struct ask *ask, const struct picture *pic, const struct term *term,
                 struct buffer *out)
{
    const struct sites_values *v = ask->v;
    MEMOIR_CLEANUP(table_release)
    struct table table;
    table_init(&table, sites_columns_of(&pic->style));
    struct table_layout layout = {.header = pic->style.header};
    bool stacks = v->stacks && !v->json && !v->csv;
    if (!stacks && (!v->json || pic->style.diff))
        sites_rows(pic->rows, ask->top, &pic->style, term, &table);
    if (table.error)
        return table.error;
    if (v->json)
        print_json(ask, pic, &table, out);
    else if (v->csv)
        table_print_csv(&table, &layout, out);
    else if (stacks)
        sites_print_stacks(pic->rows, ask->top, &pic->style, term, out);
    else
        table_print(&table, &layout, term, out);
    if (!v->json && !v->csv)
        summary(ask, pic, term, out);
    return out->error;
}

/* ---- running ---- */

static int show(struct ask *ask, struct profile *now, struct profile *before, bool diff,
                const struct term *term, struct buffer *out, size_t *ret_rows)
{
    MEMOIR_CLEANUP(rows_release)
    struct rows rows = {0};
    struct picture pic = {
        .now = now,
        .before = before,
        .rows = &rows,
        .style =
            {
                .by = ask->filter.by,
                .measure = ask->measure,
                .diff = diff,
                .rate_ns = before && !diff ? now->taken_mono_ns - before->taken_mono_ns : 0,
                .stacks = ask->v->stacks,
                .header = !ask->v->no_header,
                .now_real_ns = now->taken_real_ns,
            },
    };
    int r = rows_take(ask, now, before, diff, &rows);
    if (r < 0)
        return r;
    *ret_rows = rows.n;
    return print(ask, &pic, term, out);
}

static int take(struct ask *ask, const char *word, struct profile **ret_profile)
{
    MEMOIR_CLEANUP(profile_freep)
    struct profile *profile = NULL;
    int r = profile_source_take(&ask->source, word, &profile);
    if (r != COMMAND_OK)
        return r;
    r = name_for_groups(ask, profile);
    if (r < 0)
        return r;
    profile_keys(profile, NULL);
    *ret_profile = MEMOIR_TAKE(profile);
    return COMMAND_OK;
}

static int nothing(const struct ask *ask)
{
    if (ask->min)
        command_fail("no site has that much; --min %s leaves nothing", ask->v->min);
    else
        command_fail("no site has memory of the kind '%s'", ask->v->space ? ask->v->space : "any");
    return COMMAND_NOTHING;
}

/* Words go to a terminal one picture after the other, or once. */
static int finish(const struct ask *ask, size_t rows, const struct buffer *out)
{
    bool programs = ask->v->json || ask->v->csv;
    int r = rows || programs ? command_output(out) : COMMAND_OK;
    return rows == 0 && r == COMMAND_OK ? nothing(ask) : r;
}

static int once(struct ask *ask, const char *word, const struct term *term)
{
    MEMOIR_CLEANUP(profile_freep)
    struct profile *p = NULL;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    size_t rows = 0;
    int r = take(ask, word, &p);
    if (r == COMMAND_OK && ask->v->save) {
        r = profile_source_name(&ask->source, p, PROFILE_NAMES_ALL);
        if (r == 0)
            r = snapshot_save(p, ask->v->save);
        if (r < 0)
            return command_fail("cannot save to '%s': %s", ask->v->save, strerror(-r));
    }
    if (r == COMMAND_OK)
        r = show(ask, p, NULL, false, term, &out, &rows);
    return r != COMMAND_OK ? r : finish(ask, rows, &out);
}

static bool any_by_name(const struct profile *p)
{
    for (size_t i = 0; i < p->n_modules; i++)
        if (p->modules[i].by_name && p->modules[i].kind == PROFILE_MODULE_FILE)
            return true;
    return false;
}

static int compare(struct ask *ask, char **words, const struct term *term)
{
    MEMOIR_CLEANUP(profile_freep)
    struct profile *before = NULL;
    MEMOIR_CLEANUP(profile_freep)
    struct profile *now = NULL;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    size_t rows = 0;
    int r = take(ask, words[0], &before);
    if (r == COMMAND_OK)
        r = take(ask, words[1], &now);
    if (r != COMMAND_OK)
        return r;
    profile_keys(before, now);
    profile_keys(now, before);
    if (any_by_name(before) || any_by_name(now)) { /* then names are what is compared */
        r = profile_source_name(&ask->source, before, PROFILE_NAMES_ALL);
        if (r == 0)
            r = profile_source_name(&ask->source, now, PROFILE_NAMES_ALL);
        if (r < 0)
            return r;
        profile_keys(before, now);
        profile_keys(now, before);
    }
    r = show(ask, now, before, true, term, &out, &rows);
    return r != COMMAND_OK ? r : finish(ask, rows, &out);
}

static void pause_for(uint64_t ns)
{
    struct timespec pause = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    nanosleep(&pause, NULL);
}

static int watch(struct ask *ask, const char *word)
{
    const struct sites_values *v = ask->v;
    MEMOIR_CLEANUP(profile_freep)
    struct profile *before = NULL;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    uint64_t step_ns = v->every_ns ? v->every_ns : v->for_ns;
    uint64_t end_ns = v->for_ns ? clock_monotonic_ns() + v->for_ns : UINT64_MAX;
    int r = take(ask, word, &before);
    if (r == COMMAND_OK && !before->taken_mono_ns)
        return command_misuse(&cmd_sites,
                              "a file is one moment: nothing happens in it each second");
    for (bool first = true; r == COMMAND_OK; first = false) {
        struct profile *now = NULL;
        size_t rows = 0;
        struct term term;
        uint64_t at_ns = clock_monotonic_ns();
        pause_for(end_ns - at_ns < step_ns ? end_ns - at_ns : step_ns);
        r = take(ask, word, &now);
        if (r != COMMAND_OK)
            return r;
        term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
        buffer_reset(&out);
        if (!first && !term.tty && !v->json && !v->csv)
            buffer_append_char(&out, '\n');
        r = show(ask, now, before, false, &term, &out, &rows);
        profile_free(before);
        before = now;
        if (r != COMMAND_OK)
            return r;
        r = !v->every_ns ? finish(ask, rows, &out) : command_frame(&term, &out);
        if (clock_monotonic_ns() >= end_ns)
            break;
    }
    return r;
}

static int run(const void *values, const struct operands *operands)
{
    const struct sites_values *v = values;
    struct ask ask;
    int r = check(v, operands);
    if (r == COMMAND_OK)
        r = ask_parse(&ask, v);
    if (r == COMMAND_OK)
        r = command_check_dir(v->dir);
    if (r != COMMAND_OK)
        return r;
    if (is_question(v)) {
        struct view_options view = v->view;
        view.by = by_of(v->by_word) == ROWS_BY_CALLER ? NULL : v->by_word;
        view.json = v->json;
        view.csv = v->csv;
        view.no_header = v->no_header;
        view.color = v->color;
        return view_process(&cmd_sites, "sites", &view, operands->words[0], v->dir,
                            v->top == TOP_UNSET ? 0 : v->top);
    }
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    profile_source_init(&ask.source, v->dir, !v->no_names);
    ask.source.at_peak = v->at_peak;
    r = v->diff                    ? compare(&ask, operands->words, &term)
        : v->every_ns || v->for_ns ? watch(&ask, operands->words[0])
                                   : once(&ask, operands->words[0], &term);
    profile_source_release(&ask.source);
    return r;
}

/* Of other nodes. */
static const struct elsewhere elsewhere = {
    .table = "lines",
    .show = "node,pid,program,space,bytes,blocks,site",
    .sort = "-bytes",
    .operand = "pid",
    .names = true,
};

const struct command cmd_sites = {
    .name = "sites",
    .usage = "sites [OPTION...] PID|NAME|FILE | sites --diff [OPTION...] A B",
    .help = "which lines of a program hold its memory, and what has grown",
    .description =
        "Ranks the places in the code of a process that asked for memory: how much each holds now, in "
        "how many blocks, how much it asked for in all, and since when. The figures are read from the "
        "process's book as it is now, or was when the process died; no daemon is needed. A program "
        "has sites if it was started by memoir run or reports by libmemoir.\n\n"
        "NAME takes all processes of a program together. FILE is what --save wrote.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .fields = fields,
    .operands_max = 2,
    .takes_processes = true,
    .takes_files = true,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
