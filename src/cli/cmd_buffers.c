/* memoir buffers: every block that is held now: whose, how large, since when, asked for by which line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/absent.h"
#include "cli/buffers.h"
#include "cli/command.h"
#include "cli/space_word.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"

enum {
    OUTPUT_MAX = 256 << 20,
    LIMIT_SCREEN = 40, /* rows on screen unless asked for more */
    PIECE = 1000,      /* rows that are in memory as text at a time */
};
#define LIMIT_UNSET UINT64_MAX

struct buffers_values {
    struct command_common common;
    const char *dir;
    uint64_t pid;
    const char *device, *space, *tag, *sort, *min;
    uint64_t min_age_ns;
    uint64_t limit;
    bool json, csv, no_header, no_sites;
    int color;
};

static const struct buffers_values defaults = {.limit = LIMIT_UNSET};

#define AT(field) offsetof(struct buffers_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"pid", 'p', OPTION_NUMBER, AT(pid), "PID", "only blocks of this process",
     .completion = COMPLETE_PID},
    {"device", 'd', OPTION_STRING, AT(device), "DEVICE",
     "only on this device, by its number, uid, bus address or name; host is the host's memory"},
    {"space", 0, OPTION_STRING, AT(space), "SPACE",
     "only this kind of memory: dram, l1, cb, kernel, heap, pinned ..."},
    {"tag", 't', OPTION_STRING, AT(tag), "TAG", "only what the program calls so"},
    {"min", 'm', OPTION_STRING, AT(min), "SIZE", "only blocks of this size and more: 64K, 25.5MB"},
    {"older", 'o', OPTION_DURATION, AT(min_age_ns), "TIME", "only blocks at least so old: 10m"},
    {"sort", 's', OPTION_STRING, AT(sort), "KEY",
     "size (large first), age (old first), moves, id, pid or tag; -KEY turns it round (default: "
     "size)"},
    {"limit", 'n', OPTION_NUMBER, AT(limit), "N",
     "show N blocks at most; 0 shows all (default: 40 on screen, all in JSON and CSV)"},
    {"no-sites", 0, OPTION_FLAG, AT(no_sites),
     .help = "do not look up functions and lines: faster, sites are then modules and offsets"},
    OPTION_JSON,
    OPTION_CSV,
    OPTION_NO_HEADER,
    OPTION_COLOR,
    OPTIONS_ELSEWHERE,
    OPTION_DIR,
    {0},
};

static const struct command_example examples[] = {
    {"memoir buffers", "the largest blocks of all processes"},
    {"memoir buffers --pid 4242 --sort age", "what a process holds, the oldest first"},
    {"memoir buffers --device 0 --space l1 --older 10m", "what stays in L1"},
    {"memoir buffers --json --limit 0 | jq '.buffers[] | {pid, tag, bytes}'", "for programs"},
    {0},
};

static const struct command_fields fields[] = {
    {"Fields of a block", buffers_columns},
    {0},
};

static const struct command_section sections[] = {
    {"JSON",
     "The document is one object: \"schema\" (\"memoir.buffers/1\"), \"time\", \"matched\" and "
     "\"matched_bytes\" (all blocks that the filters let pass), \"incomplete\" (true when a process "
     "was reordering its table, so that some may be missing), and \"buffers\", an array of objects "
     "with the fields above. It is printed piece by piece, so that a million blocks take no more "
     "memory than their rows."},
    {0},
};

/* ---- what was asked for ---- */

static int parse_sort(const char *text, struct buffers_filter *filter)
{
    static const char *const keys[] = {
        [BUFFERS_BY_SIZE] = "size", [BUFFERS_BY_AGE] = "age", [BUFFERS_BY_MOVES] = "moves",
        [BUFFERS_BY_ID] = "id",     [BUFFERS_BY_PID] = "pid", [BUFFERS_BY_TAG] = "tag",
    };
    filter->reverse = *text == '-';
    text += *text == '-';
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(keys[i], text) == 0) {
            filter->key = (enum buffers_key)i;
            return 0;
        }
    return -EINVAL;
}

