/* Words in expressions as values: "1.5GB", "10m", "75%", "train*". See plan.h. */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/units.h"
#include "query/plan.h"

static int parse_number(const char *word, uint64_t *ret)
{
    uint64_t n = 0;
    if (!*word)
        return -EINVAL;
    for (; *word; word++) {
        if (!isdigit((unsigned char)*word))
            return -EINVAL;
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*word - '0'), &n))
            return -ERANGE;
    }
    *ret = n;
    return 0;
}

/* "75%", "7.5" as millionths of the whole. A number without the sign is a percentage, or where `fraction` says so a
 * fraction: 0.075. */
static int parse_percent(const char *word, bool fraction, uint64_t *ret)
{
    uint64_t n = 0;
    int digits = 0, decimals = -1;
    for (; isdigit((unsigned char)*word) || (*word == '.' && decimals < 0); word++) {
        if (*word == '.') {
            decimals = 0;
            continue;
        }
        digits++;
        if (decimals >= (fraction ? 6 : 4))
            continue;
        if (n > UINT64_C(1000000000000))
            return -ERANGE;
        n = n * 10 + (uint64_t)(*word - '0');
        decimals += decimals >= 0;
    }
    fraction &= *word != '%';
    word += *word == '%';
    if (!digits || *word)
        return -EINVAL;
    for (int i = decimals < 0 ? 0 : decimals; i < (fraction ? 6 : 4); i++)
        n *= 10;
    if (fraction && n > UINT64_C(1000000))
        return -ERANGE; /* more than the whole: a percentage was meant */
    *ret = n;
    return 0;
}

static int parse_age(const char *word, uint64_t *ret)
{
    int r = units_parse_duration(word, ret);
    if (r != -EINVAL)
        return r;
    struct buffer seconds = BUFFER_INIT(256);
    buffer_printf(&seconds, "%ss", word);
    r = isdigit((unsigned char)*word) ? units_parse_duration(buffer_string(&seconds), ret)
                                      : -EINVAL;
    buffer_release(&seconds);
    return r;
}

/* ".25" after seconds: nanoseconds, and where it ends. */
static const char *parse_fraction(const char *at, uint64_t *ret_ns)
{
    uint64_t unit = NS_PER_S / 10;
    *ret_ns = 0;
    if (*at != '.' || !isdigit((unsigned char)at[1]))
        return at;
    for (at++; isdigit((unsigned char)*at); at++, unit /= 10)
        *ret_ns += (uint64_t)(*at - '0') * unit;
    return at;
}

/* "2026-01-31", "2026-01-31T12:00", "...:30", "...:30.250", local time, or UTC with a Z at the end. */
static int parse_time(const char *word, uint64_t *ret)
{
    static const char *const formats[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        struct tm tm = {.tm_isdst = -1};
        uint64_t fraction_ns = 0;
        const char *end = strptime(word, formats[i], &tm);
        if (end && i == 0)
            end = parse_fraction(end, &fraction_ns);
        if (!end || (*end && strcmp(end, "Z") != 0))
            continue;
        time_t t = *end ? timegm(&tm) : mktime(&tm);
        if (t < 0 || (uint64_t)t >= UINT64_MAX / NS_PER_S)
            return -ERANGE;
        *ret = (uint64_t)t * NS_PER_S + fraction_ns;
        return 0;
    }
    return -EINVAL;
}

static int parse_yes(const char *word, uint64_t *ret)
{
    static const char *const words[] = {"no", "yes", "false", "true", "0", "1"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(word, words[i]) == 0) {
            *ret = i % 2;
            return 0;
        }
    return -EINVAL;
}

/* "1.5MB", "-64K/s": bytes a second, with a sign. */
static int parse_rate(const char *word, uint64_t *ret)
{
    char bytes[64];
    bool negative = *word == '-';
    word += *word == '-' || *word == '+';
    size_t len = strlen(word);
    len -= len > 2 && strcmp(word + len - 2, "/s") == 0 ? 2 : 0;
    if (len >= sizeof(bytes))
        return -EINVAL;
    memcpy(bytes, word, len);
    bytes[len] = '\0';
    uint64_t n;
    int r = units_parse_bytes(bytes, &n);
    if (r == 0 && n > INT64_MAX / QUERY_RATE_SCALE)
        r = -ERANGE;
    if (r == 0)
        *ret = QUERY_RATE_SCALE * (negative ? -n : n);
    return r;
}

int literal_parse(enum query_kind kind, const char *word, uint64_t *ret_number)
{
    switch (kind) {
    case QUERY_NUMBER:
        return parse_number(word, ret_number);
    case QUERY_BYTES:
        return units_parse_bytes(word, ret_number);
    case QUERY_AGE:
        return parse_age(word, ret_number);
    case QUERY_TIME:
        return parse_time(word, ret_number);
    case QUERY_PERCENT:
        return parse_percent(word, false, ret_number);
    case QUERY_SHARE:
        return parse_percent(word, true, ret_number);
    case QUERY_YES:
        return parse_yes(word, ret_number);
    case QUERY_RATE:
        return parse_rate(word, ret_number);
    case QUERY_TEXT:
    case QUERY_POINTS:
    case QUERY_FRAMES:
        break;
    }
    return -EINVAL;
}

const char *literal_example(enum query_kind kind)
{
    static const char *const examples[] = {
        [QUERY_TEXT] = "a text (ann, \"two words\")",
        [QUERY_NUMBER] = "a number (42)",
        [QUERY_BYTES] = "a size (1.5GB, 64K)",
        [QUERY_AGE] = "a duration (10m, 1.5h, 90)",
        [QUERY_TIME] = "a time (2026-01-31T12:00)",
        [QUERY_PERCENT] = "a percentage (75%)",
        [QUERY_SHARE] = "a share (0.75, 75%)",
        [QUERY_YES] = "yes or no",
        [QUERY_RATE] = "a rate (1.5MB, -64K/s)",
        [QUERY_POINTS] = "none",
        [QUERY_FRAMES] = "a text (main, \"operator new\")",
    };
    return examples[kind];
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Back to the last star only: the time is at most the product of the lengths, whatever the pattern. */
static bool match_wild(const char *text, size_t len, const char *pattern, size_t pattern_len)
{
    size_t t = 0, p = 0, star = SIZE_MAX, star_t = 0;
    while (t < len) {
        if (p < pattern_len && pattern[p] == '*') {
            star = p++;
            star_t = t;
        } else if (p < pattern_len && (pattern[p] == '?' || same_letter(pattern[p], text[t]))) {
            p++;
            t++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            t = ++star_t;
        } else {
            return false;
        }
    }
    while (p < pattern_len && pattern[p] == '*')
        p++;
    return p == pattern_len;
}

bool literal_like(const char *text, size_t len, const char *pattern, size_t pattern_len, bool wild)
{
    if (wild)
        return match_wild(text, len, pattern, pattern_len);
    for (size_t at = 0; at + pattern_len <= len; at++) {
        size_t i = 0;
        while (i < pattern_len && same_letter(text[at + i], pattern[i]))
            i++;
        if (i == pattern_len)
            return true;
    }
    return false;
}
