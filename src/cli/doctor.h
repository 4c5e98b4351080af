/* doctor.h: findings of `memoir doctor`, and the checks that make them. */
#ifndef MEMOIR_CLI_DOCTOR_H
#define MEMOIR_CLI_DOCTOR_H

#include <stddef.h>

enum doctor_status {
    DOCTOR_OK,
    DOCTOR_WARN, /* works, but less well, or not for all users */
    DOCTOR_FAIL, /* something that Memoir is for does not work */
};

struct doctor {
    const char *dir;       /* --dir, or NULL */
    struct ledger *ledger; /* one picture of the machine, or NULL when it could not be taken */
    struct table *findings;
    const char *check; /* name of the check that runs */
    unsigned n[3];     /* findings by status */
};

/* Say what was found (fmt) and, where it is not ok, what to do (remedy, or NULL). */
void doctor_find(struct doctor *d, enum doctor_status status, const char *remedy, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));

struct doctor_check {
    const char *name; /* NULL ends the list */
    void (*run)(struct doctor *d);
};

extern const struct doctor_check doctor_book_checks[];     /* places, a trial, books */
extern const struct doctor_check doctor_daemon_checks[];   /* whether one runs and answers */
extern const struct doctor_check doctor_pressure_checks[]; /* the pressure word */
extern const struct doctor_check doctor_region_checks[];   /* tt-metal's own counts */
extern const struct doctor_check doctor_driver_checks[];   /* what NVML says */
extern const struct doctor_check doctor_trace_checks[];    /* whether CUDA programs can be traced */
extern const struct doctor_check doctor_pin_checks[];      /* whether memory can be pinned */
extern const struct doctor_check doctor_cluster_checks[];  /* other nodes */
extern const struct doctor_check doctor_kernel_checks[];   /* features and limits */

#endif