static int parse(const struct buffers_values *v, struct buffers_filter *filter)
{
    *filter = (struct buffers_filter){
        .pid = v->pid,
        .device = v->device,
        .tag = v->tag,
        .min_age_ns = v->min_age_ns,
        .limit = v->limit != LIMIT_UNSET ? v->limit
                 : v->json || v->csv     ? 0
                                         : LIMIT_SCREEN,
    };
    if (v->json && v->csv)
        return command_misuse(&cmd_buffers, "--json and --csv exclude each other");
    if (v->sort && parse_sort(v->sort, filter) < 0)
        return command_misuse(&cmd_buffers, "'%s' is no key; size, age, moves, id, pid and tag are",
                              v->sort);
    if (v->min && units_parse_bytes(v->min, &filter->min_bytes) < 0)
        return command_misuse(&cmd_buffers, "'%s' is no size; 64K, 25.5MB and 4096 are", v->min);
    return v->space ? space_word_parse(&cmd_buffers, v->space, false, &filter->space) : COMMAND_OK;
}

/* ---- printing ---- */

static int print_json(const struct buffers_values *v, struct buffers *b, struct site_names *symbols)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(table_release)
    struct table table;
    table_init(&table, buffers_columns);
    struct json json;
    command_json_begin(&json, &out, "memoir.buffers/1");
    json_field_u64(&json, "matched", b->matched);
    json_field_u64(&json, "matched_bytes", b->matched_bytes);
    json_field_bool(&json, "incomplete", b->inexact > 0 || b->left_out > 0);
    json_key(&json, "buffers");
    json_array_begin(&json);
    for (size_t first = 0; first < b->n; first += PIECE) {
        table_release(&table);
        buffers_rows(b, first, PIECE, symbols, &table);
        if (table.error)
            return table.error;
        for (size_t i = 0; i < table.n_rows; i++) {
            json_object_begin(&json);
            table_json_row(&table, i, 0, &json);
            json_object_end(&json);
        }
        int r = command_output(&out);
        if (r != COMMAND_OK)
            return r;
        buffer_reset(&out);
    }
    json_array_end(&json);
    json_object_end(&json);
    buffer_append_char(&out, '\n');
    int r = json_finish(&json);
    return r < 0 ? r : command_output(&out);
}

static int print_csv(const struct buffers_values *v, struct buffers *b, struct site_names *symbols)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(table_release)
    struct table table;
    table_init(&table, buffers_columns);
    size_t first = 0;
    do {
        struct table_layout layout = {.header = first == 0 && !v->no_header};
        table_release(&table);
        buffers_rows(b, first, PIECE, symbols, &table);
        buffer_reset(&out);
        int r = table_print_csv(&table, &layout, &out);
        if (r == 0)
            r = command_output(&out);
        if (r != COMMAND_OK)
            return r;
        first += PIECE;
    } while (first < b->n);
    return COMMAND_OK;
}

static void summary(const struct buffers *b, struct buffer *out, const struct term *term)
{
    char count[UNITS_TEXT_MAX], bytes[UNITS_TEXT_MAX], age[UNITS_TEXT_MAX], shown[UNITS_TEXT_MAX];
    buffer_printf(out, "\n%s%s block%s, %s, in %zu process%s", term_style(term, STYLE_TITLE),
                  units_format_count(count, b->matched), b->matched == 1 ? "" : "s",
                  units_format_bytes(bytes, b->matched_bytes, UNITS_DECIMAL), b->processes,
                  b->processes == 1 ? "" : "es");
    if (b->oldest_ns < b->now_ns)
        buffer_printf(out, "; the oldest is %s old",
                      units_format_duration(age, b->now_ns - b->oldest_ns));
    buffer_append_str(out, term_plain(term, STYLE_TITLE));
    buffer_append_char(out, '\n');
    if (b->n < b->matched)
        buffer_printf(out, "Shown: %s. --limit 0 shows all.\n", units_format_count(shown, b->n));
    if (b->inexact)
        buffer_printf(out,
                      "%zu process%s reordering blocks while we looked: some may be missing.\n",
                      b->inexact, b->inexact == 1 ? " was" : "es were");
}

