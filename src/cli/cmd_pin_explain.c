/* memoir pin explain: why each allocation of a process is pinned or not. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "cli/pin.h"
#include "pin/kernel_pinned.h"
#include "pin/reason.h"
#include "pin/settings.h"
#include "site/symbols.h"

enum {
    C_PINNED,
    C_SIZE,
    C_COPIES,
    C_MISSED,
    C_SAVED,
    C_COST,
    C_WHY,
    C_SITE,
    C_ADDRESS,
    C_REASON,
    C_TO,
    C_FROM,
    C_REGISTERED,
    C_KEY
};

static const struct column columns[] = {
    [C_PINNED] = {"is_pinned", "PINNED", "whether it is pinned now", COLUMN_YES},
    [C_SIZE] = {"size", "SIZE", "size of the allocation", COLUMN_BYTES},
    [C_COPIES] = {"copies", "COPIES", "copies to and from devices", COLUMN_NUMBER},
    [C_MISSED] = {"missed", "MISSED", "what its copies took longer because it was pageable",
                  COLUMN_AGE, COLUMN_FINE | COLUMN_EXACT},
    [C_SAVED] = {"saved", "SAVED", "what its copies took less because it was pinned", COLUMN_AGE,
                 COLUMN_FINE | COLUMN_EXACT},
    [C_COST] =
        {"cost", "COST",
         "of pinning it: register, unregister, and the price of memory that cannot be reclaimed",
         COLUMN_AGE, COLUMN_FINE | COLUMN_EXACT},
    [C_WHY] = {"why", "WHY", "the reason in words", COLUMN_TEXT, COLUMN_STRETCH, 1},
    [C_SITE] = {"site", "ALLOCATED AT", "the line that allocated it", COLUMN_TEXT,
                COLUMN_STRETCH | COLUMN_WIDE, 2},
    [C_ADDRESS] = {"address", NULL, "its start", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [C_REASON] = {"reason", NULL, "the reason in one word", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [C_TO] = {"to_device_copies", NULL, "copies to devices", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [C_FROM] = {"from_device_copies", NULL, "copies from devices", COLUMN_NUMBER,
                COLUMN_EXPORT_ONLY},
    [C_REGISTERED] = {"registered", NULL, "bytes that are registered with the driver", COLUMN_BYTES,
                      COLUMN_EXPORT_ONLY},
    [C_KEY] = {"key", NULL, "identity of the line, the same in every run", COLUMN_TEXT,
               COLUMN_EXPORT_ONLY},
    {0},
};
static const struct command_fields fields[] = {{"Fields of an allocation", columns}, {0}};

static const struct option_spec options[] = {
    OPTION_HELP,
    {"limit", 'n', OPTION_NUMBER, PIN_AT(limit), "K",
     "at most K allocations; 0: all (default: 50)"},
    PIN_OPTION_DIR,
    PIN_OPTION_TABLE,
    {0},
};

static int compare(const void *a, const void *b)
{
    const struct pin_state_block *x = *(const struct pin_state_block *const *)a,
                                 *y = *(const struct pin_state_block *const *)b;
    if (x->pinned != y->pinned)
        return x->pinned ? -1 : 1;
    uint64_t u = x->saved_ns + x->missed_ns, v = y->saved_ns + y->missed_ns;
    return u != v ? (u < v ? 1 : -1) : (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void fill(struct table *table, const struct pin_state *s, const struct pin_state_block *b,
                 struct symbolizer *names)
{
    char text[PIN_LABEL_MAX];
    bool shadow = s->mode == PIN_SHADOW;
    table_row(table);
    table_set_number(table, C_PINNED, b->pinned && !shadow);
    table_set_number(table, C_SIZE, b->bytes);
    table_set_number(table, C_COPIES, b->copies[0] + b->copies[1]);
    table_set_number(table, C_MISSED, b->missed_ns);
    table_set_number(table, C_SAVED, b->saved_ns);
    if (b->cost_ns)
        table_set_number(table, C_COST, b->cost_ns);
    snprintf(text, sizeof(text), "%s%s", shadow && b->pinned ? "would be pinned: " : "",
             pin_reason_text((enum pin_reason)b->reason));
    table_set_text(table, C_WHY, text);
    table_set_text(table, C_REASON, pin_reason_word((enum pin_reason)b->reason));
    table_set_text(table, C_SITE,
                   b->reason == PIN_REASON_RING ? "staging ring"
                                                : pin_label(names, s, b->site, 0, text));
    snprintf(text, sizeof(text), "0x%" PRIx64, b->address);
    table_set_text(table, C_ADDRESS, text);
    table_set_number(table, C_TO, b->copies[0]);
    table_set_number(table, C_FROM, b->copies[1]);
    table_set_number(table, C_REGISTERED, shadow ? 0 : b->registered_bytes);
    if (b->site) {
        snprintf(text, sizeof(text), "%016" PRIx64, s->site[b->site].key);
        table_set_text(table, C_KEY, text);
    }
}

static void head(const struct pin_state *s, struct buffer *out)
{
    char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX];
    uint64_t kernel;
    buffer_printf(
        out, "Mode %s: %s pinned of %s live, budget %s", pin_mode_word((enum pin_mode)s->mode),
        units_format_bytes(a, s->mode == PIN_SHADOW ? 0 : s->registered_bytes, UNITS_DECIMAL),
        units_format_bytes(b, s->live_bytes, UNITS_DECIMAL),
        s->budget_bytes == UINT64_MAX ? "unlimited"
                                      : units_format_bytes(c, s->budget_bytes, UNITS_DECIMAL));
    buffer_printf(out, "; copies %s %.1f ms and missed %.1f ms, pinning cost %.1f ms%s.\n",
                  s->mode == PIN_SHADOW ? "would have saved" : "saved", (double)s->saved_ns / 1e6,
                  (double)s->missed_ns / 1e6, (double)s->cost_ns / 1e6,
                  s->calibrated ? "" : " (costs are assumed: not calibrated)");
    if (pin_kernel_pinned("/proc/vmstat", &kernel) == 0)
        buffer_printf(
            out, "The program itself pinned %s; of the whole machine the kernel holds %s pinned.\n",
            units_format_bytes(a, s->own_bytes, UNITS_DECIMAL),
            units_format_bytes(b, kernel, UNITS_DECIMAL));
    if (s->mode == PIN_SHADOW)
        buffer_printf(
            out, "By what its copies took, pinning and staging would have saved %.1f ms in all.\n",
            ((double)s->observed_ns - (double)s->cost_ns) / 1e6);
    if (s->staged_copies || s->stage_busy || s->stage_failed)
        buffer_printf(out,
                      "Staging: %" PRIu64
                      " pageable copies (%s) went through the ring, which saved %.1f ms; %" PRIu64
                      " found it busy, %" PRIu64 " failed and were made by the driver.\n",
                      s->staged_copies, units_format_bytes(a, s->staged_bytes, UNITS_DECIMAL),
                      (double)s->staged_saved_ns / 1e6, s->stage_busy, s->stage_failed);
    if (s->touched_blocks)
        buffer_printf(out,
                      "First touch: %s of %" PRIu64
                      " allocations ahead of the program, which filled them in order; in %" PRIu64
                      " it stopped before the end.\n",
                      units_format_bytes(a, s->touched_bytes, UNITS_DECIMAL), s->touched_blocks,
                      s->touch_stopped);
    if (s->failures + s->unregister_failed + s->lock_lost + s->unwrapped + s->not_shown)
        buffer_printf(out,
                      "Losses: %" PRIu64 " registrations failed, %" PRIu64
                      " could not be undone, %" PRIu64 " locks lost, %" PRIu64
                      " functions not watched, %" PRIu64 " blocks not shown.\n",
                      s->failures, s->unregister_failed, s->lock_lost, s->unwrapped, s->not_shown);
    buffer_append_char(out, '\n');
}

static int explain_run(const void *values, const struct operands *operands)
{
    const struct pin_values *v = values;
    MEMOIR_CLEANUP(freep)
    struct pin_state *s = NULL;
    struct symbolizer *names = NULL;
    (void)symbolizer_new(NULL, &names);
    int r = pin_source_open(&cmd_pin_explain, v, operands, false, &s);
    const struct pin_state_block **order =
        r == COMMAND_OK ? calloc(PIN_STATE_BLOCKS, sizeof(*order)) : NULL;
    if (r == COMMAND_OK && order) {
        struct table table;
        MEMOIR_CLEANUP(buffer_release)
        struct buffer top = BUFFER_INIT(4096);
        size_t n = 0;
        table_init(&table, columns);
        for (size_t i = 0; i < PIN_STATE_BLOCKS; i++)
            if (s->block[i].address)
                order[n++] = &s->block[i];
        qsort(order, n, sizeof(*order), compare);
        for (size_t i = 0; i < n && (v->limit == 0 || i < v->limit); i++)
            fill(&table, s, order[i], names);
        head(s, &top);
        r = pin_print(v, &table, "memoir.pin.explain/3", "allocations",
                      "no served allocation is live", s, &top);
        table_release(&table);
    }
    free(order);
    symbolizer_free(names);
    return r;
}

static const struct command_example examples[] = {
    {"memoir pin explain 4242", "what is pinned, what is not, and why"},
    {"memoir pin explain --json 4242", "for programs"},
    {0},
};

const struct command cmd_pin_explain = {
    .name = "pin explain",
    .usage = "pin explain [OPTION...] PID",
    .help = "why each allocation is pinned or not",
    .description =
        "Shows the large allocations of a process that runs with libmemoir-cuda (memoir pin run), with the reason for which each is pinned or not: "
        "what its copies have cost so far as pageable memory, what they saved as pinned memory, and what pinning it costs.",
    .options = options,
    .examples = examples,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(pin_defaults),
    .defaults = &pin_defaults,
    .run = explain_run,
};
