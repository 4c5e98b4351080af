/*
 * client.h: what the simulated programs of `memoir demo` share.
 *
 * Each is an ordinary program that links with libmemoir and reports allocations on an accelerator
 * that does not exist: no memory is held. They run until SIGTERM and then end in order, as a
 * well-behaved program would.
 */
#ifndef MEMOIR_CLI_DEMO_CLIENT_H
#define MEMOIR_CLI_DEMO_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#define MIB (UINT64_C(1) << 20)
#define KIB (UINT64_C(1) << 10)

struct client {
    int device;       /* for libmemoir's calls */
    int ordinal;      /* of the simulated accelerator: 0 or 1 */
    uint64_t share;   /* this many programs of the kind divide the accelerator */
    uint64_t next_id; /* handles of blocks; never reused */
    uint64_t random;  /* state of client_random() */
};

/* A row of blocks of one kind, freed together or from the end. */
struct client_blocks {
    int space; /* enum memoir_space; host spaces are reported for the host */
    const char *tag;
    uint64_t first_id, n;
};

/* Reads "DEVICE SHARE" from the command line, declares the device and sets up signals. */
void client_init(struct client *client, int argc, char **argv);

/* Wait; false when the program is to end. */
bool client_pause(unsigned ms);

/* A number from 0 to n - 1; the same in every run. */
uint64_t client_random(struct client *client, uint64_t n);

/* Report one more block of `bytes` (divided by the share). */
void client_grow(struct client *client, struct client_blocks *blocks, uint64_t bytes);

/* Report the last block, or all of them, as freed. */
void client_shrink(struct client *client, struct client_blocks *blocks);
void client_drop(struct client *client, struct client_blocks *blocks);

#endif
