/* remote_memory.h: pieces of another process's memory, many in one call. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct deadline;

struct remote_piece {
    uint64_t address;
    void *to;
    uint32_t bytes;
    bool done; /* all of it was read. A piece that was not may be changed in part */
};

/* Fill what can be read. Tests put bytes of their own in the place of a process. */
typedef void remote_read_fn(void *context, struct remote_piece *pieces, size_t n);

/* A process. What its user may do to make a read hang is a matter of deadline.h; a process of root is read directly. */
struct remote_memory {
    pid_t pid;
    struct deadline *deadline; /* NULL: read directly */
    struct deadline *deadline_of_users;
    uint32_t owner;    /* the user of the process */
    uint32_t file_uid; /* whose /proc/PID/mem is: root's where the user may not trace the process */
    bool stuck; /* a read took too long, or another user's memory is there: it is not read again */
};
void remote_memory_init(struct remote_memory *memory, pid_t pid, struct deadline *deadline);

/* By process_vm_readv(); `context` is a struct remote_memory. About 0.3 us and 0.1 us a piece, and 1.5 us for a look at whose memory was
 * read: a process executes a set-uid program at any time, or ends and leaves its PID to another. Then nothing was read, and what
 * was a user's is not read again. A process of root's that became a user's (a server that gives up its rights) is read on as that
 * user's: until then only root was shown what came of it. */
void remote_memory_read(void *context, struct remote_piece *pieces, size_t n);

static inline bool remote_read_one(remote_read_fn *read, void *context, uint64_t address, void *to,
                                   uint32_t bytes)
{
    struct remote_piece piece = {.address = address, .to = to, .bytes = bytes};
    read(context, &piece, 1);
    return piece.done;
}
