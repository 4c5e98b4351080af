/* Who a process is, from outside: what a book on its behalf says about it. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct book_header;

/* Fill in the identity of `pid`, as we see it, from /proc: namespaces, start time, image, names, uid; not
 * the command line (commands.h). What cannot be read stays 0 or empty. -ESRCH when it is gone or a zombie;
 * -EPERM when its real or effective uid is not `speaker`, unless that is 0; other errors are ours. */
int subject_read(pid_t pid, uint32_t speaker, struct book_header *header);

/* One number per exec image, as book_exec_id() gives it inside the process; 0: may not be known. Reads
 * nothing of its memory. */
uint64_t subject_exec_id(pid_t pid);
