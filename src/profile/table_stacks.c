/* The table of stacks: one row for each way through the code that leads to memory of a process. Flame graphs and icicles fold
 * its rows. Figures are those of stacks.h: exact, or an exact figure divided among sampled stacks, which are marked. */
#include "profile/tables.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "ledger/ledger.h"
#include "profile/gather.h"
#include "profile/headline.h"
#include "profile/names.h"
#include "profile/profile.h"
#include "profile/stacks.h"
#include "query/code.h"
#include "query/query.h"
#include "query/table_process.h"

enum { TEXT_MAX = 64 << 10, FRAME_MAX = 4096, LABEL_MAX = 128 };

/* One process while its rows are looked at. */
struct gathered {
    const struct ledger_process *process;
    struct profile *profile;
    struct stacks stacks;
    char **names; /* of frames, by number; made when asked for */
};

struct stack_row {
    struct gathered *of;
    const struct stack *stack;
};

static const struct stack_row *row_of(const struct query_row *row)
{
    return row->custom;
}

/* ---- frames ---- */

/* "cache.c:80 load" where it is known, "train.py:41 in load" of scripts, else "libfoo.so+0x12ab". */
static char *frame_name(struct gathered *g, const struct query_world *world, uint32_t number)
{
    struct profile *p = g->profile;
    const struct profile_frame *f = &p->frames[number];
    const struct profile_module *m = &p->modules[f->module];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(FRAME_MAX);
    if (m->kind == PROFILE_MODULE_SCRIPT && f->n_lines) {
        const struct profile_line *line = &p->lines[f->first_line];
        buffer_printf(&text, "%s:%u in %s", profile_base_name(profile_text(p, line->file)),
                      line->line, profile_text(p, line->function));
        return buffer_take(&text);
    }
    struct query_code code = {
        .path = profile_text(p, m->path),
        .build_id = m->build_id,
        .build_id_len = m->build_id_len,
        .offset = f->offset,
        .pid = ledger_process_reachable(g->process) ? g->process->pid : 0,
        .started_ns = g->process->valid & LEDGER_HAS_START ? g->process->start_realtime_ns : 0,
    };
    struct query_source source;
    bool named = m->kind == PROFILE_MODULE_FILE && world->source_of &&
                 world->source_of(&code, &source, world->context);
    if (named) {
        code_source_append(&source, &text);
        struct profile_line line = {
            /* by which the line that asked is chosen */
            .function = source.function ? profile_add_string(p, source.function) : 0,
            .file = source.file ? profile_add_string(p, source.file) : 0,
            .line = source.line,
        };
        profile_set_lines(p, number, &line, 1);
    } else {
        char label[PROFILE_LABEL_MAX];
        buffer_append_str(&text, profile_function(p, number, 0, label));
    }
    for (size_t i = 0; i < text.len; i++) /* a line feed ends a frame */
        if (text.data[i] == '\n')
            text.data[i] = ' ';
    return buffer_take(&text);
}

static const char *name_of(struct gathered *g, const struct query_world *world, uint32_t number)
{
    if (g->names && !g->names[number])
        g->names[number] = frame_name(g, world, number);
    return g->names && g->names[number] ? g->names[number] : "?";
}

/* The frame whose line speaks for the stack (headline.h). Names are looked up as far as the choice needs them. */
static uint32_t asked(struct gathered *g, const struct query_world *world, const struct stack *s)
{
    for (size_t i = 0; i < s->n_frames; i++) {
        if (own_module(profile_module_path(g->profile, s->frames[i])))
            (void)name_of(g, world, s->frames[i]);
        if (headline_kind(g->profile, s->frames[i]) == OWN_CODE)
            break;
    }
    return s->frames[headline_frame(g->profile, s->frames, s->n_frames)];
}

static void get_frames(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[TEXT_MAX];
    const struct stack *s = row_of(row)->stack;
    size_t len = 0;
    for (size_t i = s->n_frames; i-- > 0 && len < sizeof(text) - 1;) {
        int n = snprintf(text + len, sizeof(text) - len, "%s%s", len ? "\n" : "",
                         name_of(row_of(row)->of, world, s->frames[i]));
        len += n < 0 ? 0 : (size_t)n;
    }
    if (s->n_frames)
        query_set_frames(ret, text);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_site(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct stack *s = row_of(row)->stack;
    if (s->n_frames)
        query_set_text(ret, name_of(row_of(row)->of, world, asked(row_of(row)->of, world, s)));
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_key(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[24];
    const struct stack *s = row_of(row)->stack;
    uint64_t key = 0;
    for (size_t i = 0; i < s->n_frames; i++)
        key = hash_combine(key, row_of(row)->of->profile->frames[s->frames[i]].key);
    snprintf(text, sizeof(text), "%016" PRIx64, key);
    query_set_text(ret, text);
}

/* ---- the memory ---- */

static const struct profile_account *account_of(const struct query_row *row)
{
    return &row_of(row)->of->profile->accounts[row_of(row)->stack->account];
}

static void get_device(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[LABEL_MAX];
    const struct profile_account *a = account_of(row);
    const char *name = profile_text(row_of(row)->of->profile, a->device_name);
    if (a->has_device)
        snprintf(text, sizeof(text), "%d%s%s", a->ordinal, *name ? " " : "", name);
    query_set_text(ret, a->has_device ? text : "host");
}

static void get_space(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, profile_text(row_of(row)->of->profile, account_of(row)->name));
}

enum figure {
    FIGURE_BYTES,
    FIGURE_BLOCKS,
    FIGURE_ALLOCATED,
    FIGURE_FREED,
    FIGURE_ALLOCATED_BLOCKS,
    FIGURE_FREED_BLOCKS,
};

static void get_figure(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct profile_figures *f = &row_of(row)->stack->figures;
    const uint64_t figures[] = {
        [FIGURE_BYTES] = f->live_bytes,
        [FIGURE_BLOCKS] = f->live_blocks,
        [FIGURE_ALLOCATED] = f->alloc_bytes,
        [FIGURE_FREED] = f->alloc_bytes - f->live_bytes,
        [FIGURE_ALLOCATED_BLOCKS] = f->alloc_blocks,
        [FIGURE_FREED_BLOCKS] = f->alloc_blocks - f->live_blocks,
    };
    query_set_number(ret, figures[field->column->arg]);
    ret->marks = row_of(row)->stack->estimate ? QUERY_ESTIMATE : 0;
}

static void get_estimate(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row_of(row)->stack->estimate);
}

