/* Inside scan: stopped threads and their registers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct scan_thread {
    pid_t tid;
    int signal; /* that it was about to get; 0: none */
    bool stopped, ended;
};

enum { SCAN_REGISTER_WORDS = 1536 }; /* general ones, then vectors: AVX-512 and AMX have 11 KB */

struct scan_registers {
    pid_t tid;
    uint64_t words[SCAN_REGISTER_WORDS];
    size_t n;
    uint64_t stack_pointer;  /* what lies below is not in use */
    uint64_t thread_pointer; /* 0: not known */
};

struct scan_threads {
    struct scan_thread *threads;
    size_t n, room;
    struct scan_registers *borrowed; /* of the only one, which somebody else traces; else NULL */
};

int scan_thread_registers(const struct scan_thread *thread, struct scan_registers *ret_registers);
