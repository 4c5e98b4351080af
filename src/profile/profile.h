/* A profile: which places in the code asked for how much memory, at one moment.
 *
 * It is a value of its own. Once gathered from the books of processes (gather.h) or read from a file
 * (snapshot.h) it needs neither. Strings, modules, frames, accounts and sites are arrays; they refer to
 * each other by number, and what is equal is there once. Several processes may be put into one profile:
 * sites with the same stack and kind of memory then add up.
 *
 * Two sorts of sites. Exact ones count every block, each block in one of them. Sampled ones are whole
 * stacks found by sampling a program whose exact sites know the caller only; their figures are estimates
 * and in no sum with the others. stacks.h joins the two.
 *
 * Errors stick: after the first one every addition does nothing, and profile_error() tells it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "profile/numbers.h"

enum {
    PROFILE_SITES_MAX = 4 << 20,
    PROFILE_FRAMES_MAX = 8 << 20,
    PROFILE_MODULES_MAX = 1 << 16,
    PROFILE_ACCOUNTS_MAX = 1 << 16,
    PROFILE_STACK_MAX = 1024,   /* frames of one site */
    PROFILE_LINES_MAX = 64,     /* of one frame: calls that were compiled into each other */
    PROFILE_STRING_MAX = 65535, /* longer ones are cut */
    PROFILE_BUILD_ID_MAX = 32,
};
#define PROFILE_STACKS_MAX       (UINT32_C(128) << 20) /* frames of all sites together */
#define PROFILE_STRING_BYTES_MAX (UINT32_C(1) << 30)

/* A number in the pool of strings; 0 is "". */
typedef uint32_t profile_string;

struct profile_figures {
    uint64_t live_bytes, live_blocks;
    uint64_t alloc_bytes, alloc_blocks; /* in all; what was freed is the difference */
};

enum profile_module_kind {
    PROFILE_MODULE_FILE, /* an ELF file */
    PROFILE_MODULE_ADDRESS, /* code of no file, made at run time: offsets are addresses, 0 where it was folded */
    PROFILE_MODULE_UNKNOWN, /* offsets mean nothing */
    PROFILE_MODULE_SCRIPT,  /* lines of scripts, which know their names from the start */
};

struct profile_module {
    enum profile_module_kind kind;
    profile_string path;
    uint8_t build_id[PROFILE_BUILD_ID_MAX];
    uint8_t build_id_len;
    uint64_t bias, map_start, map_end; /* in the first process that it was seen in */
    uint64_t started_real_ns;          /* of that process; 0: not known */
    pid_t pid;                         /* whose path it is; 0: ours */
    bool by_name;                      /* see profile_keys() */
};

struct profile_line {
    profile_string function, file; /* 0: not known */
    uint32_t line;                 /* 0: not known */
};

struct profile_frame {
    uint64_t offset;
    uint64_t key; /* as of profile_keys() */
    uint32_t module;
    uint32_t first_line;     /* in profile.lines, the innermost first */
    uint32_t function_bytes; /* of the outermost function's code; 0: not known */
    uint16_t n_lines;
    bool looked_up; /* whether or not there was a name */
    bool forwards;  /* its function only forwards to the allocator: headline.h */
};

/* Memory of one kind in one place. */
struct profile_account {
    uint32_t space;      /* enum memoir_space */
    profile_string name; /* of the space */
    bool has_device;     /* else the host's */
    int32_t ordinal;
    profile_string device_name, device_uid;
};

enum profile_site_flags {
    PROFILE_SITE_CALLER_ONLY = 1u << 0, /* one frame; its stack is not known */
    PROFILE_SITE_CUT = 1u << 1,         /* the stack was deeper */
    PROFILE_SITE_SAMPLED = 1u << 2,     /* an estimate */
};

