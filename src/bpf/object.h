/* What all that load BPF objects need. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct bpf_object;

/* Let libbpf write to our log, at level debug: what it says is for those who look for the cause. */
void object_log(void);

/* The constants of an object that is not loaded yet, to be filled in; NULL: there are none of that size. */
void *object_settings(const struct bpf_object *object, size_t size);

/* The variables of one that is loaded, shared with the program: what libbpf itself has of them stays as it was before. NULL:
 * there are none of that size, or they cannot be mapped. */
void *object_variables(const struct bpf_object *object, size_t size);
void object_variables_free(void *variables, size_t size); /* NULL is fine */

uint32_t object_namespace_inode(const char *path); /* 0: cannot be told */

/* Write down why `what` failed, for people, in EXITS_WHY_MAX bytes. Returns `error`. */
int object_fail(char *why, int error, const char *what);
