/*
 * suspects.h: how `memoir leaks` shows what profile/suspects.h has.
 */
#ifndef MEMOIR_CLI_SUSPECTS_H
#define MEMOIR_CLI_SUSPECTS_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/table.h"
#include "profile/suspects.h"

struct buffer;
struct term;

struct suspects_style {
    bool header;
    size_t shown; /* rows */
};
void suspects_print(const struct suspects *suspects, const struct suspects_style *style,
                    const struct term *term, struct buffer *out);

#endif
