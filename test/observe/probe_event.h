/* What the test's probe sends for each call. */
#pragma once

#include "observe/python_capture.h"

enum { PROBE_PAGES = 4, PROBE_PAGE = 4096 };

struct probe_event {
    uint64_t registers[8]; /* rip, rsp, rbp, rbx, r12 to r15: as struct stack_registers */
    uint64_t argument;     /* the first one of the function */
    uint64_t took_ns;      /* to walk the Python frames */
    uint32_t pid, n_bytes;
    struct python_capture python;
    uint8_t bytes[PROBE_PAGES * PROBE_PAGE];
};
