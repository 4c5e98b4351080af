/* Which users have processes? */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_uids {
    uint32_t *uids; /* sorted, each once */
    size_t n;
};

/* By the owners of /proc/PID; about a microsecond a process. */
int live_uids_get(struct live_uids *ret_uids);
void live_uids_release(struct live_uids *uids);
bool live_uids_have(const struct live_uids *uids, uint32_t uid);
