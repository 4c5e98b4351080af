/* memoir trace oom: who held what when an allocation failed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "cli/trace_oom.h"
#include "query/query.h"

enum { SENTENCE_HOLDERS = 3, SENTENCE_MAX = 1 << 16 };

enum { OOM_BYTES, OOM_SHARE, OOM_BLOCKS, OOM_SPACE, OOM_HOLDER, OOM_PID };

static const struct column columns[] = {
    [OOM_BYTES] = {"bytes", "HELD", "bytes that it held at that moment", COLUMN_BYTES},
    [OOM_SHARE] = {"percent", "SHARE",
                   "share of the device; without its size, of what this process held",
                   COLUMN_PERCENT},
    [OOM_BLOCKS] = {"allocations", "ALLOCATIONS", "live allocations", COLUMN_NUMBER},
    [OOM_SPACE] = {"space", "MEMORY", "kind of memory", COLUMN_TEXT},
    [OOM_HOLDER] = {"holder", "HELD BY", "the line that allocated it, or another process",
                    COLUMN_TEXT, COLUMN_STRETCH},
    [OOM_PID] = {"pid", NULL, "the process", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    {0},
};

static const struct command_fields fields[] = {{"Fields of a holder", columns}, {0}};

static const struct option_spec options[] = {
    OPTION_HELP, TRACE_OPTION_FOR, TRACE_OPTION_SOCKET, TRACE_OPTION_TABLE, {0},
};

int trace_oom_last(struct trace_history *history, struct trace_failure *ret_failure)
{
    struct trace_failure *all = calloc(TRACE_FAILURES_MAX, sizeof(*all));
    if (!all)
        return -ENOMEM;
    size_t n = trace_history_failures(history, all, TRACE_FAILURES_MAX);
    while (n > 0 && !all[n - 1].out_of_memory)
        n--;
    if (n > 0)
        *ret_failure = all[n - 1];
    free(all);
    return n > 0 ? 0 : -ENOENT;
}

void trace_oom_sentence(struct trace_source *source, const struct trace_failure *f,
                        struct buffer *out)
{
    char asked[UNITS_TEXT_MAX], held[UNITS_TEXT_MAX], all[UNITS_TEXT_MAX], part[UNITS_TEXT_MAX];
    char label[TRACE_LABEL_MAX];
    uint64_t others = 0, named = 0;
    for (uint32_t i = 0; i < f->n_others; i++)
        others += f->others[i].bytes;
    buffer_printf(out, "%s asked for %s", source->who, trace_bytes(asked, f->size));
    if (f->device >= 0)
        buffer_printf(out, " on device %d", (int)f->device);
    else
        buffer_printf(out, " of %s memory", trace_space_name(f->space));
    buffer_printf(out, " at %s and failed: ", trace_names_label(source->names, f->site, label));
    uint64_t used = f->used_bytes ? f->used_bytes : f->held_bytes + others;
    buffer_append_str(out, trace_bytes(held, used));
    if (f->capacity_bytes)
        buffer_printf(out, " of %s", trace_bytes(all, f->capacity_bytes));
    buffer_append_str(out, used ? " were held by " : " were held");
    bool first = true;
    for (uint32_t i = 0; i < f->n_holders && i < SENTENCE_HOLDERS; i++, first = false) {
        buffer_printf(out, "%s%s (%s)", first ? "" : ", ",
                      trace_names_label(source->names, f->holders[i].site, label),
                      trace_bytes(part, f->holders[i].bytes));
        named += f->holders[i].bytes;
    }
    for (uint32_t i = 0; i < f->n_others && i < SENTENCE_HOLDERS; i++, first = false) {
        buffer_printf(out, "%s%s (PID %d, %s)", first ? "" : ", ", f->others[i].name,
                      (int)f->others[i].pid, trace_bytes(part, f->others[i].bytes));
        named += f->others[i].bytes;
    }
    if (used > named && !first)
        buffer_printf(out, " and others (%s)", trace_bytes(part, used - named));
    else if (used && first)
        buffer_append_str(out, "unknown holders");
}

static void share_set(struct table *t, uint64_t bytes, uint64_t of)
{
    if (of)
        table_set_number(t, OOM_SHARE, (uint64_t)((__uint128_t)bytes * 10000 / of));
}

static void rows_make(struct trace_source *source, const struct trace_failure *f, struct table *t)
{
    char label[TRACE_LABEL_MAX], who[TRACE_NAME_MAX + 32];
    uint64_t of = f->capacity_bytes ? f->capacity_bytes : f->held_bytes, listed = 0, blocks = 0;
    for (uint32_t i = 0; i < f->n_holders; i++) {
        const struct trace_failure_holder *h = &f->holders[i];
        table_row(t);
        table_set_number(t, OOM_BYTES, h->bytes);
        share_set(t, h->bytes, of);
        table_set_number(t, OOM_BLOCKS, h->blocks);
        table_set_text(t, OOM_SPACE, trace_space_name(h->space));
        table_set_text(t, OOM_HOLDER, trace_names_label(source->names, h->site, label));
        table_set_number(t, OOM_PID, (uint64_t)source->identity.pid);
        if (h->class == TRACE_CLASS_OWN) {
            listed += h->bytes;
            blocks += h->blocks;
        }
    }
    if (f->held_bytes > listed) {
        table_row(t);
        table_set_number(t, OOM_BYTES, f->held_bytes - listed);
        share_set(t, f->held_bytes - listed, of);
        if (f->held_blocks > blocks)
            table_set_number(t, OOM_BLOCKS, f->held_blocks - blocks);
        table_set_text(t, OOM_HOLDER, "other lines of this process");
        table_set_number(t, OOM_PID, (uint64_t)source->identity.pid);
        table_set_style(t, OOM_HOLDER, STYLE_DIM);
    }
    for (uint32_t i = 0; i < f->n_others; i++) {
        snprintf(who, sizeof(who), "%s (PID %d)", f->others[i].name, (int)f->others[i].pid);
        table_row(t);
        table_set_number(t, OOM_BYTES, f->others[i].bytes);
        share_set(t, f->others[i].bytes, of);
        table_set_text(t, OOM_HOLDER, who);
        table_set_number(t, OOM_PID, (uint64_t)f->others[i].pid);
    }
}

struct told {
    struct trace_source *source;
    const struct trace_failure *failure;
    const char *sentence;
};

static void failure_json(void *context, struct json *json)
{
    const struct told *told = context;
    const struct trace_failure *f = told->failure;
    char label[TRACE_LABEL_MAX], time[QUERY_TIME_TEXT_MAX];
    json_field_string(json, "sentence", told->sentence);
    json_key(json, "failure");
    json_object_begin(json);
    json_field_u64(json, "size", f->size);
    json_field_string(json, "space", trace_space_name(f->space));
    json_field_i64(json, "ordinal", f->device);
    json_field_i64(json, "result", f->result);
    json_field_string(json, "site", trace_names_label(told->source->names, f->site, label));
    json_field_string(json, "time", query_time_text(time, trace_real_ns(told->source, f->time_ns)));
    json_field_u64(json, "repeats", f->repeats);
    json_field_u64(json, "held", f->held_bytes);
    if (f->capacity_bytes) {
        json_field_u64(json, "capacity", f->capacity_bytes);
        json_field_u64(json, "used", f->used_bytes);
    }
    trace_names_json(told->source->names, f->site, "frames", json);
    json_object_end(json);
}

static int oom_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source source = {0};
    MEMOIR_CLEANUP(table_release)
    struct table table;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer sentence = BUFFER_INIT(SENTENCE_MAX);
    MEMOIR_CLEANUP(freep)
    struct trace_failure *failure = malloc(sizeof(*failure));
    table_init(&table, columns);
    int r = failure ? trace_source_operand(&source, &cmd_trace_oom, v, operands) : -ENOMEM;
    if (r != COMMAND_OK)
        return r;
    r = trace_oom_last(source.history, failure);
    if (r == -ENOENT) {
        fprintf(stderr, "No allocation of %s failed for lack of memory.\n", source.who);
        return COMMAND_NOTHING;
    }
    if (r < 0)
        return r;
    trace_oom_sentence(&source, failure, &sentence);
    rows_make(&source, failure, &table);
    if (!v->json && !v->csv) {
        struct term term;
        MEMOIR_CLEANUP(buffer_release)
        struct buffer safe = BUFFER_INIT(SENTENCE_MAX), out = BUFFER_INIT(SENTENCE_MAX);
        term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
        term_append(&term, &safe, buffer_string(&sentence), 0);
        term_wrap(&out, buffer_string(&safe), 0, term.width > 40 ? term.width : 100);
        buffer_append_char(&out, '\n');
        r = command_output(&out);
        buffer_release(&out);
        if (r != COMMAND_OK)
            return r;
    }
    struct told told = {&source, failure, buffer_string(&sentence)};
    struct trace_print print = {.schema = "memoir.trace.oom/2",
                                .rows = "holders",
                                .empty = "Nothing was held.",
                                .extra = failure_json,
                                .context = &told};
    return trace_print_table(&source, &table, &print);
}

static const struct command_example examples[] = {
    {"sudo memoir trace oom 4242", "why the last allocation failed"},
    {"memoir trace oom run.trace", "the same after the program is gone"},
    {0},
};

const struct command cmd_trace_oom = {
    .name = "trace oom",
    .usage = "trace oom [OPTION...] PID|FILE",
    .help = "who held what when an allocation failed for lack of memory",
    .description =
        "Shows the last allocation that failed for lack of memory: which line asked for how much, and who held what on that device at that moment, "
        "in one sentence and as a table. Exits with 3 if none failed.",
    .options = options,
    .examples = examples,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = oom_run,
};
