/* memoir trace waste: copies and allocations that may not be needed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "cli/trace_hot.h"
#include "trace/waste.h"

enum {
    WASTE_KIND,
    WASTE_SAVED,
    WASTE_COPIES,
    WASTE_BYTES,
    WASTE_SIZE,
    WASTE_WAY,
    WASTE_SPACE,
    WASTE_SITE,
    WASTE_COPY_SITE,
    WASTE_ADDRESS,
    WASTE_OFFSET
};

static const struct column columns[] = {
    [WASTE_KIND] =
        {"kind", "WASTE",
         "pageable: copies of memory that is not pinned; repeated: the same range copied again; uncopied: allocated, and never copied, set or prefetched",
         COLUMN_TEXT},
    [WASTE_SAVED] = {"saved", "SAVES",
                     "of pageable copies: time that pinned memory would save, as an estimate",
                     COLUMN_AGE, COLUMN_FINE | COLUMN_EXACT},
    [WASTE_COPIES] = {"copies", "COPIES",
                      "copies that this is about; of repeated ones, all but the first",
                      COLUMN_NUMBER},
    [WASTE_BYTES] = {"bytes", "BYTES", "bytes of these; of uncopied allocations, their sizes",
                     COLUMN_BYTES},
    [WASTE_SIZE] = {"size", "RANGE", "of repeated copies: size of the range", COLUMN_BYTES,
                    COLUMN_HIDE_EMPTY, 2},
    [WASTE_WAY] = {"direction", "WAY",
                   "of repeated copies: to_device, from_device, on_device or on_host", COLUMN_TEXT,
                   COLUMN_HIDE_EMPTY, 3},
    [WASTE_SPACE] = {"space", "MEMORY", "kind of memory of the allocation", COLUMN_TEXT,
                     COLUMN_HIDE_EMPTY},
    [WASTE_SITE] = {"site", "ALLOCATED AT", "the line that allocated the buffer", COLUMN_TEXT,
                    COLUMN_STRETCH | COLUMN_HIDE_EMPTY},
    [WASTE_COPY_SITE] = {"copy_site", "COPIED AT", "the line that copies", COLUMN_TEXT,
                         COLUMN_STRETCH | COLUMN_HIDE_EMPTY},
    [WASTE_ADDRESS] = {"address", NULL, "of the buffer", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [WASTE_OFFSET] = {"offset", NULL, "of the range in the buffer", COLUMN_NUMBER,
                      COLUMN_EXPORT_ONLY},
    {0},
};

static const struct command_fields fields[] = {{"Fields of a row", columns}, {0}};

static const struct option_spec options[] = {
    OPTION_HELP,
    {"limit", 'n', OPTION_NUMBER, TRACE_AT(limit), "K",
     "at most K rows of each kind (default: 20)"},
    {"pageable-rate", 0, OPTION_STRING, TRACE_AT(pageable_rate), "BYTES",
     "bytes that a copy of pageable memory moves in a second (default: 10GB)"},
    {"pinned-rate", 0, OPTION_STRING, TRACE_AT(pinned_rate), "BYTES",
     "the same for pinned memory (default: 50GB)"},
    TRACE_OPTION_FOR,
    TRACE_OPTION_SOCKET,
    TRACE_OPTION_DIR,
    TRACE_OPTION_TABLE,
    {0},
};

static const struct trace_detail details[] = {
    {WASTE_SITE, "allocated at"}, {WASTE_COPY_SITE, "copied at"}, {0, NULL}};

static void pageable_rows(struct trace_source *source, const struct waste_rates *rates,
                          struct table *t)
{
    struct trace_copier *copiers = NULL;
    char label[TRACE_LABEL_MAX];
    ptrdiff_t n = waste_pageable(source->history, source->values->limit, &copiers);
    for (ptrdiff_t i = 0; i < n; i++) {
        table_row(t);
        table_set_text(t, WASTE_KIND, "pageable");
        table_set_number(t, WASTE_SAVED, waste_saving_ns(rates, copiers[i].pageable.bytes));
        table_set_marks(t, WASTE_SAVED, TABLE_MARK_ESTIMATE);
        table_set_number(t, WASTE_COPIES, copiers[i].pageable.copies);
        table_set_number(t, WASTE_BYTES, copiers[i].pageable.bytes);
        table_set_text(t, WASTE_COPY_SITE,
                       trace_names_label(source->names, copiers[i].site, label));
    }
    free(copiers);
}

static void repeated_rows(struct trace_source *source, struct table *t)
{
    static const char *const ways[TRACE_DIRECTIONS] = {"unknown", "to_device", "from_device",
                                                       "on_device", "on_host"};
    struct waste_repeat *rows = NULL;
    char label[TRACE_LABEL_MAX], address[32];
    size_t sites;
    ptrdiff_t n = waste_repeats(source->history, source->values->limit, &rows);
    for (ptrdiff_t i = 0; i < n; i++) {
        const struct trace_block *b = &rows[i].block;
        const struct trace_repeat *r = &rows[i].repeat;
        bool host = b->class == TRACE_CLASS_IMPLICIT || b->class == TRACE_CLASS_SYSTEM;
        uint32_t copier = trace_hot_copy_site(source->history, b, &sites);
        table_row(t);
        table_set_text(t, WASTE_KIND, "repeated");
        table_set_number(t, WASTE_COPIES, r->copies - 1);
        table_set_number(t, WASTE_BYTES, rows[i].bytes);
        table_set_number(t, WASTE_SIZE, r->size);
        table_set_text(t, WASTE_WAY,
                       r->direction < TRACE_DIRECTIONS ? ways[r->direction] : ways[0]);
        table_set_text(t, WASTE_SPACE, host ? "host" : trace_space_name(b->space));
        if (b->site && b->class != TRACE_CLASS_IMPLICIT)
            table_set_text(t, WASTE_SITE, trace_names_label(source->names, b->site, label));
        if (copier)
            table_set_text(t, WASTE_COPY_SITE, trace_names_label(source->names, copier, label));
        snprintf(address, sizeof(address), "0x%" PRIx64, b->address);
        table_set_text(t, WASTE_ADDRESS, address);
        table_set_number(t, WASTE_OFFSET, r->offset);
    }
    free(rows);
}

static void uncopied_rows(struct trace_source *source, struct table *t)
{
    struct waste_uncopied *rows = NULL;
    char label[TRACE_LABEL_MAX];
    ptrdiff_t n = waste_uncopied(source->history, source->values->limit, &rows);
    for (ptrdiff_t i = 0; i < n; i++) {
        table_row(t);
        table_set_text(t, WASTE_KIND, "uncopied");
        table_set_number(t, WASTE_COPIES, 0);
        table_set_number(t, WASTE_BYTES, rows[i].bytes);
        table_set_text(t, WASTE_SPACE, trace_space_name(rows[i].space));
        table_set_text(t, WASTE_SITE, trace_names_label(source->names, rows[i].site, label));
    }
    free(rows);
}

static int rate_parse(const char *option, const char *text, uint64_t *rate)
{
    if (text && (units_parse_bytes(text, rate) < 0 || *rate == 0))
        return command_misuse(&cmd_trace_waste, "invalid size '%s' for --%s: expected 10GB", text,
                              option);
    return COMMAND_OK;
}

struct told {
    struct trace_source *source;
    struct waste_rates rates;
};

static void waste_extra(void *context, struct json *json)
{
    const struct told *told = context;
    struct trace_totals t = trace_history_totals(told->source->history);
    json_key(json, "estimate");
    json_object_begin(json);
    json_field_u64(json, "pageable_rate", told->rates.pageable);
    json_field_u64(json, "pinned_rate", told->rates.pinned);
    json_field_double(json, "saved",
                      (double)waste_saving_ns(&told->rates, t.pageable.bytes) / NS_PER_S);
    json_object_end(json);
    json_field_u64(json, "pageable", t.pageable.bytes);
    json_field_u64(json, "repeated_copies", t.repeated);
    json_field_u64(json, "repeated", t.repeated_bytes);
}

static int waste_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source source = {0};
    MEMOIR_CLEANUP(table_release)
    struct table table;
    struct told told = {&source, {WASTE_PAGEABLE_RATE, WASTE_PINNED_RATE}};
    table_init(&table, columns);
    int r = rate_parse("pageable-rate", v->pageable_rate, &told.rates.pageable);
    if (r == COMMAND_OK)
        r = rate_parse("pinned-rate", v->pinned_rate, &told.rates.pinned);
    if (r == COMMAND_OK)
        r = trace_source_operand(&source, &cmd_trace_waste, v, operands);
    if (r != COMMAND_OK)
        return r;
    pageable_rows(&source, &told.rates, &table);
    repeated_rows(&source, &table);
    uncopied_rows(&source, &table);
    struct trace_print print = {
        .schema = "memoir.trace.waste/3",
        .rows = "waste",
        .details = details,
        .empty =
            "No waste: copies are of pinned memory, nothing was copied twice, and all allocations were copied.",
        .extra = waste_extra,
        .copies = true,
        .context = &told};
    r = trace_print_table(&source, &table, &print);
    if (r == COMMAND_OK && table.n_rows && !v->json && !v->csv) {
        char pageable[UNITS_TEXT_MAX], pinned[UNITS_TEXT_MAX];
        fprintf(
            stderr,
            "SAVES is an estimate: pageable memory at %s/s, pinned at %s/s (--pageable-rate, --pinned-rate).\n",
            trace_bytes(pageable, told.rates.pageable), trace_bytes(pinned, told.rates.pinned));
    }
    return r;
}

static const struct command_example examples[] = {
    {"sudo memoir trace waste 4242", "where copies can be saved or made faster"},
    {"memoir trace waste run.trace --pinned-rate 25GB --pageable-rate 6GB",
     "with the rates of another machine"},
    {0},
};

static const struct command_section sections[] = {
    {"WHAT PINNING SAVES",
     "The driver copies pageable memory piece by piece through a pinned buffer of its own. The estimate is the difference of two rates for the bytes that "
     "were copied. The defaults were measured on an H200 with PCIe 5 for copies of 16 MB; small copies gain less, a slower bus has both rates lower. Registering "
     "memory costs about 0.08 ms per MB, once."},
    {"WHAT IS NO WASTE",
     "A repeated copy is one of a range that was copied in this direction before: whether its bytes had changed meanwhile is not known. An allocation without a "
     "copy may be filled and read by kernels on the device, which are not probed."},
    {0},
};

const struct command cmd_trace_waste = {
    .name = "trace waste",
    .usage = "trace waste [OPTION...] PID|FILE",
    .help = "copies that repeat, copies of pageable memory, buffers that were never copied",
    .description =
        "Shows copies of pageable memory by line, with the time that pinned memory would save as an estimate; ranges that were copied again and again; "
        "and allocations that were never copied.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = waste_run,
};
