/* memoir pin advise: which call sites to pin, what that saves and costs. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/pin.h"
#include "pin/advice.h"
#include "site/symbols.h"

enum {
    C_ADVICE,
    C_SAVES,
    C_EACH,
    C_STEP,
    C_BYTES,
    C_COPIES,
    C_BLOCKS,
    C_SAVED,
    C_SITE,
    C_KEY,
    C_TO,
    C_FROM,
    C_PER_SECOND,
};

static const struct column columns[] = {
    [C_ADVICE] =
        {"advice", "ADVICE",
         "pin: each allocation is worth its memory; reuse: all together are worth that of one, so allocate once and use it again, or let memoir pin run do so; leave: neither",
         COLUMN_TEXT},
    [C_SAVES] = {"saves", "SAVES", "what pinned copies take less than pageable ones, in all",
                 COLUMN_AGE, COLUMN_FINE | COLUMN_EXACT},
    [C_EACH] = {"saves_each", "EACH",
                "the same for one allocation: one step of a loop that allocates anew", COLUMN_AGE,
                COLUMN_FINE | COLUMN_EXACT},
    [C_STEP] = {"saves_step", "PER STEP", "the same for one of the steps that --steps gives",
                COLUMN_AGE, COLUMN_FINE | COLUMN_EXACT},
    [C_BYTES] = {"bytes", "COSTS", "memory that would be pinned: the average allocation",
                 COLUMN_BYTES},
    [C_COPIES] = {"copies", "COPIES", "copies to and from devices", COLUMN_NUMBER},
    [C_BLOCKS] = {"allocations", "ALLOCATIONS", "allocations since the start", COLUMN_NUMBER},
    [C_SAVED] = {"saved", "SAVED", "of what it saves, what pinning has saved already", COLUMN_AGE,
                 COLUMN_FINE | COLUMN_EXACT},
    [C_SITE] = {"site", "ALLOCATED AT", "the line that allocates", COLUMN_TEXT,
                COLUMN_STRETCH | COLUMN_WIDE},
    [C_KEY] = {"key", NULL, "identity of the line, the same in every run", COLUMN_TEXT,
               COLUMN_EXPORT_ONLY},
    [C_TO] = {"to_device", NULL, "bytes copied to devices", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    [C_FROM] = {"from_device", NULL, "bytes copied from devices", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    [C_PER_SECOND] = {"saves_rate", NULL,
                      "the same in each second of the process; absent for a history", COLUMN_AGE,
                      COLUMN_FINE | COLUMN_EXACT | COLUMN_EXPORT_ONLY},
    {0},
};
static const struct command_fields fields[] = {{"Fields of a call site", columns}, {0}};

static const struct option_spec options[] = {
    OPTION_HELP,
    {"limit", 'n', OPTION_NUMBER, PIN_AT(limit), "K", "at most K call sites; 0: all (default: 50)"},
    {"steps", 's', OPTION_NUMBER, PIN_AT(steps), "N",
     "the program made N steps: show what one of them saves"},
    PIN_OPTION_DIR,
    PIN_OPTION_TABLE,
    {0},
};

struct row {
    const struct pin_state_site *site;
    struct pin_advice advice;
};

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct row *)a)->advice.saves_ns,
             y = ((const struct row *)b)->advice.saves_ns;
    return (x < y) - (x > y);
}

static void fill(struct table *table, const struct pin_state *s, const struct row *row,
                 uint64_t steps, struct symbolizer *names)
{
    char text[PIN_LABEL_MAX];
    const struct pin_state_site *site = row->site;
    const struct pin_advice *advice = &row->advice;
    uint64_t ran_ns = s->updated_ns > s->started_ns ? s->updated_ns - s->started_ns : 0;
    table_row(table);
    table_set_text(table, C_ADVICE, pin_advice_word(advice->kind));
    table_set_number(table, C_SAVES, advice->saves_ns);
    table_set_number(table, C_EACH, advice->each_ns);
    if (steps)
        table_set_number(table, C_STEP, advice->saves_ns / steps);
    table_set_number(table, C_BYTES, advice->cost_bytes);
    table_set_number(table, C_COPIES, site->copies[0] + site->copies[1]);
    table_set_number(table, C_BLOCKS, site->blocks);
    table_set_number(table, C_SAVED, site->saved_ns);
    table_set_text(table, C_SITE, pin_label(names, s, (uint32_t)(site - s->site), 0, text));
    snprintf(text, sizeof(text), "%016" PRIx64, site->key);
    table_set_text(table, C_KEY, text);
    table_set_number(table, C_TO, site->copied_bytes[0]);
    table_set_number(table, C_FROM, site->copied_bytes[1]);
    if (ran_ns)
        table_set_number(table, C_PER_SECOND,
                         (uint64_t)((double)advice->saves_ns * 1e9 / (double)ran_ns));
}

static int advise_run(const void *values, const struct operands *operands)
{
    const struct pin_values *v = values;
    MEMOIR_CLEANUP(freep)
    struct pin_state *s = NULL;
    struct symbolizer *names = NULL;
    (void)symbolizer_new(NULL, &names);
    int r = pin_source_open(&cmd_pin_advise, v, operands, true, &s);
    struct row *order = r == COMMAND_OK ? calloc(PIN_STATE_SITES, sizeof(*order)) : NULL;
    if (r == COMMAND_OK && order) {
        struct table table;
        size_t n = 0;
        table_init(&table, columns);
        for (size_t i = 1; i < s->n_sites; i++)
            if (s->site[i].key && s->site[i].copies[0] + s->site[i].copies[1])
                order[n++] = (struct row){&s->site[i], pin_advice_of(s, &s->site[i])};
        qsort(order, n, sizeof(*order), compare);
        for (size_t i = 0; i < n && (v->limit == 0 || i < v->limit); i++)
            fill(&table, s, &order[i], v->steps, names);
        r = pin_print(v, &table, "memoir.pin.advise/3", "sites", "no call site's memory was copied",
                      s, NULL);
        table_release(&table);
    }
    free(order);
    symbolizer_free(names);
    return r;
}

static const struct command_example examples[] = {
    {"memoir pin advise 4242",
     "which lines' memory to pin in a process that runs by memoir pin run"},
    {"memoir pin run --mode shadow --history h ./app && memoir pin advise h",
     "without pinning anything"},
    {"memoir pin advise --steps 1000 4242", "what each of 1,000 steps saves"},
    {0},
};

const struct command cmd_pin_advise = {
    .name = "pin advise",
    .usage = "pin advise [OPTION...] PID|HISTORY",
    .help = "which call sites to pin, what it saves and costs",
    .description =
        "Names the call sites whose memory is worth pinning, with the time that it saves and the memory that it costs, from a process that runs with "
        "libmemoir-cuda or from a history that memoir pin run --history wrote. For programs that were traced from outside, see memoir-trace-waste(1).",
    .options = options,
    .examples = examples,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(pin_defaults),
    .defaults = &pin_defaults,
    .run = advise_run,
};
