/* From an address in an open module to frames: the function, its line, and the calls inlined there. */
#pragma once

#include <elfutils/libdwfl.h>
#include <stdbool.h>

#include "base/buffer.h"

/* Which compilation unit covers which addresses, for files without .debug_aranges, and which function of a
 * unit does. */
struct symbol_units;
void symbol_units_free(struct symbol_units *units);

struct symbol_place {
    Dwfl_Module *module;
    struct symbol_units **units; /* made and kept there when needed */
    Dwarf_Addr address;          /* in libdwfl's address space */
    bool is_return_address;
};

/* Append the frames of a symbol record: their number (at least 1), or -ENODATA. */
int symbol_scope_resolve(const struct symbol_place *place, struct buffer *record);
