/*
 * wire.h: the Tenstorrent messages as a client writes them, and the client's end of a socket.
 *
 * On purpose not memoird's own description of the same bytes: if the two disagreed, nothing here would work.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum wire_type {
    WIRE_ALLOC = 1,
    WIRE_FREE = 2,
    WIRE_QUERY = 3,
    WIRE_RESPONSE = 4,
    WIRE_CB_ALLOC = 8,
    WIRE_CB_FREE = 9,
    WIRE_KERNEL_LOAD = 10,
    WIRE_KERNEL_UNLOAD = 11,
};

/* What a response has figures of, in the order of its fields. */
enum wire_space {
    WIRE_DRAM,
    WIRE_L1,
    WIRE_L1_SMALL,
    WIRE_TRACE,
    WIRE_CB,
    WIRE_KERNEL,
    WIRE_SPACES,
};

struct wire_message {
    uint8_t type;
    uint8_t pad1[3];
    int32_t device;
    uint64_t size;
    uint8_t buffer_type; /* 0 DRAM, 1 L1, 3 L1_SMALL, 4 TRACE */
    uint8_t pad2[3];
    int32_t pid;
    uint64_t id;
    uint64_t timestamp;
    uint64_t allocated[WIRE_SPACES];
    uint64_t total_dram, total_l1;
    uint32_t rest[10]; /* of device information and the ring buffer */
};
static_assert(sizeof(struct wire_message) == 144, "as the newest clients were built");
static_assert(offsetof(struct wire_message, id) == 24 &&
                  offsetof(struct wire_message, allocated) == 40 &&
                  offsetof(struct wire_message, total_dram) == 88,
              "where the clients put them");

/* Sums by space: of what was reported, or of an answer. */
struct wire_totals {
    uint64_t bytes[WIRE_SPACES];
};

/* A server under test, "NAME=SOCKET" on the command line. */
struct wire_server {
    const char *name; /* "memoird", "original", "echo" */
    const char *path;
    int fd;
};

/* As memoird calls them. */
extern const char *const wire_space_names[WIRE_SPACES];

/* Take NAME=SOCKET apart and connect. The text must live as long. */
void wire_server_open(struct wire_server *server, char *text);

/* A connected socket with the send buffer of the original client. Ends the program when it cannot. */
int wire_connect(const char *path);

/* All of it, however often the kernel must be asked; ends the program when the server hangs up. */
void wire_send(int fd, const void *bytes, size_t n);
void wire_receive(int fd, void *bytes, size_t n);

/* Ask for a device's totals and wait for the answer. */
void wire_query(int fd, int device, struct wire_totals *ret_totals);

/* Ends the program with both, and the name of the first space that differs. */
void wire_check(const char *server, const struct wire_totals *wanted,
                const struct wire_totals *answer);

/* ---- buffers, CBs and kernels of a device ---- */

/* Space and size go by the id, so that whoever knows the ids knows the totals. */
static inline enum wire_space wire_space_of(uint64_t id)
{
    static const uint8_t spaces[16] = {WIRE_DRAM, WIRE_DRAM, WIRE_DRAM,     WIRE_DRAM,
                                       WIRE_DRAM, WIRE_DRAM, WIRE_L1,       WIRE_L1,
                                       WIRE_L1,   WIRE_L1,   WIRE_L1_SMALL, WIRE_TRACE,
                                       WIRE_CB,   WIRE_CB,   WIRE_CB,       WIRE_KERNEL};
    return spaces[id % 16];
}

/* Anything but round: a report that is lost or counted twice shows in the sum. */
static inline uint64_t wire_size_of(uint64_t id)
{
    return 1 + (id >> 20) % (1 << 20);
}

void wire_make_alloc(struct wire_message *message, int device, int32_t pid, uint64_t id,
                     enum wire_space space, uint64_t size);
void wire_make_free(struct wire_message *message, int device, int32_t pid, uint64_t id,
                    enum wire_space space, uint64_t size);

void wire_totals_add(struct wire_totals *totals, uint64_t id);
