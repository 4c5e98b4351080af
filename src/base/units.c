/* Formatting and parsing of sizes and durations, in integers: figures near 2^64 stay exact. */
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define NS_PER_MIN   (60 * NS_PER_S)
#define NS_PER_HOUR  (60 * NS_PER_MIN)
#define NS_PER_DAY   (24 * NS_PER_HOUR)

/* value / unit in tenths, half up, without overflow. */
static uint64_t tenths_of(uint64_t value, uint64_t unit)
{
    return (uint64_t)(((unsigned __int128)value * 10 + unit / 2) / unit);
}

const char *units_format_bytes(char text[static UNITS_TEXT_MAX], uint64_t bytes,
                               enum units_style style)
{
    static const char *const names[][7] = {
        [UNITS_DECIMAL] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"},
        [UNITS_BINARY] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"},
    };
    uint64_t base = style == UNITS_BINARY ? 1024 : 1000;
    if (bytes < base) {
        snprintf(text, UNITS_TEXT_MAX, "%" PRIu64 " B", bytes);
        return text;
    }
    /* Rounding may reach the next unit (999,950 bytes are 1.0 MB, not 1000.0 kB). */
    size_t power = 1;
    uint64_t unit = base;
    while (power + 1 < ARRAY_LEN(names[0]) && tenths_of(bytes, unit) >= base * 10) {
        unit *= base;
        power++;
    }
    uint64_t tenths = tenths_of(bytes, unit);
    snprintf(text, UNITS_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10,
             names[style][power]);
    return text;
}

/* "4m12s", or "4m" when the second figure is 0. */
static void format_pair(char *text, uint64_t big, const char *big_unit, uint64_t small,
                        const char *small_unit)
{
    if (small > 0)
        snprintf(text, UNITS_TEXT_MAX, "%" PRIu64 "%s%" PRIu64 "%s", big, big_unit, small,
                 small_unit);
    else
        snprintf(text, UNITS_TEXT_MAX, "%" PRIu64 "%s", big, big_unit);
}

const char *units_format_count(char text[static UNITS_TEXT_MAX], uint64_t n)
{
    char digits[UNITS_TEXT_MAX];
    int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

const char *units_format_duration(char text[static UNITS_TEXT_MAX], uint64_t ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
        uint64_t below_tenths;
    } small[] = {
        {"us", NS_PER_US, 10000},
        {"ms", NS_PER_MS, 10000},
        {"s", NS_PER_S, 600},
    };
    if (ns < NS_PER_US) {
        snprintf(text, UNITS_TEXT_MAX, "%" PRIu64 " ns", ns);
        return text;
    }
    for (size_t i = 0; i < ARRAY_LEN(small); i++) {
        uint64_t tenths = tenths_of(ns, small[i].ns);
        if (tenths < small[i].below_tenths) {
            snprintf(text, UNITS_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10,
                     small[i].name);
            return text;
        }
    }
    uint64_t s = ns / NS_PER_S + (ns % NS_PER_S >= NS_PER_S / 2);
    uint64_t min = s / 60, hours = min / 60, days = hours / 24;
    if (min < 60)
        format_pair(text, min, "m", s % 60, "s");
    else if (hours < 24)
        format_pair(text, hours, "h", min % 60, "m");
    else
        format_pair(text, days, "d", hours % 24, "h");
    return text;
}

/* Digits after the point beyond these cannot change a result that fits in 64 bits by much. */
#define FRACTION_DIGITS_MAX 9

struct decimal {
    uint64_t whole;
    uint64_t fraction; /* over `scale` */
    uint64_t scale;
};

/* An unsigned decimal number at *text, which moves past it. No sign, no exponent, no locale. */
static int parse_decimal(const char **text, struct decimal *ret)
{
    const char *p = *text;
    struct decimal d = {.scale = 1};
    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(d.whole, 10, &d.whole) ||
            __builtin_add_overflow(d.whole, (uint64_t)(*p - '0'), &d.whole))
            return -ERANGE;
    if (*p == '.') {
        p++;
        if (!isdigit((unsigned char)*p))
            return -EINVAL;
        for (int n = 0; isdigit((unsigned char)*p); p++, n++) {
            if (n >= FRACTION_DIGITS_MAX)
                continue;
            d.fraction = d.fraction * 10 + (uint64_t)(*p - '0');
            d.scale *= 10;
        }
    }
    *text = p;
    *ret = d;
    return 0;
}

static int scale_decimal(const struct decimal *d, uint64_t unit, uint64_t *ret)
{
    uint64_t whole;
    if (__builtin_mul_overflow(d->whole, unit, &whole))
        return -ERANGE;
    uint64_t part = (uint64_t)((unsigned __int128)d->fraction * unit / d->scale);
    return __builtin_add_overflow(whole, part, ret) ? -ERANGE : 0;
}

/* The factor of a size suffix: "", "B", "K", "KB", "KiB", in any case. 0 when it is none. */
static uint64_t size_unit(const char *suffix)
{
    static const char letters[] = "kmgtpe";
    if (suffix[0] == '\0' || strcasecmp(suffix, "b") == 0)
        return 1;
    const char *letter = strchr(letters, tolower((unsigned char)suffix[0]));
    if (!letter)
        return 0;
    uint64_t base;
    if (suffix[1] == '\0' || strcasecmp(suffix + 1, "ib") == 0)
        base = 1024;
    else if (strcasecmp(suffix + 1, "b") == 0)
        base = 1000;
    else
        return 0;
    uint64_t unit = base;
    for (const char *l = letters; l < letter; l++)
        unit *= base;
    return unit;
}

int units_parse_bytes(const char *text, uint64_t *ret_bytes)
{
    struct decimal d;
    int r = parse_decimal(&text, &d);
    if (r < 0)
        return r;
    while (*text == ' ')
        text++;
    uint64_t unit = size_unit(text);
    if (unit == 0)
        return -EINVAL;
    uint64_t bytes;
    r = scale_decimal(&d, unit, &bytes);
    if (r < 0)
        return r;
    *ret_bytes = bytes;
    return 0;
}

/* The longest unit that *text starts with, so that "ms" is not read as "m"; *text moves past it. */
static uint64_t duration_unit(const char **text)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {
        {"ns", 1},           {"us", NS_PER_US}, {"ms", NS_PER_MS},
        {"min", NS_PER_MIN}, {"s", NS_PER_S},   {"m", NS_PER_MIN},
        {"h", NS_PER_HOUR},  {"d", NS_PER_DAY}, {"w", 7 * NS_PER_DAY},
    };
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t len = strlen(units[i].name);
        if (strncmp(*text, units[i].name, len) == 0) {
            *text += len;
            return units[i].ns;
        }
    }
    return 0;
}

int units_parse_duration(const char *text, uint64_t *ret_ns)
{
    if (strcmp(text, "0") == 0) {
        *ret_ns = 0;
        return 0;
    }
    uint64_t total = 0;
    do {
        struct decimal d;
        int r = parse_decimal(&text, &d);
        if (r < 0)
            return r;
        while (*text == ' ')
            text++;
        uint64_t unit = duration_unit(&text);
        if (unit == 0)
            return -EINVAL;
        uint64_t part;
        r = scale_decimal(&d, unit, &part);
        if (r < 0)
            return r;
        if (__builtin_add_overflow(total, part, &total))
            return -ERANGE;
        while (*text == ' ')
            text++;
    } while (*text);
    *ret_ns = total;
    return 0;
}
