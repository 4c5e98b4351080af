/*
 * when.h: moments as people say them: "1h" (ago), "2026-01-31 12:00", "12:30", "yesterday".
 */
#ifndef MEMOIR_CLI_WHEN_H
#define MEMOIR_CLI_WHEN_H

#include <stdint.h>

/* What `text` means at `now_s` (both since 1970), in local time:
 *   90s, 1h30m, 7d        so long before now
 *   12:30, 12:30:15       today, or yesterday if that is still to come
 *   2026-01-31            the start of that day
 *   2026-01-31 12:30      also with seconds, and with a T between
 *   2026-01-31T12:30:15.250Z  in UTC, as JSON documents have it; the fraction is dropped
 *   now, today, yesterday
 *   @1790000000           seconds since 1970
 * -EINVAL for anything else, -ERANGE before 1970. */
int when_parse(const char *text, uint64_t now_s, uint64_t *ret_s);

#endif
