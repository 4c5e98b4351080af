/* Suspects on screen, as CSV and as JSON. See suspects.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/spark.h"
#include "cli/suspects.h"
#include "cli/table.h"

enum {
    COL_VERDICT,
    COL_CONFIDENCE,
    COL_REASON,
    COL_RATE,
    COL_BLOCK_RATE,
    COL_LIVE,
    COL_BLOCKS,
    COL_FREED,
    COL_WATCHED,
    COL_GROWING,
    COL_LEFT,
    COL_LIMIT,
    COL_LIMIT_BYTES,
    COL_PID,
    COL_PROGRAM,
    COL_USER,
    COL_DEVICE,
    COL_DEVICE_NAME,
    COL_DEVICE_UID,
    COL_SPACE,
    COL_SITE,
    COL_FRAME,
    COL_FUNCTION,
    COL_FILE,
    COL_LINE,
    COL_WHY,
};

const struct column suspects_columns[] = {
    [COL_VERDICT] = {"verdict", NULL, "leak, growing, warming up, steady or unknown yet",
                     COLUMN_TEXT},
    [COL_CONFIDENCE] = {"confidence_percent", NULL, "how sure the verdict is", COLUMN_PERCENT},
    [COL_REASON] =
        {"reason", NULL,
         "what it rests on: sustained (a leak), stopped, slowing, teeth, one-off, load, drift, one block, "
         "frees late, slower now, churn, idle, shrinks, too short, too few looks",
         COLUMN_TEXT},
    [COL_RATE] = {"bytes_per_minute", NULL,
                  "growth of what it holds at least, by the median slope; 0 when it is steady",
                  COLUMN_BYTES},
    [COL_BLOCK_RATE] = {"blocks_per_minute", NULL, "the same for blocks, rounded", COLUMN_NUMBER},
    [COL_LIVE] = {"bytes", NULL, "allocated there and not freed", COLUMN_BYTES},
    [COL_BLOCKS] = {"blocks", NULL, "blocks of them", COLUMN_NUMBER},
    [COL_FREED] = {"ever_freed_percent", NULL, "of all bytes ever allocated there, freed",
                   COLUMN_PERCENT},
    [COL_WATCHED] = {"watched_seconds", NULL, "the time that the verdict is about", COLUMN_AGE},
    [COL_GROWING] = {"growing_seconds", NULL,
                     "how long it has grown without falling, as far as it was watched", COLUMN_AGE},
    [COL_LEFT] = {"limit_in_seconds", NULL,
                  "until the limit is reached at this rate; absent when not within ten years",
                  COLUMN_AGE},
    [COL_LIMIT] = {"limit", NULL, "which limit: cgroup, machine or device", COLUMN_TEXT},
    [COL_LIMIT_BYTES] = {"limit_bytes", NULL, "its size", COLUMN_BYTES},
    [COL_PID] = {"pid", NULL, "process id as seen from here", COLUMN_NUMBER},
    [COL_PROGRAM] = {"program", NULL, "name of the program", COLUMN_TEXT},
    [COL_USER] = {"user", NULL, "who owns the process", COLUMN_TEXT},
    [COL_DEVICE] = COLUMN_DEVICE,
    [COL_DEVICE_NAME] = COLUMN_DEVICE_NAME,
    [COL_DEVICE_UID] = COLUMN_DEVICE_UID,
    [COL_SPACE] = {"space", NULL, "kind of memory", COLUMN_TEXT},
    [COL_SITE] = {"site", NULL,
                  "the place in the code: line and function where they are known, else module and "
                  "offset",
                  COLUMN_TEXT},
    [COL_FRAME] = {"frame", NULL, "path of the module and offset in its file", COLUMN_TEXT},
    [COL_FUNCTION] = {"function", NULL, "name of the function", COLUMN_TEXT},
    [COL_FILE] = {"file", NULL, "source file", COLUMN_TEXT},
    [COL_LINE] = {"line", NULL, "line in the source file", COLUMN_NUMBER},
    [COL_WHY] = {"why", NULL, "a sentence that explains the verdict", COLUMN_TEXT},
    {0},
};

static uint64_t hundredths(double part)
{
    return (uint64_t)llround(part * 10000);
}

static void set_text(struct table *t, size_t column, const char *text)
{
    if (text)
        table_set_text(t, column, text);
}

static void row_fill(struct table *t, const struct suspect *s)
{
    table_row(t);
    table_set_text(t, COL_VERDICT, detect_verdict_word(s->verdict));
    bool grows = s->verdict != DETECT_STEADY; /* slopes of what is steady are noise */
    if (s->verdict != DETECT_UNKNOWN) {
        table_set_number(t, COL_CONFIDENCE, hundredths(s->confidence));
        table_set_number(t, COL_RATE, grows ? detect_per_minute(s->bytes_per_s) : 0);
        if (!s->resident)
            table_set_number(t, COL_BLOCK_RATE, grows ? detect_per_minute(s->blocks_per_s) : 0);
    }
    set_text(t, COL_REASON, s->reason);
    table_set_number(t, COL_LIVE, s->live_bytes);
    if (!s->resident)
        table_set_number(t, COL_BLOCKS, s->live_blocks);
    if (s->ever_freed >= 0)
        table_set_number(t, COL_FREED, hundredths(s->ever_freed));
    table_set_number(t, COL_WATCHED, s->span_ns);
    if (s->verdict >= DETECT_GROWING)
        table_set_number(t, COL_GROWING, s->growing_ns);
    if (s->left_ns != UINT64_MAX)
        table_set_number(t, COL_LEFT, s->left_ns);
    set_text(t, COL_LIMIT, s->limit);
    if (s->limit)
        table_set_number(t, COL_LIMIT_BYTES, s->limit_bytes);
    if (s->pid)
        table_set_number(t, COL_PID, s->pid);
    set_text(t, COL_PROGRAM, s->program);
    set_text(t, COL_USER, s->user);
    if (s->ordinal >= 0)
        table_set_device(t, COL_DEVICE, s->ordinal, s->device_name ? s->device_name : "",
                         s->device_uid ? s->device_uid : "");
    set_text(t, COL_SPACE, s->space);
    set_text(t, COL_SITE, s->site);
    set_text(t, COL_FRAME, s->frame);
    set_text(t, COL_FUNCTION, s->function);
    set_text(t, COL_FILE, s->file);
    if (s->line)
        table_set_number(t, COL_LINE, s->line);
    set_text(t, COL_WHY, s->why);
}