/* ---- the table ---- */

#define FIGURE(name, kind, which)                                                         \
    {                                                                                     \
        name, NULL, kind, .flags = QUERY_DETAIL, .arg = FIGURE_##which, .get = get_figure \
    }

static const struct query_column columns[] = {
    PROCESS_COLUMNS,
    {"device", "number and name of the device, or host", QUERY_TEXT, .flags = QUERY_DETAIL,
     .get = get_device},
    {"space", NULL, QUERY_TEXT, .flags = QUERY_DETAIL, .get = get_space},
    {"key", "number of the stack, the same in every run of the same program", QUERY_TEXT,
     .flags = QUERY_DETAIL | QUERY_PRIVATE, .get = get_key},
    {"frames", NULL, QUERY_FRAMES, .flags = QUERY_DETAIL | QUERY_PRIVATE,
     .needs = QUERY_NEEDS_SYMBOLS, .get = get_frames},
    {"site", NULL, QUERY_TEXT, .flags = QUERY_DETAIL | QUERY_PRIVATE, .needs = QUERY_NEEDS_SYMBOLS,
     .get = get_site},
    FIGURE("bytes", QUERY_BYTES, BYTES),
    FIGURE("blocks", QUERY_NUMBER, BLOCKS),
    FIGURE("allocated", QUERY_BYTES, ALLOCATED),
    FIGURE("freed", QUERY_BYTES, FREED),
    FIGURE("allocated_blocks", QUERY_NUMBER, ALLOCATED_BLOCKS),
    FIGURE("freed_blocks", QUERY_NUMBER, FREED_BLOCKS),
    {"estimated", NULL, QUERY_YES, .flags = QUERY_DETAIL, .get = get_estimate},
    {0},
};

static void gathered_release(struct gathered *g)
{
    for (size_t i = 0; g->names && i < g->profile->n_frames; i++)
        free(g->names[i]);
    free(g->names);
    stacks_release(&g->stacks);
    profile_free(g->profile);
}

static int scan_process(struct query_scan *scan, const struct ledger_process *process)
{
    struct gathered g __attribute__((cleanup(gathered_release))) = {.process = process};
    struct gather_losses losses = {0};
    g.profile = profile_new();
    int r = g.profile ? profile_gather(g.profile, process, &losses) : -ENOMEM;
    if (r < 0)
        return r;
    scan->incomplete |= losses.books_unread > 0;
    profile_keys(g.profile, NULL);
    r = stacks_take(g.profile, &g.stacks);
    g.names = r == 0 ? calloc(g.profile->n_frames + 1, sizeof(*g.names)) : NULL;
    if (!g.names)
        return -ENOMEM;
    for (size_t i = 0; i < g.stacks.n && r == 0; i++) {
        struct stack_row row = {&g, &g.stacks.list[i]};
        r = scan->each(scan, &(struct query_row){.process = process, .custom = &row});
    }
    return r;
}

static int scan_stacks(struct query_scan *scan)
{
    size_t n = 0;
    struct ledger_process *const *processes =
        scan->world->ledger ? ledger_processes(scan->world->ledger, &n) : NULL;
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        if (scan->deadline_ns && clock_monotonic_ns() > scan->deadline_ns)
            return -ETIME;
        if (scan->may_match(scan, &(struct query_row){.process = processes[i]}))
            r = scan_process(scan, processes[i]);
    }
    return r;
}

const struct query_table profile_table_stacks = {
    .name = "stacks",
    .help = "one row for each stack of calls that leads to memory of a process",
    .columns = columns,
    .show = "pid,program,space,bytes,blocks,allocated,frames",
    .show_by = "bytes,blocks,allocated",
    .sort = "-bytes,-allocated,+pid,+key",
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_BLOCKS,
    .costly = true,
    .private_rows = true,
    .scan = scan_stacks,
    .owner = process_owner,
    .usual = process_lives,
    .unusual_by = "state",
};
