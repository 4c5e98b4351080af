/* What the ledger reads of /proc. Each call opens, reads once and closes; -ESRCH means that the process
 * is gone, other errors are ours (-EMFILE) or the system's (-EACCES) and say nothing about it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A file of a process below `proc` ("/proc"). Open: a descriptor or -errno. Read: up to size - 1 bytes and a 0 behind
 * them; how many, or -errno. */
int proc_file_open(const char *proc, pid_t pid, const char *file);
ssize_t proc_file_read(const char *proc, pid_t pid, const char *file, char *ret_text, size_t size);

struct proc_stat {
    char state;   /* 'R', 'S', 'Z' ... */
    bool exiting; /* has begun to exit: its memory may be gone already */
    bool dead;    /* a zombie, all threads of which have ended */
    uint32_t threads;
    uint64_t start_ticks;          /* as the initial time namespace counts, like those in books */
    uint64_t vms_bytes, rss_bytes; /* rss lags by some pages per thread: statm is no better */
    int32_t exit_status; /* as wait() gives it; only for a zombie, and 0 without permission */
};
int proc_stat_read(pid_t pid, struct proc_stat *ret_stat);

enum { PROC_LEVELS_MAX = 8 /* PID namespaces, from ours to that of the process */ };

struct proc_ids {
    uint32_t real_uid, effective_uid, saved_uid, fs_uid;
    uint32_t real_gid;           /* UINT32_MAX: not told */
    bool one_gid;                /* its other gids are the same */
    pid_t parent_pid;            /* in our own namespace */
    pid_t pids[PROC_LEVELS_MAX]; /* NSpid: ours first; of deeper ones, the outer ones */
    uint64_t permitted;          /* capabilities (CapPrm); all of them if the kernel did not say */
    pid_t inner_pid;             /* in the innermost namespace: last of NSpid */
    uint32_t levels;             /* how many namespaces deep, seen from ours: 1 is our own */
};
int proc_ids_read(pid_t pid, struct proc_ids *ret_ids);

/* As the kernel calls it: 15 bytes at most, which the program can change. */
enum { PROC_COMM_MAX = 64 };
int proc_comm_read(pid_t pid, char ret_comm[static PROC_COMM_MAX]);

/* Its command line, with spaces between the arguments; "" if it cannot be read. Reads memory of the process, which may be
 * mapped from a file system that never answers. */
void proc_command_read(pid_t pid, char *ret_command, size_t size);

struct proc_memory {
    uint64_t vms_bytes, rss_bytes, shared_bytes;
};
int proc_memory_read(pid_t pid, struct proc_memory *ret_memory);

/* Inode of the pid namespace that the process lives in. */
int proc_pid_ns(pid_t pid, uint64_t *ret_inode);

/* Which user of ours answers for the process: who made the user namespace that it lives in, where that is
 * not ours (and not root's), else its real uid. Users can have processes of many uids in such. */
int proc_owner(pid_t pid, uint32_t *ret_uid);

/* The user who made the user namespace that the process lives in, the outermost below ours; UINT32_MAX: it lives in
 * ours. */
uint32_t proc_namespace_owner(pid_t pid);

/* What a user is to a process. Reading its memory or opening its files needs more: see daemon/broker.h. */
enum proc_claim {
    PROC_CLAIM_NONE, /* one of its uids is another user's: it is set-uid, or not the user's at all */
    PROC_CLAIM_USER, /* all uids are the user's, but it has capabilities that the user lacks */
    PROC_CLAIM_OWN, /* all uids are the user's, or it lives in a user namespace that the user made */
};
enum proc_claim proc_claim(pid_t pid, const struct proc_ids *ids, uint32_t uid);

/* True if every uid of the process is `uid`. */
static inline bool proc_ids_are(const struct proc_ids *ids, uint32_t uid)
{
    return ids->real_uid == uid && ids->effective_uid == uid && ids->saved_uid == uid &&
           ids->fs_uid == uid;
}

/* Are these the same start time? An offset of a time namespace that is no whole number of ticks rounds
 * them apart by one. */
static inline bool proc_same_start(uint64_t a, uint64_t b)
{
    return a == b || a + 1 == b || b + 1 == a;
}

/* CLOCK_MONOTONIC as the initial time namespace has it, which is what books tell times by. */
uint64_t proc_monotonic_ns(void);

/* A start time as /proc shows it, as the initial time namespace counts. */
uint64_t proc_initial_ticks(uint64_t ticks);

/* A start time in clock ticks since boot, as time since 1970. */
uint64_t proc_ticks_realtime_ns(uint64_t ticks);
