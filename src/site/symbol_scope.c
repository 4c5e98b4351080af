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
    UNITS_MAX = 1 << 20,    /* compilation units of one module */
    RANGES_MAX = 1 << 22,   /* address ranges of all of them, and of the functions of one */
    STRING_MAX = 16 * 1024, /* of a name or path; longer ones are cut */
    NESTING_MAX = 64, /* of what functions are declared in, and of calls compiled into each other */
};

/* ---- spans: which piece of debug information covers an address ---- */

struct span {
    Dwarf_Addr start;
    Dwarf_Addr end;
    Dwarf_Off die;      /* its offset */
    const char *symbol; /* of a function: the symbol that starts there, or NULL; libelf's */
    bool symbol_known;
};

struct spans {
    struct span *list; /* by start, once sorted */
    size_t count;
    size_t room;
};

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->start != y->start)
        return x->start > y->start ? 1 : -1;
    return (x->die > y->die) - (x->die < y->die);
}

static bool spans_add(struct spans *spans, struct span span)
{
    if (spans->count == spans->room) {
        size_t room = spans->room ? spans->room * 2 : 256;
        struct span *list = room <= RANGES_MAX ? realloc(spans->list, room * sizeof(*list)) : NULL;
        if (!list)
            return false;
        spans->list = list;
        spans->room = room;
    }
    spans->list[spans->count++] = span;
    return true;
}

static bool spans_add_die(struct spans *spans, Dwarf_Die *die)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;
    while ((at = dwarf_ranges(die, at, &base, &start, &end)) > 0)
        if (start < end &&
            !spans_add(spans,
                       (struct span){.start = start, .end = end, .die = dwarf_dieoffset(die)}))
            return false;
    return true;
}

static void spans_sort(struct spans *spans)
{
    if (spans->count > 0)
        qsort(spans->list, spans->count, sizeof(spans->list[0]), by_start);
}

static struct span *spans_find(const struct spans *spans, Dwarf_Addr address)
{
    size_t low = 0, high = spans->count; /* the last span that starts at or before address */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (spans->list[mid].start <= address)
            low = mid + 1;
        else
            high = mid;
    }
    /* Of those that start together the first stands for all: functions with the same code. */
    while (low > 1 && spans->list[low - 2].start == spans->list[low - 1].start)
        low--;
    if (low == 0 || address >= spans->list[low - 1].end)
        return NULL;
    return &spans->list[low - 1];
}

/* ---- units and their functions ----
 * libdw would look through all of a unit for each address, which makes a program of one large unit (SQLite
 * is one) as slow as the square of its size. So each unit is read once. */

struct functions {
    Dwarf_Off unit;
    struct spans spans;
};

struct symbol_units {
    struct spans units;
    bool units_read;
    struct functions *functions; /* by unit */
    size_t count;
    size_t room;
};

void symbol_units_free(struct symbol_units *units)
{
    if (!units)
        return;
    for (size_t i = 0; i < units->count; i++)
        free(units->functions[i].spans.list);
    free(units->functions);
    free(units->units.list);
    free(units);
}

/* Read the ranges of every unit once. */
static void units_read(struct symbol_units *units, Dwarf *dwarf)
{
    Dwarf_CU *cu = NULL;
    Dwarf_Die unit;
    uint8_t type;
    for (int n = 0; n < UNITS_MAX; n++)
        if (dwarf_get_units(dwarf, cu, &cu, NULL, &type, &unit, NULL) != 0 ||
            !spans_add_die(&units->units, &unit))
            break;
    spans_sort(&units->units);
    units->units_read = true;
}

/* The unit that covers an address; *ret_address is the address as in its debug information. */
static Dwarf_Die *unit_find(const struct symbol_place *place, Dwarf_Addr address, Dwarf_Die *unit,
                            Dwarf_Addr *ret_address)
{
    Dwarf_Addr bias;
    if (!*place->units)
        *place->units = calloc(1, sizeof(**place->units));
    Dwarf_Die *found = dwfl_module_addrdie(place->module, address, &bias);
    if (found) {
        *unit = *found;
        *ret_address = address - bias;
        return unit;
    }
    Dwarf *dwarf = dwfl_module_getdwarf(place->module, &bias);
    struct symbol_units *units = *place->units;
    if (!dwarf || !units)
        return NULL;
    if (!units->units_read)
        units_read(units, dwarf);
    *ret_address = address - bias;
    const struct span *span = spans_find(&units->units, address - bias);
    return span ? dwarf_offdie(dwarf, span->die, unit) : NULL;
}

