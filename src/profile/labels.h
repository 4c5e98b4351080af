/* The lines of all frames of a profile, each with a name: what has none in the profile is called by its
 * module and offset. For views in which every frame needs a word. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "profile/profile.h"

struct labels {
    struct profile_line *list; /* .function is never 0 */
    uint32_t *first;           /* of each frame, innermost line first; one more at the end */
};

/* Adds the names that it makes to the profile's strings. 0 or -errno. */
int labels_take(struct profile *profile, struct labels *ret_labels);
void labels_release(struct labels *labels);
