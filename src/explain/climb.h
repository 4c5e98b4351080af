/* A process without a book of its heap as a suspect: its resident size, as the detector judges it, and what of it grew. The rows
 * are those of the table `leaks` (profile/suspects.h), with `resident` set. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "ledger/detect.h"

struct outside_verdict;
struct suspect;

/* The row of a judged series of resident sizes (alloc_bytes of its points; `n` is above 0). Program and user are the caller's to fill in. */
void climb_row(struct suspect *ret_row, pid_t pid, const struct detect_point *points, size_t n,
               const struct detect_result *result);

/* What grew becomes the site, and is told in the sentence. Does nothing where no part is named. Without memory it stays as it is. */
void climb_name(struct suspect *row, const struct outside_verdict *verdict);