static int print_text(const struct buffers_values *v, struct buffers *b, struct site_names *symbols)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(table_release)
    struct table table;
    table_init(&table, buffers_columns);
    buffers_rows(b, 0, b->n, symbols, &table);
    struct table_layout layout = {.header = !v->no_header};
    int r = table_print(&table, &layout, &term, &out);
    if (r < 0)
        return r;
    summary(b, &out, &term);
    return command_output(&out);
}

/* ---- running ---- */

/* Does a library count every block of its heap, without a list of them? */
static bool counts_only(const struct ledger_process *p)
{
    bool heap = false, counted = false;
    for (size_t i = 0; i < p->n_books; i++)
        counted |= book_source_counts_heap(p->books[i]->identity->source);
    for (size_t i = 0; i < p->n_accounts; i++)
        heap |= p->accounts[i].space == MEMOIR_SPACE_HEAP && p->accounts[i].totals.live_blocks > 0;
    return counted && heap;
}

static int nothing(const struct buffers_values *v, const struct ledger *ledger)
{
    const struct ledger_process *p = v->pid ? ledger_process_find(ledger, (pid_t)v->pid) : NULL;
    if (p && counts_only(p) && !v->device && !v->tag)
        command_fail(
            "%s (PID %d) counts its heap by call site, and lists no single blocks that match: "
            "with --stacks all none are sampled; see memoir sites %d",
            p->name, (int)p->pid, (int)p->pid);
    else if (v->pid && !p)
        return absent_process(v->pid,
                              "memoir ps lists those that do, and memoir run starts one that does");
    else if (v->device && absent_device(ledger, v->device, true))
        return COMMAND_NOTHING;
    else if (v->pid || v->device || v->space || v->tag || v->min || v->min_age_ns)
        command_fail("no live block is like that");
    else {
        absent_books("No process holds a block that it has told of.", "buffers", v->dir);
        return COMMAND_OK;
    }
    return COMMAND_NOTHING;
}

static int run(const void *values, const struct operands *operands)
{
    struct buffers_values with_pid = *(const struct buffers_values *)values;
    const struct buffers_values *v = &with_pid;
    struct buffers_filter filter;
    int r = command_pid_operand(&cmd_buffers, operands, &with_pid.pid);
    if (r == COMMAND_OK)
        r = parse(v, &filter);
    if (r != COMMAND_OK)
        return r;
    if (command_check_dir(v->dir) != COMMAND_OK)
        return COMMAND_FAILED;
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = v->no_sites ? NULL : site_names_new(); /* before much memory */
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    MEMOIR_CLEANUP(buffers_release)
    struct buffers b = {0};
    r = ledger_scan(v->dir, &ledger);
    if (r == 0)
        r = buffers_take(ledger, &filter, &b);
    if (r < 0)
        return r;
    if (b.matched == 0 && !v->json && !v->csv)
        return nothing(v, ledger);
    r = v->json  ? print_json(v, &b, symbols)
        : v->csv ? print_csv(v, &b, symbols)
                 : print_text(v, &b, symbols);
    return b.matched == 0 && r == COMMAND_OK ? nothing(v, ledger) : r;
}

/* Of other nodes. */
static const struct elsewhere elsewhere = {
    .table = "buffers",
    .show = "node,pid,program,space,bytes,age,tag,site",
    .sort = "-bytes",
    .operand = "pid",
};

const struct command cmd_buffers = {
    .name = "buffers",
    .usage = "buffers [PID] [OPTION...]",
    .help = "every block that is held now: whose, how large, since when, from where",
    .description =
        "Lists live blocks with the process that holds them, device and kind of memory, size, age, "
        "tag, and the line of code that asked for them. The figures are read from the books as they "
        "are now; no daemon is needed. What a dead process held: memoir ps --exited --blocks.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
