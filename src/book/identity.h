/* identity.h: who this process is, read without malloc or stdio. */
#pragma once

#include <stdint.h>

struct book_header;

/* Fill in all identity fields for the calling process. What cannot be read stays 0. Returns the
 * moment of creation by our own clock, which a time namespace may have shifted. */
uint64_t book_identity_self(struct book_header *header);

/* A number for this exec image: a hash over addresses that the kernel chose for it (auxiliary
 * vector) and over its 16 random bytes; the same in parent and child of a fork, another one after
 * exec. From outside, /proc/PID/auxv and the bytes that AT_RANDOM points to give the same number. */
uint64_t book_exec_id(void);

/* Eight of the random bytes that the kernel gave this image. */
uint64_t book_exec_random(void);
