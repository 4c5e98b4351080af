/* Lines of `memoir log`. See log_line.h. */
#include "cli/log_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/devices.h"
#include "ledger/changes.h"

enum {
    WIDTH_WIDE = 110, /* columns, for everything */
    TAG_NARROW = 10,
    NAME_MAX_WIDE = 16,
    NAME_NARROW = 10,
};

static const char *blocks(char text[static UNITS_TEXT_MAX + 16], uint64_t n)
{
    char count[UNITS_TEXT_MAX];
    snprintf(text, UNITS_TEXT_MAX + 16, "%s block%s", units_format_count(count, n),
             n == 1 ? "" : "s");
    return text;
}

/* The sum at the end names the memory as well, so narrow lines do without this. */
static void where(const struct change *c, const struct term *term, struct buffer *out)
{
    char space[DEVICES_SPACE_MAX];
    if (term->width && term->width < WIDTH_WIDE)
        return;
    devices_space_label(space, ledger_space_name(c->space));
    if (c->place->host)
        buffer_printf(out, "  %-6s host    ", space);
    else
        buffer_printf(out, "  %-6s device %d", space, c->place->ordinal);
}

/* "(device 0: 150.0 MB DRAM)" */
static void total(const struct change *c, const struct term *term, struct buffer *out)
{
    char bytes[UNITS_TEXT_MAX], space[DEVICES_SPACE_MAX], place[32];
    if (c->place->host)
        snprintf(place, sizeof(place), "host");
    else
        snprintf(place, sizeof(place), "device %d", c->place->ordinal);
    buffer_printf(out, "  %s(%s: %s %s)%s", term_style(term, STYLE_DIM), place,
                  units_format_bytes(bytes, c->place->bytes[c->space], UNITS_DECIMAL),
                  devices_space_label(space, ledger_space_name(c->space)),
                  term_plain(term, STYLE_DIM));
}

static void signed_bytes(char sign, uint64_t n, enum term_style style, const struct term *term,
                         struct buffer *out)
{
    char bytes[UNITS_TEXT_MAX], text[UNITS_TEXT_MAX + 2];
    snprintf(text, sizeof(text), "%c%s", sign, units_format_bytes(bytes, n, UNITS_DECIMAL));
    buffer_printf(out, "  %s%9s%s", term_style(term, style), text, term_plain(term, style));
}

static void print_block(const struct change *c, const struct log_facts *facts,
                        const struct term *term, struct buffer *out)
{
    if (c->kind == CHANGE_ALLOC)
        signed_bytes('+', c->bytes, STYLE_GOOD, term, out);
    else
        signed_bytes('-', c->bytes, STYLE_PLAIN, term, out);
    where(c, term, out);
    bool narrow = term->width && term->width < WIDTH_WIDE;
    if (!narrow)
        buffer_printf(out, "  id 0x%" PRIx64, c->id);
    if (facts->tag) {
        buffer_append_str(out, "  ");
        unsigned used = term_append(term, out, facts->tag, narrow ? TAG_NARROW : 0);
        buffer_printf(out, "%*s", narrow ? (int)(TAG_NARROW - used) : 0, "");
    }
    total(c, term, out);
}

static void print_unseen(const struct change *c, const struct term *term, struct buffer *out)
{
    char came[UNITS_TEXT_MAX], went[UNITS_TEXT_MAX], came_n[UNITS_TEXT_MAX], went_n[UNITS_TEXT_MAX];
    units_format_bytes(came, c->came_bytes, UNITS_DECIMAL);
    units_format_bytes(went, c->went_bytes, UNITS_DECIMAL);
    units_format_count(came_n, c->came);
    units_format_count(went_n, c->went);
    buffer_printf(out, "  %9s", term->utf8 ? "\xe2\x80\xa6" : "...");
    where(c, term, out);
    if (c->came == c->went && c->came_bytes == c->went_bytes)
        buffer_printf(out, "  %s more came and went (%s)", came_n, came);
    else if (!c->went)
        buffer_printf(out, "  %s more came (%s)", came_n, came);
    else if (!c->came)
        buffer_printf(out, "  %s more went (%s)", went_n, went);
    else
        buffer_printf(out, "  %s more came (%s) and %s went (%s)", came_n, came, went_n, went);
    total(c, term, out);
}

static void print_gone(const struct change *c, const struct log_facts *facts,
                       const struct term *term, struct buffer *out)
{
    char bytes[UNITS_TEXT_MAX], count[UNITS_TEXT_MAX + 16];
    buffer_printf(out, "  %s%9s%s", term_style(term, STYLE_BAD), "gone",
                  term_plain(term, STYLE_BAD));
    if (facts->cause) {
        buffer_append_str(out, "  ");
        term_append(term, out, facts->cause, 0);
    }
    if (c->blocks)
        buffer_printf(out, "  it held %s in %s", units_format_bytes(bytes, c->bytes, UNITS_DECIMAL),
                      blocks(count, c->blocks));
    else
        buffer_append_str(out, "  it held nothing");
}

void log_line(const struct change *c, const struct log_facts *facts, const struct term *term,
              struct buffer *out)
{
    char clock[16], count[UNITS_TEXT_MAX + 16];
    time_t seconds = (time_t)(facts->real_ns / NS_PER_S);
    struct tm tm;
    if (!localtime_r(&seconds, &tm) || !strftime(clock, sizeof(clock), "%T", &tm))
        clock[0] = '\0';
    pid_t pid = c->process->pid ? c->process->pid : c->process->book_pid;
    buffer_printf(out, "%s PID %-7d ", clock, (int)pid);
    bool narrow = term->width && term->width < WIDTH_WIDE;
    unsigned used = term_append(term, out, c->process->name, narrow ? NAME_NARROW : NAME_MAX_WIDE);
    buffer_printf(out, "%*s", used < NAME_NARROW ? (int)(NAME_NARROW - used) : 0, "");
    switch (c->kind) {
    case CHANGE_ALLOC:
    case CHANGE_FREE:
        print_block(c, facts, term, out);
        break;
    case CHANGE_UNSEEN:
        print_unseen(c, term, out);
        break;
    case CHANGE_BEGIN:
        buffer_printf(out, "  %s%9s%s  it reports its memory now", term_style(term, STYLE_TITLE),
                      "begins", term_plain(term, STYLE_TITLE));
        break;
    case CHANGE_GONE:
        print_gone(c, facts, term, out);
        break;
    case CHANGE_HELD:
        signed_bytes('-', c->bytes, STYLE_BAD, term, out);
        where(c, term, out);
        buffer_printf(out, "  %s gone with it", blocks(count, c->blocks));
        total(c, term, out);
        break;
    }
    buffer_append_char(out, '\n');
}