/* Functions below a piece of debug information; those inside of others have ranges of their own. */
static bool functions_read(struct spans *spans, Dwarf_Die *parent, unsigned nesting)
{
    Dwarf_Die die;
    if (nesting == NESTING_MAX || dwarf_child(parent, &die) != 0)
        return true;
    do {
        switch (dwarf_tag(&die)) {
        case DW_TAG_subprogram:
            if (!spans_add_die(spans, &die))
                return false;
            __attribute__((fallthrough));
        case DW_TAG_namespace:
        case DW_TAG_module:
        case DW_TAG_class_type:
        case DW_TAG_structure_type:
        case DW_TAG_union_type:
        case DW_TAG_lexical_block:
            if (!functions_read(spans, &die, nesting + 1))
                return false;
            break;
        default:
            break;
        }
    } while (dwarf_siblingof(&die, &die) == 0);
    return true;
}

/* The functions of a unit, read when it is first asked for; NULL without memory. */
static struct spans *functions_of(struct symbol_units *units, Dwarf_Die *unit)
{
    Dwarf_Off offset = dwarf_dieoffset(unit);
    size_t low = 0, high = units->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (units->functions[mid].unit < offset)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < units->count && units->functions[low].unit == offset)
        return &units->functions[low].spans;
    if (units->count == units->room) {
        size_t room = units->room ? units->room * 2 : 64;
        struct functions *grown =
            room <= UNITS_MAX ? realloc(units->functions, room * sizeof(*grown)) : NULL;
        if (!grown)
            return NULL;
        units->functions = grown;
        units->room = room;
    }
    struct functions *at = &units->functions[low];
    memmove(at + 1, at, (units->count - low) * sizeof(*at));
    *at = (struct functions){.unit = offset};
    units->count++;
    functions_read(&at->spans, unit, 0);
    spans_sort(&at->spans);
    return &at->spans;
}

/* The function around an address; NULL where the unit's own functions do not say. */
static struct span *function_find(const struct symbol_place *place, Dwarf_Die *unit,
                                  Dwarf_Addr address)
{
    struct spans *functions = *place->units ? functions_of(*place->units, unit) : NULL;
    return functions ? spans_find(functions, address) : NULL;
}

/* A function and the calls compiled into it at an address, the innermost first: their number. */
static int scopes_find(const struct span *function, Dwarf_Die *unit, Dwarf_Addr address,
                       Dwarf_Die scopes[static NESTING_MAX])
{
    Dwarf_Die path[NESTING_MAX], die;
    int n = 1;
    Dwarf *dwarf = dwarf_cu_getdwarf(unit->cu);
    if (!dwarf || !dwarf_offdie(dwarf, function->die, &path[0]))
        return 0;
    die = path[0];
    for (unsigned nesting = 0; nesting < 4 * NESTING_MAX && n < NESTING_MAX; nesting++) {
        Dwarf_Die child;
        if (dwarf_child(&die, &child) != 0)
            break;
        bool inside = false;
        do {
            int tag = dwarf_tag(&child);
            inside =
                (tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block ||
                 tag == DW_TAG_try_block || tag == DW_TAG_catch_block || tag == DW_TAG_with_stmt) &&
                dwarf_haspc(&child, address) > 0;
        } while (!inside && dwarf_siblingof(&child, &child) == 0);
        if (!inside)
            break;
        if (dwarf_tag(&child) == DW_TAG_inlined_subroutine)
            path[n++] = child;
        die = child;
    }
    for (int i = 0; i < n; i++)
        scopes[i] = path[n - 1 - i];
    return n;
}

/* ---- symbols ---- */

