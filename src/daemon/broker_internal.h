/* Inside the broker: what crosses its sockets, and the calls between its files. */
#pragma once

#include <sys/types.h>

#include "daemon/heap_scan.h"
#include "explain/explain.h"
#include "site/symbol_worker.h"

enum { BROKER_PATH_MAX = 4096 };

enum broker_kind {
    BROKER_ACT = 1, /* start a child that acts as a user; with its socket */
    BROKER_WORKER,  /* start a symbol worker; with its socket */
};

/* memoird to broker, one packet each, with one descriptor. No answer: the child answers at its socket. */
struct broker_request {
    uint32_t kind;  /* enum broker_kind */
    uint32_t uid;   /* of BROKER_ACT: never 0 */
    uint32_t payer; /* of BROKER_ACT: the user whose limit counts (base/accountable.h) */
    int32_t pid;    /* of BROKER_ACT: a process of that user, or 0 */
    struct symbol_worker_setup worker;
};

enum broker_task { BROKER_TASK_OPEN = 1, BROKER_TASK_AGES, BROKER_TASK_EXPLAIN, BROKER_TASK_SCAN };

/* memoird to a child that acts as a user, one packet each, with a descriptor if has_mapped is set. */
struct broker_question {
    uint32_t task; /* enum broker_task */
    uint32_t timeout_ms;
    int32_t pid;
    uint8_t has_mapped, has_root, has_path;
    int64_t before_s;
    struct heap_ages_wish ages;
    struct heap_scan_wish scan;
    char in_root[BROKER_PATH_MAX], path[BROKER_PATH_MAX];
};

/* A child's first packet, before it becomes the user's: until then the user cannot delay it. */
struct broker_hello {
    int32_t pid;
};

/* And its answer, with a descriptor where a file was opened. */
struct broker_answer {
    int64_t result;  /* 0 or -errno */
    uint64_t cpu_ns; /* that it took the child, as the child says */
    struct heap_ages_found found;
    struct heap_scan_found scanned;
    struct explain explain;
};

/* broker.c: start the broker's process; then rights to become other users are given up for good, whether or not that worked.
 * 0 with its PID and our end of its socket; -EPERM without these rights; -errno. */
int broker_process_start(pid_t *ret_pid, int *ret_socket);
/* Closes the socket and waits for its end. */
void broker_process_end(pid_t pid, int socket);

/* packets.c: one packet with at most one descriptor (-1: none). Sending fails with -EPIPE or -errno; receiving gives
 * -EPIPE at the end and for a packet of another size. */
int broker_send(int socket, const void *data, size_t len, int fd);
int broker_receive(int socket, void *data, size_t len, int *ret_fd);

/* child.c: the whole life of a child, in a process of one thread that has nothing open but these. */
_Noreturn void broker_child_run(int socket, uint32_t uid, pid_t pid);

/* child.c: become a user for good: 0 when uids, gids and capabilities were checked to be the user's. */
int broker_become(uint32_t uid, pid_t pid);
