/* Symbol and scope lookup in one module. */
#include "site/symbol_scope.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "site/demangle.h"
#include "site/symbol_engine.h"

enum {
    UNITS_MAX = 1 << 20,   /* compilation units of one module */
    RANGES_MAX = 1 << 22,  /* address ranges of all of them */
    STRING_MAX = 16 * 1024 /* of a name or path; longer ones are cut */
};

/* ---- units ---- */

struct range {
    Dwarf_Addr start;
    Dwarf_Addr end;
    Dwarf_Off unit; /* offset of its DIE */
};

struct symbol_units {
    struct range *ranges; /* by start */
    size_t count;
    size_t room;
};

void symbol_units_free(struct symbol_units *units)
{
    if (!units)
        return;
    free(units->ranges);
    free(units);
}

static int by_start(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static bool range_add(struct symbol_units *units, struct range range)
{
    if (units->count == units->room) {
        size_t room = units->room ? units->room * 2 : 256;
        struct range *ranges =
            room <= RANGES_MAX ? realloc(units->ranges, room * sizeof(*ranges)) : NULL;
        if (!ranges)
            return false;
        units->ranges = ranges;
        units->room = room;
    }
    units->ranges[units->count++] = range;
    return true;
}

/* Read the ranges of every unit once. */
static struct symbol_units *units_make(Dwarf *dwarf)
{
    struct symbol_units *units = calloc(1, sizeof(*units));
    Dwarf_CU *cu = NULL;
    Dwarf_Die unit;
    uint8_t type;
    if (!units)
        return NULL;
    for (int n = 0; n < UNITS_MAX; n++) {
        if (dwarf_get_units(dwarf, cu, &cu, NULL, &type, &unit, NULL) != 0)
            break;
        Dwarf_Addr base, start, end;
        ptrdiff_t at = 0;
        while ((at = dwarf_ranges(&unit, at, &base, &start, &end)) > 0)
            if (start < end &&
                !range_add(units, (struct range){start, end, dwarf_dieoffset(&unit)}))
                break;
    }
    if (units->count > 0)
        qsort(units->ranges, units->count, sizeof(units->ranges[0]), by_start);
    return units;
}

static Dwarf_Die *units_find(struct symbol_units *units, Dwarf *dwarf, Dwarf_Addr address,
                             Dwarf_Die *unit)
{
    size_t low = 0, high = units->count; /* the last range that starts at or before address */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (units->ranges[mid].start <= address)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0 || address >= units->ranges[low - 1].end)
        return NULL;
    return dwarf_offdie(dwarf, units->ranges[low - 1].unit, unit);
}

/* The unit that covers an address; *ret_address is the address as in its debug information. */
static Dwarf_Die *unit_find(const struct symbol_place *place, Dwarf_Addr address, Dwarf_Die *unit,
                            Dwarf_Addr *ret_address)
{
    Dwarf_Addr bias;
    Dwarf_Die *found = dwfl_module_addrdie(place->module, address, &bias);
    if (found) {
        *unit = *found;
        *ret_address = address - bias;
        return unit;
    }
    Dwarf *dwarf = dwfl_module_getdwarf(place->module, &bias);
    if (!dwarf)
        return NULL;
    if (!*place->units)
        *place->units = units_make(dwarf);
    *ret_address = address - bias;
    return *place->units ? units_find(*place->units, dwarf, address - bias, unit) : NULL;
}

/* ---- frames ---- */

struct frame {
    const char *function;  /* mangled */
    const char *directory; /* goes before a relative file */
    const char *file;
    uint32_t line;
    uint32_t column;
    uint64_t function_offset;
    bool inlined;
};

static uint32_t capped(size_t len)
{
    return (uint32_t)(len < STRING_MAX ? len : STRING_MAX);
}

static int frame_append(struct buffer *record, const struct frame *f)
{
    char readable[DEMANGLE_OUTPUT_MAX];
    const char *function = f->function;
    size_t function_len = function ? demangle(function, readable, sizeof(readable)) : 0;
    if (function_len > 0)
        function = readable;
    else if (function)
        function_len = capped(strlen(function));
    bool join = f->file && f->file[0] != '/' && f->directory && f->directory[0] != '\0';
    uint32_t directory_len = join ? capped(strlen(f->directory)) : 0;
    uint32_t file_len = f->file ? capped(strlen(f->file)) : 0;
    struct symbol_record_frame out = {
        .function_offset = f->function_offset,
        .line = f->line,
        .column = f->column,
        .function_len = function ? (uint32_t)function_len + 1 : 0,
        .file_len = f->file ? directory_len + (join ? 1 : 0) + file_len + 1 : 0,
        .inlined = f->inlined,
    };
    buffer_append(record, &out, sizeof(out));
    if (function) {
        buffer_append(record, function, function_len);
        buffer_append_char(record, '\0');
    }
    if (f->file) {
        if (join) {
            buffer_append(record, f->directory, directory_len);
            buffer_append_char(record, '/');
        }
        buffer_append(record, f->file, file_len);
        buffer_append_char(record, '\0');
    }
    return record->error;
}