struct symbol {
    const char *name;         /* NULL: none */
    uint64_t function_offset; /* of the queried address from its start */
    uint64_t bytes;           /* of its code; 0: not known */
};

/* libdwfl looks at every symbol each time, so the one at the start of a function is looked up once. */
static struct symbol symbol_find(const struct symbol_place *place, Dwarf_Addr address,
                                 struct span *function, Dwarf_Addr dwarf_address)
{
    GElf_Off offset = 0;
    GElf_Sym entry;
    if (!function) {
        const char *name =
            dwfl_module_addrinfo(place->module, address, &offset, &entry, NULL, NULL, NULL);
        return (struct symbol){name, name ? offset + place->is_return_address : 0,
                               name ? entry.st_size : 0};
    }
    Dwarf_Addr into = dwarf_address - function->start;
    if (!function->symbol_known) {
        const char *name =
            dwfl_module_addrinfo(place->module, address - into, &offset, &entry, NULL, NULL, NULL);
        function->symbol = offset == 0 ? name : NULL;
        function->symbol_known = true;
    }
    return (struct symbol){function->symbol, into + place->is_return_address,
                           function->end - function->start};
}

/* ---- frames ---- */

struct frame {
    const char *function;  /* mangled */
    const char *directory; /* goes before a relative file */
    const char *file;
    uint32_t line;
    uint32_t column;
    uint64_t function_offset;
    uint64_t function_bytes;
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
        .function_bytes = f->function_bytes < UINT32_MAX ? (uint32_t)f->function_bytes : 0,
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

/* The same by libdw, which looks everywhere; for the caller to free(). */
static int scopes_find_slowly(Dwarf_Die *unit, Dwarf_Addr address, Dwarf_Die **ret_scopes)
{
    Dwarf_Die *found = NULL;
    if (dwarf_getscopes(unit, address, &found) <= 0)
        return 0;
    int n = dwarf_getscopes_die(&found[0], ret_scopes);
    free(found);
    return n;
}

/* Frames by the scopes around an address: their number, 0 if there are none. */
static int scopes_append(const struct span *function, Dwarf_Die *unit, Dwarf_Addr address,
                         const struct symbol *symbol, struct buffer *record)
{
    Dwarf_Die near[NESTING_MAX], *far = NULL;
    struct frame f = {.directory = unit_directory(unit),
                      .function_offset = symbol->function_offset,
                      .function_bytes = symbol->bytes};
    int frames = 0;
    frame_set_line(&f, unit, address);
    int n = function ? scopes_find(function, unit, address, near) : 0;
    Dwarf_Die *scopes = near;
    if (n == 0) {
        n = scopes_find_slowly(unit, address, &far);
        scopes = far;
    }
    for (int i = 0; i < n && frames < SYMBOL_FRAMES_MAX; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine)
            continue;
        f.function = die_name(&scopes[i]);
        f.inlined = tag == DW_TAG_inlined_subroutine;
        /* A C++ constructor has several symbols and one DIE without linkage name. */
        if (!f.inlined && symbol->name && (!f.function || symbol->name[0] == '_'))
            f.function = symbol->name;
        if (frame_append(record, &f) == 0)
            frames++;
        if (!f.inlined)
            break;
        f.file = NULL;
        frame_set_call(&f, unit, &scopes[i]);
    }
    free(far);
    return frames;
}

int symbol_scope_resolve(const struct symbol_place *place, struct buffer *record)
{
    /* A return address may belong to the next line, or the next function. */
    Dwarf_Addr address = place->address - (place->is_return_address ? 1 : 0);
    Dwarf_Die unit;
    Dwarf_Addr dwarf_address = 0;
    int frames = 0;
    bool has_unit = unit_find(place, address, &unit, &dwarf_address) != NULL;
    struct span *function = has_unit ? function_find(place, &unit, dwarf_address) : NULL;
    struct symbol symbol = symbol_find(place, address, function, dwarf_address);
    struct frame f = {.function = symbol.name,
                      .function_offset = symbol.function_offset,
                      .function_bytes = symbol.bytes};
    if (has_unit) {
        frames = scopes_append(function, &unit, dwarf_address, &symbol, record);
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
