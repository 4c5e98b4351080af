/*
 * absent.h: what the commands say of what is not there, in the same words everywhere.
 */
#ifndef MEMOIR_CLI_ABSENT_H
#define MEMOIR_CLI_ABSENT_H

#include <stdbool.h>

struct ledger;

/* "no process has told of device 9; there are: 0 Card-A, 1 Card-B" on stderr, and true, when no device
 * answers to `device` (see devices_match()). `host` says whether the host's memory counts as one. */
bool absent_device(const struct ledger *ledger, const char *device, bool host);

#endif
