/* Names for the frames of a profile: function, file, line, calls compiled into each other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct profile;
struct symbolizer;

/* Look up one frame; does nothing the second time. A frame that has no name stays without. */
void profile_name(struct profile *profile, struct symbolizer *symbolizer, uint32_t frame);

/* Which frames of the stacks. */
enum profile_names_which {
    PROFILE_NAMES_INNERMOST, /* those that asked for memory themselves */
    PROFILE_NAMES_ALL,
};

/* Look up all of these that have not been yet, module by module in the order of their code, which is what
 * debug information is quickest at. `progress` (NULL is fine) is told now and then; false ends it early
 * with -ECANCELED. -errno of the profile, else 0. Without a symbolizer there is nothing to do. */
int profile_name_all(struct profile *profile, struct symbolizer *symbolizer,
                     enum profile_names_which which,
                     bool (*progress)(size_t done, size_t all, void *context), void *context);

/* Look up those of `wanted` (by number of the frame) that have not been yet. Else as profile_name_all(). */
int profile_name_some(struct profile *profile, struct symbolizer *symbolizer, const bool *wanted,
                      bool (*progress)(size_t done, size_t all, void *context), void *context);

/* How a frame is called where it has a name: function "cache_fill", place "cache.c:42"; else "libfoo.so+0x12ab",
 * "[JIT]" for code made at run time, "[unknown]". `line` counts from the innermost, 0 to n_lines - 1 (or 0). */
enum { PROFILE_LABEL_MAX = 512 };
const char *profile_function(const struct profile *profile, uint32_t frame, size_t line,
                             char text[static PROFILE_LABEL_MAX]);

/* "cache.c:42"; "" where it is not known. */
const char *profile_place(const struct profile *profile, uint32_t frame, size_t line,
                          char text[static PROFILE_LABEL_MAX]);

/* Path of its module; "" where it has none. */
const char *profile_module_path(const struct profile *profile, uint32_t frame);