static void rows_fill(struct table *t, const struct suspects *suspects, size_t n)
{
    table_init(t, suspects_columns);
    for (size_t i = 0; i < n && i < suspects->n; i++)
        row_fill(t, &suspects->rows[i]);
}

int suspects_csv(const struct suspects *suspects, const struct suspects_style *style,
                 struct buffer *out)
{
    MEMOIR_CLEANUP(table_release)
    struct table table;
    rows_fill(&table, suspects, style->shown);
    struct table_layout layout = {.header = style->header};
    return table_print_csv(&table, &layout, out);
}

/* ---- JSON ---- */

static void json_lists(const struct suspect *s, struct json *json)
{
    json_key(json, "trend");
    json_array_begin(json);
    for (unsigned i = 0; i < s->n_spark; i++)
        json_u64(json, s->spark[i]);
    json_array_end(json);
    json_key(json, "stack");
    json_array_begin(json);
    for (unsigned i = 0; i < s->n_stack; i++)
        json_string(json, s->stack[i]);
    json_array_end(json);
    json_key(json, "sample_blocks");
    json_array_begin(json);
    for (unsigned i = 0; i < s->n_blocks; i++) {
        char id[24];
        snprintf(id, sizeof(id), "0x%" PRIx64, s->blocks[i].id);
        json_object_begin(json);
        json_field_string(json, "id", id);
        json_field_u64(json, "bytes", s->blocks[i].bytes);
        json_field_double(json, "age_seconds", (double)s->blocks[i].age_ns / (double)NS_PER_S);
        json_object_end(json);
    }
    json_array_end(json);
}

int suspects_json(const struct suspects *suspects, const struct suspects_style *style,
                  struct buffer *out)
{
    MEMOIR_CLEANUP(table_release)
    struct table table;
    struct json json;
    rows_fill(&table, suspects, style->shown);
    if (table.error)
        return table.error;
    command_json_begin(&json, out, "memoir.leaks/1");
    json_field_string(&json, "watched_by", suspects->daemon ? "memoird" : "memoir");
    json_field_double(&json, "watched_seconds", (double)suspects->span_ns / (double)NS_PER_S);
    json_field_u64(&json, "sites", suspects->sites);
    json_field_u64(&json, "left_out", suspects->left_out);
    json_field_bool(&json, "incomplete", suspects->incomplete);
    json_key(&json, "verdicts");
    json_object_begin(&json);
    for (unsigned v = 0; v < DETECT_VERDICTS; v++)
        json_field_u64(&json, detect_verdict_word((enum detect_verdict)v), suspects->verdicts[v]);
    json_object_end(&json);
    json_key(&json, "suspects");
    json_array_begin(&json);
    for (size_t i = 0; i < table.n_rows; i++) {
        json_object_begin(&json);
        table_json_row(&table, i, 0, &json);
        json_lists(&suspects->rows[i], &json);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    buffer_append_char(out, '\n');
    return json_finish(&json);
}

/* ---- screen ---- */

enum { INDENT = 4, WIDTH_USUAL = 100, SENTENCE_MAX = 4096 };

static enum term_style verdict_style(enum detect_verdict verdict)
{
    return verdict == DETECT_LEAK ? STYLE_BAD : verdict == DETECT_GROWING ? STYLE_WARN : STYLE_DIM;
}

/* A paragraph of its own; what strangers named is in it, so it goes through term_append() first. */
static void sentence(const struct term *term, struct buffer *out, const char *text)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer safe = BUFFER_INIT(SENTENCE_MAX);
    unsigned width = term->width ? term->width : WIDTH_USUAL;
    term_append(term, &safe, text, 0);
    term_wrap(out, buffer_string(&safe), INDENT, width > INDENT + 20 ? width : INDENT + 20);
}

