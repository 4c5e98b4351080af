/*
 * settings.h: what a user may set, by MEMOIR_MALLOC="name=value,name=value" or mallopt().
 *
 * Read once, as soon as there is an environment: the loader allocates before that. A program that runs with rights of
 * others (setuid) has none. A name or value that makes no sense is told on stderr, once, and ignored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pressure_setting {
    PRESSURE_SET_NONE,
    PRESSURE_SET_SOME,
    PRESSURE_SET_HIGH,
    PRESSURE_SET_CRITICAL,
    PRESSURE_SET_AUTO, /* what memoird or the kernel tells */
};

enum numa_setting { NUMA_OFF, NUMA_THREAD, NUMA_FOLLOW };
enum thp_setting { THP_NEVER, THP_DENSE, THP_ALWAYS };
enum { SPREAD_SET_MAX = 64 };

struct malloc_settings {
    uint64_t account;          /* count blocks by call site, in a book */
    uint64_t harden;           /* 0 to 3 */
    uint64_t pressure;         /* enum pressure_setting */
    uint64_t keep_bytes;       /* free memory that is kept; SETTING_AUTO: by policy */
    uint64_t limit_bytes;      /* of all memory asked from the kernel; 0: none */
    uint64_t thp;              /* enum thp_setting */
    uint64_t numa;             /* enum numa_setting */
    uint64_t sources;          /* for each node; 0: by need (spread.h) */
    uint64_t zero_free;        /* overwrite what is freed */
    uint64_t quarantine_bytes; /* that freed blocks may wait in, from harden=2 on */
    uint64_t range_base;       /* of fixed addresses (range_plan.h); 0: none */
    uint64_t range_bytes;      /* of one slot */
    uint64_t slot, slots;      /* which one is ours, of so many */
    uint64_t receive;          /* the range waits for an image */
    bool read;                 /* the environment has been looked at, */
    bool given;                /* has MEMOIR_MALLOC, */
    bool begun;                /* and the modes that it asks for have begun */
};
#define SETTING_AUTO UINT64_MAX

extern struct malloc_settings malloc_settings __attribute__((visibility("hidden")));

/* Without pointers, which the loader would have to fill in for every program. */
struct setting {
    char name[12];
    char words[32]; /* values by name, with a blank between them; "": a number */
    char help[72];
    size_t offset; /* of its uint64_t in malloc_settings */
    uint64_t max;
    bool bytes;   /* K, M, G, T may follow; "auto" is what is set anyway */
    bool address; /* as 0x...; "auto" (SETTING_AUTO) is one that suits most programs */
};
extern const struct setting settings_table[];
extern const size_t settings_count;

/* The value of a variable, or NULL. Without the C library, of which a small program need not touch more than it does anyway. Not
 * for what a program with rights of others must not listen to: ask secure_getenv() once there is one. */
const char *settings_variable(const char *name);

/* Look at the environment, if there is one by now. Keeps errno. */
void settings_read(void);

/* Take over "name=value,..."; what could not be understood begins at *ret_bad (NULL: all was). */
void settings_parse(struct malloc_settings *s, const char *text, const char **ret_bad);
