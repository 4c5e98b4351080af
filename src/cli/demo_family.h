/*
 * demo_family.h: the child processes of `memoir demo`.
 *
 * They end with us whatever happens: the kernel sends them SIGTERM when we are gone.
 */
#ifndef MEMOIR_CLI_DEMO_FAMILY_H
#define MEMOIR_CLI_DEMO_FAMILY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    FAMILY_ROLES = 4,
    FAMILY_CLIENTS_MAX = 64,
    FAMILY_ROLE_LEAKY = 2,
    FAMILY_ROLE_VICTIM = 3,
};

struct family_role {
    const char *name;  /* of the program */
    int device;        /* simulated accelerator that it uses */
    const char *story; /* what it does, after "trainer (PID 17) " */
    const char *look;  /* what to type in another terminal; %d is the pid */
};
extern const struct family_role family_roles[FAMILY_ROLES];

struct family_client {
    const struct family_role *role;
    unsigned share; /* clients of the same role */
    pid_t pid;      /* 0: not running */
    uint64_t started_ns;
    unsigned early_deaths; /* in a row, each within a second of its start */
};

struct family {
    struct family_client clients[FAMILY_CLIENTS_MAX];
    unsigned n;
    char programs[4096]; /* directory of the programs */
};

/* `n` clients, the roles in turn; nothing is started. -ENOENT when their programs are not found:
 * beside this one, or in ../libexec/memoir/demo of an installed tree. */
int family_init(struct family *family, unsigned n);

/* Start a client that does not run. */
int family_start(struct family *family, unsigned client);

/* Take note of a child that ended, if one did: its number with the wait status, or -ECHILD. */
int family_reap(struct family *family, int *ret_status);

/* End all that run, in order, and wait for them; those that do not go within a second are killed. */
void family_end(struct family *family);

#endif