static void print_title(const struct suspect *s, const struct term *term, struct buffer *out)
{
    char rate[UNITS_TEXT_MAX];
    enum term_style style = verdict_style(s->verdict);
    buffer_printf(out, "%s%s%s", term_style(term, style), detect_verdict_word(s->verdict),
                  term_plain(term, style));
    if (s->verdict != DETECT_UNKNOWN)
        buffer_printf(out, " (%.0f %% sure)", 100 * s->confidence);
    uint64_t bytes = detect_per_minute(s->bytes_per_s), blocks = detect_per_minute(s->blocks_per_s);
    bool empty = bytes == 0 && s->live_bytes == 0 && blocks > 0; /* blocks of no bytes */
    if (s->verdict >= DETECT_GROWING)
        buffer_printf(out, "  %s%s%s/min%s", term_style(term, STYLE_TITLE),
                      empty ? units_format_count(rate, blocks)
                            : units_format_bytes(rate, bytes, UNITS_DECIMAL),
                      empty ? " blocks" : "", term_plain(term, STYLE_TITLE));
    buffer_append_str(out, "  ");
    term_append(term, out,
                s->site       ? s->site
                : s->frame    ? s->frame
                : s->resident ? "resident size"
                              : "(place in the code not known)",
                0);
    if (s->script && (!s->site || strcmp(s->site, s->script) != 0)) {
        buffer_append_str(out, ", for ");
        term_append(term, out, s->script, 0);
        if (s->samples)
            buffer_printf(out, " (%u of %u samples)", s->stack_samples, s->samples);
    }
    buffer_append_char(out, '\n');
}

static void print_place(const struct suspect *s, const struct term *term, struct buffer *out)
{
    buffer_printf(out, "%*s", INDENT, "");
    term_append(term, out, s->program ? s->program : "?", 0);
    if (s->pid)
        buffer_printf(out, " (PID %" PRIu64 ")", s->pid);
    buffer_append_str(out, ", ");
    term_append(term, out, s->space ? s->space : "?", 0);
    if (s->ordinal >= 0) {
        buffer_append_str(out, " of ");
        term_append(term, out, s->device ? s->device : "?", 0);
    }
    buffer_append_char(out, '\n');
}

/* The chart begins at the lowest value: what matters is the shape of the growth, not what lies below it. */
static void print_trend(const struct suspect *s, const struct term *term, struct buffer *out)
{
    struct spark_point points[LEAK_SPARK];
    char bytes[UNITS_TEXT_MAX], blocks[UNITS_TEXT_MAX];
    uint64_t low = UINT64_MAX, high = 0;
    for (unsigned i = 0; i < s->n_spark; i++) {
        low = s->spark[i] < low ? s->spark[i] : low;
        high = s->spark[i] > high ? s->spark[i] : high;
    }
    for (unsigned i = 0; i < s->n_spark; i++)
        points[i] = (struct spark_point){true, s->spark[i] - low};
    buffer_printf(out, "%*s", INDENT, "");
    if (s->n_spark) {
        spark_append(out, term->utf8, points, s->n_spark, high - low);
        buffer_append_str(out, "  ");
    }
    units_format_bytes(bytes, s->live_bytes, UNITS_DECIMAL);
    if (s->resident)
        buffer_append_str(out, bytes);
    else
        buffer_printf(out, "%s in %s block%s", bytes, units_format_count(blocks, s->live_blocks),
                      s->live_blocks == 1 ? "" : "s");
    if (s->ever_freed >= 0)
        buffer_printf(out, "; of all it ever allocated, %.1f %% was freed", 100 * s->ever_freed);
    buffer_append_char(out, '\n');
}

static void print_limit(const struct suspect *s, const struct term *term, struct buffer *out)
{
    char text[256], left[UNITS_TEXT_MAX], limit[UNITS_TEXT_MAX];
    if (s->left_ns == UINT64_MAX || !s->limit)
        return;
    snprintf(text, sizeof(text), "At this rate the %s (%s) is full in %s.",
             strcmp(s->limit, "cgroup") == 0   ? "limit of its cgroup"
             : strcmp(s->limit, "device") == 0 ? "memory of the device"
                                               : "memory of the machine",
             units_format_bytes(limit, s->limit_bytes, UNITS_DECIMAL),
             units_format_duration(left, s->left_ns));
    sentence(term, out, text);
}

