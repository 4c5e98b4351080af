/*
 * demo_story.h: the words and pictures of `memoir demo`: numbered steps, what to type, what is seen.
 */
#ifndef MEMOIR_CLI_DEMO_STORY_H
#define MEMOIR_CLI_DEMO_STORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/term.h"

struct story {
    const char *dir; /* of the books, or NULL */
    bool quiet;      /* nothing is said */
    struct term term;
    unsigned width;
    unsigned step;
};

/* "[Step 3] text", wrapped; and without a number what follows it. */
void story_step(struct story *story, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void story_say(struct story *story, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What to type in another terminal. */
void story_suggest(struct story *story, const char *command, bool with_dir);

/* What `memoir devices` shows now. */
void story_devices(struct story *story);

/* What all living processes hold on a device. */
struct story_figures {
    bool known;
    uint64_t dram, buffers, cbs, kernels;
};
struct story_figures story_figures(const struct story *story, int device);

/* The two side by side. */
void story_compare(struct story *story, int device, const struct story_figures *before,
                   const struct story_figures *after);

/* Device memory that a process holds; 0 when it is not there. */
uint64_t story_held(const struct story *story, pid_t pid);

/* What was seen of a death. */
struct story_death {
    uint64_t vanished_ns;       /* until it no longer counted; UINT64_MAX: that took too long */
    bool retired;               /* its book is gone, too, so a daemon has seen it */
    struct story_figures after; /* of the device, at that moment */
};

/* After the death of `pid`: wait until it no longer counts, and a little more for a daemon. */
struct story_death story_vanished(const struct story *story, pid_t pid, int device,
                                  uint64_t died_ns);

#endif
