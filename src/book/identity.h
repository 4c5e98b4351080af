/* identity.h: who this process is, read without malloc or stdio. */
#pragma once

#include <stdint.h>

struct book_header;

/* Fill in all identity fields for the calling process. What cannot be read stays 0. */
void book_identity_self(struct book_header *header);

/* A number for this exec image: a hash over addresses that the kernel chose for it (auxiliary
 * vector), the same in parent and child of a fork, another one after exec. From outside, the same
 * hash over /proc/PID/auxv gives the same number. */
uint64_t book_exec_id(void);

/* Eight of the random bytes that the kernel gave this image. */
uint64_t book_exec_random(void);
