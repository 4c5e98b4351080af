/*
 * history.h: what call sites were worth, saved for the next run.
 *
 * Text, a line for each site, keyed so that it means the same in every run of the same binaries:
 *
 *     memoir-pin-history 1
 *     site KEY blocks bytes copies-to copies-from bytes-to bytes-from worth-ns-per-mib missed-ns saved-ns cost-ns credit-ns [@FILE:LINE|FUNCTION] [BUILDID:OFFSET:PATH]...
 *
 * The word with @ is the line of Python, where there is one.
 *
 * Lines that make no sense are skipped and counted. A site that this run did not see keeps its
 * line. Without malloc or stdio.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PIN_HISTORY_FORMAT "memoir-pin-history"
#define PIN_HISTORY_SCRIPT '@'
#define PIN_HISTORY_SPACE  '|' /* in place of a space within a word */
enum { PIN_HISTORY_MAX = 8 << 20, PIN_HISTORY_VERSION = 1, PIN_HISTORY_FIGURES = 11 };

/* "" or NULL: nothing to do. */
void pin_history_load(const char *path);
int pin_history_save(const char *path);
