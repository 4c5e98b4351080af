/* Work on a stranger's memory, done in a process of its own.
 *
 * Who reads the memory of another process waits for whatever is mapped there: a file of a user's own file system, pages that
 * somebody else (userfaultfd) is to fill and never does. Nothing ends that wait but SIGKILL, and sometimes not even that. So a
 * child reads, and sends what it found; who asked waits only so long, kills the child and goes on.
 *
 * Any thread. The child has a copy of everything and runs on alone: it may allocate, and must not take locks of others. It has no
 * files but standard error where that is a terminal: what it leaves behind when it cannot be killed holds no place, no port and no
 * pipe of ours. It is in a process group of its own, so that Ctrl-C and Ctrl-Z do not reach it; it ends with the thread that asked. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

/* Children that run, or were killed and do not end: of one owner, and in all. Then no more are started. */
enum { APART_OWNER_MAX = 8, APART_ALL_MAX = 64 };

struct apart_options {
    uint64_t all_ms;    /* for everything; 0: as long as it takes */
    uint64_t silent_ms; /* without apart_beat(); 0: no limit */
    uint32_t owner;     /* the user whose memory it is, who alone loses places where it hangs */
    bool keep_files;    /* the child needs them, and may keep them for good */
};

/* In the child: append what was found. 0 or -errno, which the caller gets. */
typedef int apart_fn(struct buffer *out, void *context);

/* 0 with all that `fn` appended in `out`; what `fn` returned; -ETIME; -ECHILD when it died; -EBUSY when too many of that owner run or were left behind;
 * -errno. On failure `out` is as it was. */
int apart_run(apart_fn *fn, void *context, const struct apart_options *options, struct buffer *out);

/* The same for an answer of exactly `bytes` bytes. -EBADMSG: it is of another size. -ETIMEDOUT instead of -ETIME. */
int apart_value(apart_fn *fn, void *context, const struct apart_options *options, void *ret_value,
                size_t bytes);

/* By who may run in such a child: it goes on. Nothing anywhere else. */
void apart_beat(void);