static void print_blocks(const struct suspect *s, const struct term *term, struct buffer *out)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(SENTENCE_MAX);
    for (unsigned i = 0; i < s->n_blocks; i++) {
        char bytes[UNITS_TEXT_MAX], age[UNITS_TEXT_MAX];
        buffer_printf(&text, "%s%s at 0x%" PRIx64 " (%s old)", i ? ", " : "For instance ",
                      units_format_bytes(bytes, s->blocks[i].bytes, UNITS_DECIMAL), s->blocks[i].id,
                      units_format_duration(age, s->blocks[i].age_ns));
    }
    if (s->n_blocks)
        sentence(term, out, buffer_string(&text));
}

static const char *function_of(const char *frame)
{
    const char *space = strrchr(frame, ' ');
    return space ? space + 1 : frame;
}

/* What calls main is the same in every program; without symbols of the C library it has no name. A script's main,
 * "x.py:9 in main", is one function of many. */
static bool is_start(const struct suspect *s, unsigned i)
{
    const char *inner = s->stack[i - 1], *function = function_of(s->stack[i]);
    return (strcmp(function_of(inner), "main") == 0 && !strstr(inner, " in main")) ||
           strncmp(function, "__libc_start_", strlen("__libc_start_")) == 0 ||
           strcmp(function, "_start") == 0;
}

static void print_stack(const struct suspect *s, const struct term *term, struct buffer *out)
{
    for (unsigned i = 1; i < s->n_stack && !is_start(s, i); i++) {
        buffer_printf(out, "%*sfrom ", INDENT, "");
        term_append(term, out, s->stack[i], 0);
        buffer_append_char(out, '\n');
    }
}

static void print_one(const struct suspect *s, const struct term *term, struct buffer *out)
{
    char why[SENTENCE_MAX];
    print_title(s, term, out);
    print_place(s, term, out);
    print_trend(s, term, out);
    if (s->why) {
        snprintf(why, sizeof(why), "%s%s", s->verdict == DETECT_UNKNOWN ? "Not known yet: " : "It ",
                 s->why);
        if (s->verdict == DETECT_STEADY)
            snprintf(why, sizeof(why), "Steady: %s", s->why);
        sentence(term, out, why);
    }
    print_limit(s, term, out);
    print_stack(s, term, out);
    print_blocks(s, term, out);
    buffer_append_char(out, '\n');
}

static void print_summary(const struct suspects *suspects, const struct suspects_style *style,
                          const struct term *term, struct buffer *out)
{
    char span[UNITS_TEXT_MAX], sites[UNITS_TEXT_MAX];
    const size_t *v = suspects->verdicts;
    if (suspects->sites == 0) {
        buffer_append_str(out,
                          "Nothing was watched: what was asked for has ended, or has allocated "
                          "nothing.\n");
        return;
    }
    buffer_printf(out, "%s%zu leak%s, %zu growing%s; %zu warming up, %zu steady",
                  term_style(term, STYLE_TITLE), v[DETECT_LEAK], v[DETECT_LEAK] == 1 ? "" : "s",
                  v[DETECT_GROWING], term_plain(term, STYLE_TITLE), v[DETECT_WARMING],
                  v[DETECT_STEADY]);
    if (v[DETECT_UNKNOWN])
        buffer_printf(out, ", %zu not known yet", v[DETECT_UNKNOWN]);
    buffer_printf(out, "; %s %s%s watched for %s%s\n", units_format_count(sites, suspects->sites),
                  suspects->resident ? "process" : "site", suspects->sites == 1 ? "" : "s",
                  units_format_duration(span, suspects->span_ns),
                  suspects->daemon ? " by memoird" : "");
    if (v[DETECT_UNKNOWN] == suspects->sites && suspects->span_ns < DETECT_NEEDS_NS)
        buffer_printf(out, "That is too short for a verdict: watch for %s or more, --for TIME.\n",
                      units_format_duration(span, DETECT_NEEDS_NS));
    if (style->shown < suspects->n)
        buffer_printf(out, "Shown: %zu of %zu. --top 0 shows all.\n", style->shown, suspects->n);
    if (suspects->left_out)
        buffer_printf(out, "%zu sites are too many to be watched, or hold too little.\n",
                      suspects->left_out);
    if (suspects->incomplete)
        buffer_append_str(out, "Some books could not be read whole; memoir doctor tells why.\n");
}

void suspects_print(const struct suspects *suspects, const struct suspects_style *style,
                    const struct term *term, struct buffer *out)
{
    for (size_t i = 0; i < suspects->n && i < style->shown; i++)
        print_one(&suspects->rows[i], term, out);
    print_summary(suspects, style, term, out);
}
