/* Printing tables and words of `memoir trace`. See trace.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/space_word.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "ledger/ledger.h"
#include "query/document.h"
#include "query/query.h"

enum { DETAIL_INDENT = 8, DETAIL_WORD = 13 };

const char *trace_space_name(unsigned space)
{
    switch (space) {
    case MEMOIR_SPACE_DRAM:
        return "device";
    case 0:
        return "host";
    default:
        return ledger_space_name(space);
    }
}

int trace_space_parse(const struct command *command, const char *word, uint8_t *ret_space)
{
    uint32_t space = 0;
    *ret_space = 0;
    if (!word)
        return COMMAND_OK;
    if (strcasecmp(word, "device") == 0)
        space = MEMOIR_SPACE_DRAM;
    else if (strcasecmp(word, "host") == 0)
        space = MEMOIR_SPACE_MAPPED; /* what the system told of, and what is known from copies */
    else {
        int r = space_word_parse(command, word, false, &space);
        if (r != COMMAND_OK)
            return r;
    }
    *ret_space = (uint8_t)space;
    return COMMAND_OK;
}

const char *trace_bytes(char *text, uint64_t bytes)
{
    return units_format_bytes(text, bytes, UNITS_DECIMAL);
}

uint64_t trace_real_ns(const struct trace_source *source, uint64_t time_ns)
{
    return source->identity.start_real_ns + (time_ns - source->identity.start_ns);
}

void trace_system_words(const uint64_t system[static TRACE_SYSTEM_KINDS], struct buffer *out)
{
    static const char *const words[TRACE_SYSTEM_KINDS][2] = {
        [TRACE_SYSTEM_FAULT] = {"fault", "faults"},
        [TRACE_SYSTEM_RECLAIM] = {"page reclaimed", "pages reclaimed"},
        [TRACE_SYSTEM_MIGRATE] = {"page migrated", "pages migrated"},
        [TRACE_SYSTEM_HUGE] = {"huge page", "huge pages"},
        [TRACE_SYSTEM_SPLIT] = {"split", "splits"},
        [TRACE_SYSTEM_ADVISE] = {"madvise", "madvise"},
        [TRACE_SYSTEM_LOCK] = {"mlock", "mlock"},
        [TRACE_SYSTEM_UNLOCK] = {"munlock", "munlock"},
        [TRACE_SYSTEM_OOM] = {"OOM kill", "OOM kills"},
    };
    bool first = true;
    for (size_t i = 0; i < TRACE_SYSTEM_KINDS; i++) {
        char count[UNITS_TEXT_MAX];
        if (!system[i] || !words[i][0])
            continue;
        buffer_printf(out, "%s%s %s", first ? "" : ", ", units_format_count(count, system[i]),
                      words[i][system[i] != 1]);
        first = false;
    }
}

void trace_print_process(const struct trace_source *source, struct json *json)
{
    struct trace_totals totals = trace_history_totals(source->history);
    char since[QUERY_TIME_TEXT_MAX];
    json_key(json, "process");
    json_object_begin(json);
    json_field_i64(json, "pid", source->identity.pid);
    json_field_u64(json, "uid", source->identity.uid);
    json_field_string(json, "program", source->identity.name);
    json_field_string(json, "node", *source->identity.host ? source->identity.host : NULL);
    json_field_string(json, "traced_since", query_time_text(since, source->identity.start_real_ns));
    json_field_bool(json, "exited", totals.exit_ns != 0);
    json_field_bool(json, "allocated_before_tracing", source->late);
    json_field_u64(json, "gaps", totals.gaps);
    json_field_u64(json, "lost_events", totals.gap_events);
    json_object_end(json);
}

static void detail_print(const struct cell *cell, const char *word, const struct term *term,
                         struct buffer *out)
{
    unsigned used = DETAIL_INDENT + DETAIL_WORD;
    if (!cell->present)
        return;
    buffer_printf(out, "%*s%s%-*s%s", DETAIL_INDENT, "", term_style(term, STYLE_DIM), DETAIL_WORD,
                  word, term_plain(term, STYLE_DIM));
    term_append(term, out, cell->text, term->width > used + 8 ? term->width - used : 0);
    buffer_append_char(out, '\n');
}

int trace_print_details(const struct table *table, const struct table_layout *layout,
                        const struct trace_detail *details, const struct term *term,
                        struct buffer *out)
{
    struct table figures = *table;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TRACE_OUTPUT_MAX);
    if (!term->width || term->width >= TRACE_WIDE)
        return table_print(table, layout, term, out);
    MEMOIR_CLEANUP(freep)
    struct column *columns = calloc(table->n_columns + 1, sizeof(*columns));
    if (!columns)
        return -ENOMEM;
    memcpy(columns, table->columns, table->n_columns * sizeof(*columns));
    for (const struct trace_detail *d = details; d->word; d++)
        columns[d->column].flags = COLUMN_EXPORT_ONLY;
    figures.columns = columns;
    int r = table_print(&figures, layout, term, &text);
    if (r < 0)
        return r;
    const char *line = buffer_string(&text);
    for (size_t i = 0; *line; i++) { /* a line for each row, after that of the header */
        size_t len = strcspn(line, "\n");
        buffer_append(out, line, len);
        buffer_append_char(out, '\n');
        line += len + (line[len] == '\n');
        for (const struct trace_detail *d = details; i >= layout->header && d->word; d++)
            detail_print(table_cell(table, i - layout->header, d->column), d->word, term, out);
    }
    return out->error;
}

static int print_json(const struct trace_source *source, const struct table *table,
                      const struct trace_print *print, struct buffer *out)
{
    struct json json;
    command_json_begin(&json, out, print->schema);
    trace_print_process(source, &json);
    if (print->extra)
        print->extra(print->context, &json);
    json_key(&json, print->rows);
    json_array_begin(&json);
    for (size_t row = 0; row < table->n_rows; row++) {
        json_object_begin(&json);
        table_json_row(table, row, 0, &json);
        if (print->row_extra)
            print->row_extra(print->context, row, &json);
        json_object_end(&json);
    }
    json_array_end(&json);
    query_document_end(&json);
    int r = json_finish(&json);
    buffer_append_char(out, '\n');
    return r;
}

int trace_print_table(const struct trace_source *source, const struct table *table,
                      const struct trace_print *print)
{
    const struct trace_values *v = source->values;
    struct table_layout layout = {.header = !v->no_header};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TRACE_OUTPUT_MAX);
    struct term term;
    int r = table->error;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    if (r == 0 && v->json)
        r = print_json(source, table, print, &out);
    else if (r == 0 && v->csv)
        r = table_print_csv(table, &layout, &out);
    else if (r == 0 && table->n_rows)
        r = print->details ? trace_print_details(table, &layout, print->details, &term, &out)
                           : table_print(table, &layout, &term, &out);
    else if (r == 0)
        fprintf(stderr, "%s\n", print->empty);
    if (r < 0)
        return r;
    r = command_output(&out);
    if (r == COMMAND_OK && print->copies && source->late && !v->json && !v->csv)
        fputs(
            "Some copies are of memory that was allocated before tracing began; what was pinned then "
            "is shown as pageable.\n",
            stderr);
    return r;
}

int trace_print_rows(const struct table *table, const char *schema, const char *rows,
                     struct buffer *out)
{
    struct json json;
    command_json_begin(&json, out, schema);
    table_json_rows(table, rows, &json);
    query_document_end(&json);
    int r = json_finish(&json);
    buffer_append_char(out, '\n');
    return r;
}
