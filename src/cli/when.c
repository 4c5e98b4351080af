/* Moments as people say them. See when.h. */
#include "cli/when.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/units.h"

static int local_time(struct tm *tm, uint64_t *ret_s)
{
    tm->tm_isdst = -1;
    errno = 0;
    time_t t = mktime(tm);
    if (t < 0)
        return -ERANGE;
    *ret_s = (uint64_t)t;
    return 0;
}

/* The start of the day of `now_s`, and `days` before it. */
static int day_start(uint64_t now_s, int days, uint64_t *ret_s)
{
    time_t now = (time_t)now_s;
    struct tm tm;
    if (!localtime_r(&now, &tm))
        return -ERANGE;
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    tm.tm_mday -= days;
    return local_time(&tm, ret_s);
}

static int parse_clock(const char *text, uint64_t now_s, uint64_t *ret_s)
{
    time_t now = (time_t)now_s;
    struct tm tm;
    if (!localtime_r(&now, &tm))
        return -ERANGE;
    tm.tm_sec = 0;
    const char *end = strptime(text, "%H:%M:%S", &tm);
    if (!end || *end) {
        tm.tm_sec = 0;
        end = strptime(text, "%H:%M", &tm);
    }
    if (!end || *end)
        return -EINVAL;
    struct tm day_before = tm;
    int r = local_time(&tm, ret_s);
    if (r == 0 && *ret_s > now_s) {
        day_before.tm_mday--;
        r = local_time(&day_before, ret_s);
    }
    return r;
}

static int parse_date(const char *text, uint64_t *ret_s)
{
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S",
                                        "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);
        if (end && !*end)
            return local_time(&tm, ret_s);
    }
    return -EINVAL;
}

/* As JSON documents have it: 2026-01-31T12:30:15.250Z. The fraction is dropped. */
static int parse_utc(const char *text, uint64_t *ret_s)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (end && *end == '.' && isdigit((unsigned char)end[1]))
        end += 1 + strspn(end + 1, "0123456789");
    if (!end || strcmp(end, "Z") != 0)
        return -EINVAL;
    time_t t = timegm(&tm);
    if (t < 0)
        return -ERANGE;
    *ret_s = (uint64_t)t;
    return 0;
}

int when_parse(const char *text, uint64_t now_s, uint64_t *ret_s)
{
    uint64_t ago_ns, start_s;
    int r = -EINVAL;
    if (strcmp(text, "now") == 0) {
        start_s = now_s;
        r = 0;
    } else if (strcmp(text, "today") == 0 || strcmp(text, "yesterday") == 0) {
        r = day_start(now_s, *text == 'y', &start_s);
    } else if (*text == '@' && isdigit((unsigned char)text[1])) {
        char *end;
        errno = 0;
        start_s = strtoull(text + 1, &end, 10);
        r = *end ? -EINVAL : errno || start_s > INT64_MAX / 2 ? -ERANGE : 0;
    } else if (units_parse_duration(text, &ago_ns) == 0) {
        r = ago_ns / NS_PER_S > now_s ? -ERANGE : 0;
        start_s = now_s - ago_ns / NS_PER_S;
    } else if (strchr(text, '-')) {
        r = strchr(text, 'Z') ? parse_utc(text, &start_s) : parse_date(text, &start_s);
    } else if (strchr(text, ':')) {
        r = parse_clock(text, now_s, &start_s);
    }
    if (r == 0)
        *ret_s = start_s;
    return r;
}
