/* os_faults.h: calls of the kernel that fail, for os_fault (malloc/os.h, with OS_FAULTS). */
#pragma once

#include "malloc/os.h"

static inline bool no_map(enum os_call call)
{
    return call == OS_CALL_MAP;
}
