/* heap_target.h: which functions of which files are the allocator of a running process.
 *
 * The allocator is the file whose malloc() the program calls: the program itself, if it defines one; else a library that does, in
 * the order in which the loader searches them; else the C library. Allocators that keep to names of their own (je_malloc, mi_malloc
 * inside a program) are probed beside it. Files are opened through /proc/PID/map_files: never by a path, which the process
 * chooses. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "observe/heap_kernel.h"

enum { HEAP_TARGET_FILES_MAX = 4, HEAP_TARGET_PATH_MAX = 256, HEAP_TARGET_WHY_MAX = 256 };

struct heap_target_file {
    int fd;
    char path[HEAP_TARGET_PATH_MAX];
    struct heap_function functions[HEAP_FUNCTIONS_MAX];
    size_t n;
    size_t slow; /* functions that have no cheap place for a probe */
    bool news;   /* has an operator new of its own, and where it returns was not found */
};

struct heap_target {
    char allocator[32]; /* for people: "glibc", "jemalloc" */
    struct heap_target_file files[HEAP_TARGET_FILES_MAX];
    size_t n;
};

/* 0, or -errno with `why` for people: -ENOENT: it has no malloc (a program in Go); -EALREADY: Memoir counts it already; -ESRCH,
 * -EACCES. */
struct elf_parser;
int heap_target_find(pid_t pid, struct elf_parser *parser, struct heap_target *ret_target,
                     char why[static HEAP_TARGET_WHY_MAX]);
void heap_target_release(struct heap_target *target);
