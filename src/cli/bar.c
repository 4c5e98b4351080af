/* Bars of characters. See bar.h. */
#include "cli/bar.h"

#include <stdio.h>

#include "base/buffer.h"

enum { EIGHTHS = 8 };

static const char *const eighths[EIGHTHS] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
static const char *const textures[BAR_PARTS_MAX] = {"█", "▓", "▒", "▚"};
static const char *const ascii_textures[BAR_PARTS_MAX] = {"#", "=", "+", "%"};

enum term_style bar_style(uint64_t used, uint64_t capacity)
{
    if (!capacity)
        return STYLE_PLAIN;
    double percent = 100.0 * (double)used / (double)capacity;
    return percent >= BAR_BAD_PERCENT    ? STYLE_BAD
           : percent >= BAR_WARN_PERCENT ? STYLE_WARN
                                         : STYLE_GOOD;
}

const char *bar_percent(char text[static BAR_PERCENT_MAX], uint64_t used, uint64_t capacity)
{
    if (!capacity) {
        snprintf(text, BAR_PERCENT_MAX, "-");
        return text;
    }
    double percent = 100.0 * (double)used / (double)capacity;
    if (percent > 99.9 && used < capacity)
        percent = 99.9; /* "100.0 %" is a claim */
    if (used && percent < 0.05)
        snprintf(text, BAR_PERCENT_MAX, "<0.1 %%");
    else
        snprintf(text, BAR_PERCENT_MAX, "%.1f %%", percent);
    return text;
}

static void repeat(struct buffer *out, const char *text, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        buffer_append_str(out, text);
}

static void empty(const struct term *term, struct buffer *out, unsigned columns)
{
    if (!columns)
        return;
    buffer_append_str(out, term_style(term, STYLE_DIM));
    repeat(out, term->utf8 ? "░" : ".", columns);
    buffer_append_str(out, term_plain(term, STYLE_DIM));
}

/* How many of `units` are filled. */
static unsigned filled(uint64_t used, uint64_t capacity, unsigned units)
{
    if (used >= capacity)
        return units;
    unsigned n = (unsigned)((double)used / (double)capacity * units + 0.5);
    if (n == 0 && used)
        n = 1;
    return n < units ? n : units - 1;
}

void bar_append(const struct term *term, struct buffer *out, uint64_t used, uint64_t capacity,
                unsigned columns)
{
    unsigned unit = term->utf8 ? EIGHTHS : 1;
    unsigned n = filled(used, capacity, columns * unit);
    enum term_style style = bar_style(used, capacity);
    buffer_append_str(out, term_style(term, style));
    repeat(out, term->utf8 ? textures[0] : ascii_textures[0], n / unit);
    buffer_append_str(out, eighths[n % unit]);
    buffer_append_str(out, term_plain(term, style));
    empty(term, out, columns - (n + unit - 1) / unit);
}

static uint64_t sum(const struct bar_part *parts, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += parts[i].value;
    return total;
}

void bar_divide(struct bar_part *parts, size_t n, uint64_t capacity, unsigned columns)
{
    uint64_t total = sum(parts, n), before = 0;
    unsigned cells = filled(total, capacity, columns);
    for (size_t i = 0; i < n; i++) {
        uint64_t after = before + parts[i].value;
        parts[i].start = total ? (unsigned)((double)before / (double)total * cells + 0.5) : 0;
        unsigned end = total ? (unsigned)((double)after / (double)total * cells + 0.5) : 0;
        parts[i].cells = end - parts[i].start;
        before = after;
    }
}

void bar_append_stack(const struct term *term, struct buffer *out, const struct bar_part *parts,
                      size_t n, uint64_t capacity, unsigned columns)
{
    enum term_style style = bar_style(sum(parts, n), capacity);
    unsigned used = 0;
    buffer_append_str(out, term_style(term, style));
    for (size_t i = 0; i < n && i < BAR_PARTS_MAX; i++) {
        repeat(out, term->utf8 ? textures[i] : ascii_textures[i], parts[i].cells);
        used += parts[i].cells;
    }
    buffer_append_str(out, term_plain(term, style));
    empty(term, out, columns - used);
}

void bar_append_part(const struct term *term, struct buffer *out, const struct bar_part *parts,
                     size_t i, unsigned columns)
{
    unsigned start = parts[i].start < columns ? parts[i].start : columns - 1;
    repeat(out, " ", start);
    if (parts[i].cells)
        repeat(out, term->utf8 ? textures[i] : ascii_textures[i], parts[i].cells);
    else if (parts[i].value)
        buffer_append_str(out, term->utf8 ? eighths[1] : "'");
}