/* The name to demangle, if the compiler gave one, else the plain one. */
static const char *die_name(Dwarf_Die *die)
{
    Dwarf_Attribute attribute;
    const char *name = NULL;
    if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) ||
        dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute))
        name = dwarf_formstring(&attribute);
    return name ? name : dwarf_diename(die);
}

static uint32_t die_number(Dwarf_Die *die, unsigned attribute_name)
{
    Dwarf_Attribute attribute;
    Dwarf_Word value;
    if (!dwarf_attr(die, attribute_name, &attribute) || dwarf_formudata(&attribute, &value) != 0 ||
        value > UINT32_MAX)
        return 0;
    return (uint32_t)value;
}

static const char *unit_directory(Dwarf_Die *unit)
{
    Dwarf_Attribute attribute;
    return dwarf_attr(unit, DW_AT_comp_dir, &attribute) ? dwarf_formstring(&attribute) : NULL;
}

/* File and line of an address, by the line table. */
static void frame_set_line(struct frame *f, Dwarf_Die *unit, Dwarf_Addr address)
{
    int number = 0;
    Dwarf_Line *line = dwarf_getsrc_die(unit, address);
    if (!line)
        return;
    f->file = dwarf_linesrc(line, NULL, NULL);
    if (dwarf_lineno(line, &number) == 0 && number > 0)
        f->line = (uint32_t)number;
    if (dwarf_linecol(line, &number) == 0 && number > 0)
        f->column = (uint32_t)number;
}

/* File and line from which an inlined function was called. */
static void frame_set_call(struct frame *f, Dwarf_Die *unit, Dwarf_Die *inlined)
{
    Dwarf_Files *files;
    size_t count;
    uint32_t file = die_number(inlined, DW_AT_call_file);
    f->line = die_number(inlined, DW_AT_call_line);
    f->column = die_number(inlined, DW_AT_call_column);
    if (dwarf_getsrcfiles(unit, &files, &count) == 0 && file < count)
        f->file = dwarf_filesrc(files, file, NULL, NULL);
}

/* Frames by the scopes around an address: their number, 0 if there are none. */
static int scopes_append(Dwarf_Die *unit, Dwarf_Addr address, uint64_t function_offset,
                         const char *symbol, struct buffer *record)
{
    Dwarf_Die *found = NULL, *scopes = NULL;
    struct frame f = {.directory = unit_directory(unit), .function_offset = function_offset};
    int frames = 0;
    frame_set_line(&f, unit, address);
    if (dwarf_getscopes(unit, address, &found) <= 0)
        return 0;
    int n = dwarf_getscopes_die(&found[0], &scopes);
    for (int i = 0; i < n && frames < SYMBOL_FRAMES_MAX; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine)
            continue;
        f.function = die_name(&scopes[i]);
        f.inlined = tag == DW_TAG_inlined_subroutine;
        /* A C++ constructor has several symbols and one DIE without linkage name. */
        if (!f.inlined && symbol && (!f.function || symbol[0] == '_'))
            f.function = symbol;
        if (frame_append(record, &f) == 0)
            frames++;
        if (!f.inlined)
            break;
        f.file = NULL;
        frame_set_call(&f, unit, &scopes[i]);
    }
    free(scopes);
    free(found);
    return frames;
}

int symbol_scope_resolve(const struct symbol_place *place, struct buffer *record)
{
    /* A return address may belong to the next line, or the next function. */
    Dwarf_Addr address = place->address - (place->is_return_address ? 1 : 0);
    GElf_Off offset = 0;
    GElf_Sym symbol_entry;
    const char *symbol =
        dwfl_module_addrinfo(place->module, address, &offset, &symbol_entry, NULL, NULL, NULL);
    uint64_t function_offset = symbol ? offset + (place->is_return_address ? 1 : 0) : 0;
    Dwarf_Die unit;
    Dwarf_Addr dwarf_address;
    int frames = 0;
    struct frame f = {.function = symbol, .function_offset = function_offset};
    if (unit_find(place, address, &unit, &dwarf_address)) {
        frames = scopes_append(&unit, dwarf_address, function_offset, symbol, record);
        if (frames == 0) { /* assembler has lines but no scopes */
            f.directory = unit_directory(&unit);
            frame_set_line(&f, &unit, dwarf_address);
        }
    }
    if (frames == 0 && (f.function || f.file))
        frames = frame_append(record, &f) == 0 ? 1 : 0;
    if (record->error)
        return -ENOMEM;
    return frames > 0 ? frames : -ENODATA;
}
