/* entry_table.h: entries.h as a table. */
#pragma once

#include "standin/cuda.h"

struct entry {
    const char *name;
    CUresult (*function)(void), (*twin)(void); /* `twin`: NULL if there is none */
    int version, twin_version;
};

extern const struct entry entry_table[];
extern const size_t entry_count;
