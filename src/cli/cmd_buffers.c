/* memoir buffers: every block that is held now: whose, how large, since when, asked for by which line. */
#include <stdio.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "cli/absent.h"
#include "cli/buffers.h"
#include "cli/command.h"
#include "cli/space_word.h"
#include "cli/view.h"
#include "cli/world.h"
#include "ledger/ledger.h"
#include "query/query.h"
#include "query/view.h"

enum {
    OUTPUT_MAX = 1 << 30,
    WHERE_MAX = 4096,
    LIMIT_SCREEN = 40, /* rows on screen unless asked for more */
};
#define LIMIT_UNSET UINT64_MAX

struct buffers_values {
    struct command_common common;
    struct view_options view;
    const char *dir;
    uint64_t pid;
    const char *device, *space, *tag, *min;
    uint64_t min_age_ns;
    uint64_t limit;
    bool no_sites;
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
    VIEW_OPTION_WHERE,
    VIEW_OPTION_BY,
    VIEW_OPTION_SHOW,
    {"sort", 's', OPTION_STRING, AT(view.sort), "COLUMNS",
     "the order: bytes, -age, +id ...; -X from large to small, +X from small to large (default: -bytes)"},
    {"limit", 'n', OPTION_NUMBER, AT(limit), "N",
     "show N rows at most; 0 shows all (default: 40 on screen, all in JSON and CSV)"},
    {"no-sites", 0, OPTION_FLAG, AT(no_sites),
     .help = "do not look up functions and lines: faster, sites are then modules and offsets"},
    VIEW_OPTIONS_PRINT,
    OPTIONS_ELSEWHERE,
    OPTION_DIR,
    {0},
};

static const struct command_example examples[] = {
    {"memoir buffers", "the largest blocks of all processes"},
    {"memoir buffers --pid 4242 --sort -age", "what a process holds, the oldest first"},
    {"memoir buffers --device 0 --space l1 --older 10m", "what stays in L1"},
    {"memoir buffers --by program,tag", "what programs call their memory"},
    {"memoir buffers --json | jq '.rows[] | {pid, tag, bytes}'", "for programs"},
    {0},
};

static const struct command_section sections[] = {
    {"COLUMNS",
     "Rows and columns are those of the table buffers of memoir query; memoir query buffers --columns lists them."},
    {"JSON",
     "The document is that of memoir query: \"columns\", \"rows\" (objects by column), \"matched\" (all blocks that the filters "
     "let pass), and \"incomplete\" where a process was reordering its table, so that some may be missing."},
    {0},
};

/* ---- what was asked for ---- */

static bool is_selective(const struct buffers_values *v)
{
    return v->pid || v->device || v->space || v->tag || v->min || v->min_age_ns || v->view.where;
}

static int make_query(const struct buffers_values *v, struct query **ret_query)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX);
    uint64_t bytes;
    uint32_t space;
    if (v->view.json && v->view.csv)
        return command_misuse(&cmd_buffers, "--json and --csv exclude each other");
    if (v->pid) /* also of one that is gone, but whose book is still there */
        view_test(&where, "pid=%llu and state!=none", (unsigned long long)v->pid);
    if (v->device)
        view_test_device(&where, v->device);
    if (v->space) {
        int r = space_word_parse(&cmd_buffers, v->space, false, &space);
        if (r != COMMAND_OK)
            return r;
        query_where_text(&where, "space", "=", ledger_space_name(space));
    }
    if (v->tag)
        view_test_word(&where, "tag", v->tag);
    if (v->min && units_parse_bytes(v->min, &bytes) < 0)
        return command_misuse(&cmd_buffers, "invalid size '%s' for --min: try 64K, 25.5MB or 4096",
                              v->min);
    if (v->min)
        view_test(&where, "bytes>=%llu", (unsigned long long)bytes);
    if (v->min_age_ns)
        view_test(&where, "age>=%lluns", (unsigned long long)v->min_age_ns);
    struct view_layout layout = {
        .rows = buffers_rows,
        .sort = buffers_sort,
        .others = true,
        .limit = v->limit != LIMIT_UNSET       ? v->limit
                 : v->view.json || v->view.csv ? 0
                                               : LIMIT_SCREEN,
    };
    return view_query(&cmd_buffers, query_view_find("buffers"), &v->view, buffer_string(&where),
                      &layout, ret_query);
}

/* ---- printing ---- */

static void summary(const struct query_result *result, struct buffer *out, const struct term *term)
{
    char count[UNITS_TEXT_MAX], bytes[UNITS_TEXT_MAX], age[UNITS_TEXT_MAX], shown[UNITS_TEXT_MAX];
    struct buffers_sum sum;
    buffers_sum(result, &sum);
    buffer_printf(out, "\n%s%s block%s, %s", term_style(term, STYLE_TITLE),
                  units_format_count(count, sum.blocks), sum.blocks == 1 ? "" : "s",
                  units_format_bytes(bytes, sum.bytes, UNITS_DECIMAL));
    if (sum.processes)
        buffer_printf(out, ", in %zu process%s", sum.processes, sum.processes == 1 ? "" : "es");
    if (sum.oldest_ns)
        buffer_printf(out, "; the oldest is %s old", units_format_duration(age, sum.oldest_ns));
    buffer_append_str(out, term_plain(term, STYLE_TITLE));
    buffer_append_char(out, '\n');
    if (sum.shown < sum.blocks)
        buffer_printf(out, "Shown: %s. --limit 0 shows all.\n",
                      units_format_count(shown, sum.shown));
    if (query_result_incomplete(result))
        buffer_append_str(
            out, "A process was reordering blocks while we looked: some may be missing.\n");
}

static int print(const struct buffers_values *v, const struct query *query,
                 const struct query_result *result)
{
    if (view_is_plain(&v->view))
        return view_print(query, result, &v->view);
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    struct query_style style = view_style(&v->view);
    style = buffers_layout(&style);
    int r = query_print(result, query, &style, &term, &out);
    if (r < 0)
        return r;
    summary(result, &out, &term);
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
    else if (is_selective(v))
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
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(world_release)
    struct world world = {.no_symbols = v->no_sites};
    struct query_result *result = NULL;
    struct world_options how = {.dir = v->dir};
    int r = command_pid_operand(&cmd_buffers, operands, &with_pid.pid);
    if (r == COMMAND_OK)
        r = make_query(v, &query);
    if (r == COMMAND_OK)
        r = command_check_dir(v->dir);
    if (r == COMMAND_OK)
        r = query_result_new(query, 0, &result);
    if (r == COMMAND_OK)
        r = world_ask(&world, &how, query, result);
    bool empty = r == COMMAND_OK && query_result_rows(result) == 0;
    if (r == COMMAND_OK && (!empty || v->view.json || v->view.csv))
        r = print(v, query, result);
    if (r == COMMAND_OK && empty)
        r = nothing(v, world.ledger);
    if (r == COMMAND_OK && view_is_plain(&v->view) && !empty)
        view_mention(query, result);
    query_result_free(result);
    return r;
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
    .operands_max = 1,
    .takes_processes = true,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
