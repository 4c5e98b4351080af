/* identity.h: who this process is, read without malloc or stdio. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct book_header;

/* Fill in all identity fields for the calling process. What cannot be read stays 0. Returns the
 * moment of creation by our own clock, which a time namespace may have shifted. */
uint64_t book_identity_self(struct book_header *header);

/* What tells this boot of the machine from others; zeros where it is not told. */
void book_boot_id(uint8_t ret_id[static 16]);

/* How many of the kernel's ticks that is; `per_s` as AT_CLKTCK has it, which is 0 where nobody said. */
int64_t book_ticks_of(int64_t ns, uint64_t per_s);

/* A number for this exec image: a hash over addresses that the kernel chose for it (auxiliary
 * vector); the same in parent and child of a fork, another one after exec. Not over the random bytes
 * that one of them points to: those lie in the memory of the process, where others cannot read them
 * without waiting for whatever it has mapped there. 0: not known. */
uint64_t book_exec_id(void);

/* The same number from the auxiliary vector of any process, as /proc/PID/auxv has it: pairs of type and
 * value. 0 when it has no AT_RANDOM, and so is none of a program of 64 bits. */
struct book_auxv {
    uint64_t type, value;
};
enum { BOOK_AUXV_MAX = 64 }; /* the kernel's own copy has 48 or less */
uint64_t book_exec_id_of(const struct book_auxv *auxv, size_t n);

/* Eight of the random bytes that the kernel gave this image. */
uint64_t book_exec_random(void);