struct profile_site {
    struct profile_figures figures;
    uint64_t first_seen_ns; /* CLOCK_REALTIME; 0: not known */
    uint32_t first_frame; /* in profile.stacks, which has numbers of frames; the innermost first */
    uint16_t n_frames;
    uint16_t flags; /* enum profile_site_flags */
    uint32_t account;
};

struct profile {
    /* Whom it is about. */
    int64_t pid; /* of the only process; 0: several, or none */
    uint32_t processes;
    profile_string program, command, host;
    uint64_t taken_real_ns, taken_mono_ns; /* the latter is 0 in a profile from a file */
    uint64_t unnamed_frames;               /* looked up in vain */
    /* Of the accounts that the sites are of: all that the processes hold there. More than the sites have
     * where some blocks have none. */
    struct profile_figures accounted;
    /* Set before it is gathered: live figures are those at the peak of each account, not those of now. */
    bool at_peak;
    uint64_t sites_bytes_max; /* of one book; larger ones are left unread. 0: no limit */

    char *strings;
    size_t n_strings, room_strings; /* bytes */
    struct profile_module *modules;
    size_t n_modules, room_modules;
    struct profile_line *lines;
    size_t n_lines, room_lines;
    struct profile_frame *frames;
    size_t n_frames, room_frames;
    uint32_t *stacks;
    size_t n_stacks, room_stacks;
    struct profile_account *accounts;
    size_t n_accounts, room_accounts;
    struct profile_site *sites;
    size_t n_sites, room_sites;

    /* By content, so that each is there once. */
    struct numbers by_string, by_module, by_frame, by_account, by_site;
    uint64_t seed;
    int error;
};

/* NULL without memory. */
struct profile *profile_new(void);
void profile_free(struct profile *profile);
void profile_freep(struct profile **profile);

/* 0, -ENOMEM, or -E2BIG when a limit was reached. */
int profile_error(const struct profile *profile);

/* ---- adding: each gives the number of what it added or found; 0 after an error ---- */

profile_string profile_add_string(struct profile *profile, const char *text);
profile_string profile_add_string_n(struct profile *profile, const char *text, size_t len);
uint32_t profile_add_module(struct profile *profile, const struct profile_module *module);
uint32_t profile_add_frame(struct profile *profile, uint32_t module, uint64_t offset);
uint32_t profile_add_account(struct profile *profile, const struct profile_account *account);

/* Names of a frame that has none yet, the innermost first; n may be 0. */
void profile_set_lines(struct profile *profile, uint32_t frame, const struct profile_line *lines,
                       size_t n);

/* The figures of `site` are added to those of an equal one; its stack is `frames`, not first_frame. */
uint32_t profile_add_site(struct profile *profile, const struct profile_site *site,
                          const uint32_t *frames, size_t n);

/* ---- looking ---- */

static inline const char *profile_text(const struct profile *profile, profile_string string)
{
    return profile->strings + string;
}

static inline const uint32_t *profile_stack(const struct profile *profile,
                                            const struct profile_site *site)
{
    return site->n_frames ? profile->stacks + site->first_frame : NULL; /* there may be no stacks */
}

static inline void profile_figures_add(struct profile_figures *sum,
                                       const struct profile_figures *figures)
{
    uint64_t *to = &sum->live_bytes;
    const uint64_t *from = &figures->live_bytes;
    for (int i = 0; i < 4; i++) /* who lies about how much he holds never makes a sum look small */
        if (__builtin_add_overflow(to[i], from[i], &to[i]))
            to[i] = UINT64_MAX;
}

/* Sums of the exact sites. */
struct profile_figures profile_total(const struct profile *profile);

/* The last component of a path. */
const char *profile_base_name(const char *path);

/* Give every frame a key that is the same in every run, so that rows of two profiles can be told to be
 * the same. A frame is its module and offset where the other profile has the same build of the module
 * too, else function, file and line: two builds of one program then still meet. `other` may be NULL:
 * then every frame is itself. Code made at run time, which moves, is its function where that is known, else all the same. */
void profile_keys(struct profile *profile, const struct profile *other);
