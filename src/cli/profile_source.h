/*
 * profile_source.h: what a user names (a process, a program, a file) as a profile, for `sites` and `flame`.
 */
#ifndef MEMOIR_CLI_PROFILE_SOURCE_H
#define MEMOIR_CLI_PROFILE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "profile/gather.h"
#include "profile/names.h"

struct profile;
struct symbolizer;

struct profile_source {
    const char *dir;               /* --dir, or NULL */
    struct symbolizer *symbolizer; /* NULL: frames stay modules and offsets */
    bool quiet;                    /* no progress on stderr */
    bool at_peak;                  /* live figures are those at the peak: not of files */
    struct gather_losses losses;   /* of the last profile taken */
};

/* Call it early: it starts a helper that reads debug information. */
void profile_source_init(struct profile_source *source, const char *dir, bool names);
void profile_source_release(struct profile_source *source);

/* The sites of `word`: a process by its number, a file that --save wrote, or all processes of a program
 * by its name (those that live; if none does, those that left a book). Figures are those of now.
 * COMMAND_OK; else an exit code after a word on stderr that says what to do, or -errno. */
int profile_source_take(struct profile_source *source, const char *word,
                        struct profile **ret_profile);

/* Look up names, with progress on a terminal where that takes long. 0 or -errno. */
int profile_source_name(struct profile_source *source, struct profile *profile,
                        enum profile_names_which which);

/* Names that tell which lines are the program's own: headlines_find_all(). */
int profile_source_headlines(struct profile_source *source, struct profile *profile);

/* "server (PID 4242)", "4 processes of server", for people; from strangers, so print it by term_append(). */
enum { PROFILE_WHO_MAX = 192 };
const char *profile_who(const struct profile *profile, char text[static PROFILE_WHO_MAX]);

#endif
