/* Verdicts in words. See detect.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/units.h"
#include "ledger/detect.h"

const char *detect_verdict_word(enum detect_verdict verdict)
{
    static const char *const words[DETECT_VERDICTS] = {
        [DETECT_UNKNOWN] = "unknown yet", [DETECT_STEADY] = "steady",
        [DETECT_WARMING] = "warming up",  [DETECT_GROWING] = "growing",
        [DETECT_LEAK] = "leak",
    };
    return (unsigned)verdict < DETECT_VERDICTS ? words[verdict] : "?";
}

const char *detect_reason_word(enum detect_reason reason)
{
    static const char *const words[DETECT_REASONS] = {
        [DETECT_TOO_SHORT] = "too short",
        [DETECT_TOO_FEW] = "too few looks",
        [DETECT_IDLE] = "idle",
        [DETECT_CHURN] = "churn",
        [DETECT_SHRINKS] = "shrinks",
        [DETECT_ONE_OFF] = "one-off",
        [DETECT_STOPPED] = "stopped",
        [DETECT_SLOWING] = "slowing",
        [DETECT_TEETH] = "teeth",
        [DETECT_LOAD] = "load",
        [DETECT_DRIFT] = "drift",
        [DETECT_ONE_BLOCK] = "one block",
        [DETECT_BURSTS] = "collected in bursts",
        [DETECT_WAITS] = "waits for a collection",
        [DETECT_FREES_LATE] = "frees late",
        [DETECT_SLOWER_NOW] = "slower now",
        [DETECT_LEVEL_ONLY] = "resident size",
        [DETECT_SUSTAINED] = "sustained",
    };
    return (unsigned)reason < DETECT_REASONS ? words[reason] : "?";
}

static void freed(const struct detect_result *r, const char *before, struct buffer *out)
{
    if (r->freed_share == 0)
        buffer_printf(out, "%snothing was freed", before);
    else if (r->freed_share > 0)
        buffer_printf(out, "%s%.*f %% of what it allocated was freed", before,
                      r->freed_share > 0.995 ? 2 : 0, 100 * r->freed_share);
}

/* So many bytes, or blocks. */
enum { AMOUNT_MAX = UNITS_TEXT_MAX + 8 };
static const char *amount(const struct detect_result *r, char text[static AMOUNT_MAX], uint64_t n)
{
    char number[UNITS_TEXT_MAX];
    if (!r->empty)
        return units_format_bytes(text, n, UNITS_DECIMAL);
    snprintf(text, AMOUNT_MAX, "%s block%s", units_format_count(number, n), n == 1 ? "" : "s");
    return text;
}

/* What the growth is: every reason but those of steady verdicts begins with it. */
static void growth(const struct detect_result *r, struct buffer *out)
{
    char grown[AMOUNT_MAX], span[UNITS_TEXT_MAX];
    int64_t by = r->empty ? r->grown_blocks : r->grown_bytes;
    buffer_printf(out, "rose by %s%s in %s, in %u of %u intervals",
                  amount(r, grown, (uint64_t)(by > 0 ? by : 0)), r->empty ? " of no bytes" : "",
                  units_format_duration(span, r->span_ns), r->rises,
                  r->windows ? r->windows - 1 : 0);
}

uint64_t detect_per_minute(double per_s)
{
    double rate = per_s * 60;
    return rate >= 9e18 ? UINT64_MAX / 2 : rate > 0 ? (uint64_t)(rate + 0.5) : 0;
}

static const char *per_minute(const struct detect_result *r, char text[static AMOUNT_MAX],
                              double per_s)
{
    return amount(r, text, detect_per_minute(per_s));
}

static void explain_steady(const struct detect_result *r, struct buffer *out)
{
    char a[AMOUNT_MAX], span[UNITS_TEXT_MAX];
    units_format_duration(span, r->span_ns);
    switch (r->reason) {
    case DETECT_IDLE:
        buffer_printf(out, "nothing changed in %s", span);
        break;
    case DETECT_SHRINKS:
        buffer_printf(out, "it holds less than %s ago", span);
        break;
    case DETECT_ONE_OFF:
        buffer_printf(out, "it took memory once, and has not grown in the %s since",
                      units_format_duration(a, r->quiet_ns));
        break;
    case DETECT_TEETH:
        buffer_printf(out, "what it gains it gives back: the largest fall in %s was %s", span,
                      amount(r, a, r->fall_bytes));
        break;
    default:
        buffer_printf(out, "no growth in %s", span);
        freed(r, ": ", out);
    }
}

static void explain_growing(const struct detect_result *r, struct buffer *out)
{
    char a[AMOUNT_MAX], b[AMOUNT_MAX];
    growth(r, out);
    switch (r->reason) {
    case DETECT_SUSTAINED:
        buffer_append_str(out, ", without slowing");
        freed(r, "; ", out);
        if (r->ages_even)
            buffer_append_str(out, ", and live blocks are of all ages");
        break;
    case DETECT_STOPPED:
        buffer_printf(out, ", and stopped %s ago: a warm-up, or a cache that is full",
                      units_format_duration(a, r->quiet_ns));
        break;
    case DETECT_SLOWING:
        buffer_printf(out, ", ever more slowly (%s/min at first): a warm-up, or a cache that fills",
                      per_minute(r, a, r->rate_then));
        break;
    case DETECT_TEETH:
        buffer_printf(out, ", but it has given back %s at once before",
                      amount(r, a, r->fall_bytes));
        break;
    case DETECT_BURSTS:
        if (r->elsewhere)
            buffer_append_str(out, ", but another process of this program has given such memory "
                                   "back at once: collected in bursts");
        else
            buffer_printf(out, ", but it has given back %s at once before: collected in bursts",
                          amount(r, a, r->fall_bytes));
        break;
    case DETECT_WAITS:
        buffer_append_str(out, "; such memory is freed when garbage is collected, which was not "
                               "seen yet: waiting for the first collection");
        break;
    case DETECT_ONE_OFF:
        buffer_append_str(out, ": a few large steps, too few to tell");
        break;
    case DETECT_LOAD:
        buffer_append_str(out, ", as it allocates more and more: it may only be busier");
        break;
    case DETECT_DRIFT:
        buffer_append_str(out, ", which is within what it wanders by itself");
        break;
    case DETECT_ONE_BLOCK:
        buffer_append_str(out, ", but the number of blocks did not: a buffer that grows");
        break;
    case DETECT_FREES_LATE:
        buffer_printf(out,
                      ", but it has freed %.0f %% of all it ever took: it may free in bulk, later",
                      100 * r->ever_freed);
        break;
    case DETECT_SLOWER_NOW:
        buffer_printf(out, ", but grew by %s/min before: it may be warming up",
                      per_minute(r, b, r->rate_then));
        break;
    default:
        buffer_append_str(out, "; whether anything of it is freed is not known");
    }
}

void detect_explain(const struct detect_result *result, struct buffer *out)
{
    char watched[UNITS_TEXT_MAX], needs[UNITS_TEXT_MAX];
    units_format_duration(watched, result->span_ns);
    if (result->verdict == DETECT_UNKNOWN && result->reason == DETECT_TOO_SHORT)
        buffer_printf(out, "watched %s, needs %s", watched,
                      units_format_duration(needs, result->needs_ns));
    else if (result->verdict == DETECT_UNKNOWN)
        buffer_printf(out, "too few looks in %s", watched);
    else if (result->verdict == DETECT_STEADY)
        explain_steady(result, out);
    else
        explain_growing(result, out);
    buffer_append_char(out, '.');
}
