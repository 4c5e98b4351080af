/* Line tables. All of them are runs of (length in code, change of the line). */
#include "site/python_lines.h"

#include <stdbool.h>

#include "site/python_layout.h"

enum {
    CODE_UNIT = 2, /* bytes of an instruction without its argument's extension */
    NO_LINE = -128,
    LOCATION_ONE_LINE = 10, /* 10, 11, 12: so many lines further, then two columns */
    LOCATION_NO_COLUMNS = 13,
    LOCATION_LONG = 14,
    LOCATION_NONE = 15,
};

/* 3.8, 3.9: pairs (code bytes, line change). A line holds from the place where it was reached. */
static uint32_t line_of_pairs(const uint8_t *table, size_t len, int64_t at, uint32_t line,
                              size_t *ret_used)
{
    int64_t start = 0;
    size_t i = 0;
    for (; i + 1 < len; i += 2) {
        start += table[i];
        if (start > at)
            break;
        line += (uint32_t)(int8_t)table[i + 1];
    }
    *ret_used = i + 2 <= len ? i + 2 : len;
    return line;
}

/* 3.10: pairs (code bytes, line change), and the change comes first; one mark says that there is no line. */
static uint32_t line_of_ranges(const uint8_t *table, size_t len, int64_t at, uint32_t line,
                               size_t *ret_used)
{
    int64_t end = 0;
    size_t i = 0;
    while (i + 1 < len) {
        int change = (int8_t)table[i + 1];
        end += table[i];
        if (change != NO_LINE)
            line += (uint32_t)change;
        i += 2;
        if (end > at)
            break;
    }
    *ret_used = i;
    return line;
}

/* Six bits a byte, the lowest first; bit 6 says that there is more. The lowest bit of all is the sign. */
static uint32_t signed_number(const uint8_t *table, size_t len, size_t *i)
{
    uint32_t value = 0;
    unsigned shift = 0;
    while (*i < len) {
        uint8_t byte = table[*i];
        if (byte & 0x80)
            break; /* the next entry: this one is broken */
        (*i)++;
        if (shift < 32)
            value |= (uint32_t)(byte & 0x3f) << shift;
        shift += 6;
        if (!(byte & 0x40))
            break;
    }
    return value & 1 ? 0u - (value >> 1) : value >> 1;
}

/* From 3.11 on: entries that begin with a byte with the highest bit set: 4 bits of form, 3 of length. */
static uint32_t line_of_locations(const uint8_t *table, size_t len, int64_t at, uint32_t line,
                                  size_t *ret_used)
{
    int64_t end = 0;
    size_t i = 0;
    while (i < len && (table[i] & 0x80)) {
        unsigned form = table[i] >> 3 & 15;
        end += ((table[i] & 7) + 1) * CODE_UNIT;
        i++;
        if (form == LOCATION_NO_COLUMNS || form == LOCATION_LONG)
            line += signed_number(table, len, &i);
        else if (form >= LOCATION_ONE_LINE && form < LOCATION_NO_COLUMNS)
            line += form - LOCATION_ONE_LINE;
        if (end > at)
            break;
        while (i < len && !(table[i] & 0x80))
            i++;
    }
    *ret_used = i;
    return line;
}

uint32_t python_line(unsigned kind, const uint8_t *table, size_t len, int64_t at,
                     uint32_t first_line, size_t *ret_used)
{
    *ret_used = 0;
    if (at < 0 && kind != PYTHON_LINES_PAIRS)
        return first_line; /* not begun */
    switch (kind) {
    case PYTHON_LINES_PAIRS:
        return line_of_pairs(table, len, at, first_line, ret_used);
    case PYTHON_LINES_RANGES:
        return line_of_ranges(table, len, at, first_line, ret_used);
    case PYTHON_LINES_LOCATIONS:
        return line_of_locations(table, len, at, first_line, ret_used);
    }
    return first_line;
}
