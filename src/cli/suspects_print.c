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
                : s->outside  ? "memory that malloc did not serve"
                : s->resident ? "resident size"
                              : "(place in the code not known)",
                0);
    if (s->via) {
        buffer_printf(out, "%s  via ", term_style(term, STYLE_DIM));
        term_append(term, out, s->via, 0);
        buffer_append_str(out, term_plain(term, STYLE_DIM));
    }
    if (s->by_samples && s->samples)
        buffer_printf(out, " (%u of %u samples)", s->stack_samples, s->samples);
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
    char bytes[UNITS_TEXT_MAX], blocks[UNITS_TEXT_MAX], held[96], freed[96] = "";
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
        snprintf(held, sizeof(held), "%s", bytes);
    else
        snprintf(held, sizeof(held), "%s in %s block%s", bytes,
                 units_format_count(blocks, s->live_blocks), s->live_blocks == 1 ? "" : "s");
    if (s->ever_freed >= 0)
        snprintf(freed, sizeof(freed), "Of all it ever allocated, %.1f %% was freed.",
                 100 * s->ever_freed);
    size_t used = INDENT + s->n_spark + 2 + strlen(held) + 2 + strlen(freed);
    bool below = term->width && used > term->width;
    if (*freed && !below) /* one sentence */
        buffer_printf(out, "%s; o%.*s\n", held, (int)strlen(freed) - 2, freed + 1);
    else
        buffer_printf(out, "%s\n", held);
    if (*freed && below)
        sentence(term, out, freed);
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
    for (unsigned i = s->n_inside + 1; i < s->n_stack && !is_start(s, i); i++) {
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
