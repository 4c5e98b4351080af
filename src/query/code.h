/* Inside the query core: places in the code as tables show them. */
#pragma once

#include <stdint.h>

#include "query/arena.h"
#include "query/query.h"

/* Texts are NULL where they are not known. */
struct code_name {
    const char *site; /* for people: "train.c:42 load", "train+0x1234" */
    const char *
        frame; /* the module's path and the offset: "/usr/bin/train+0x1234"; of a script "FILE:LINE" */
    const char *function, *file;
    uint32_t line; /* 0: not known */
};

/* "train.c:42 load", as far as it is known, with a shortened name. */
void code_source_append(const struct query_source *source, struct buffer *out);

/* Texts are in `texts`. -ENOMEM. */
int code_name_make(const struct query_world *world, const struct query_code *code,
                   struct arena *texts, struct code_name *ret_name);
int code_name_script(const char *file, uint32_t line, const char *function, struct arena *texts,
                     struct code_name *ret_name);

/* Columns of the tables whose rows have such a place; `arg` of each. */
enum code_column { CODE_SITE, CODE_FRAME, CODE_FUNCTION, CODE_FILE, CODE_LINE };

/* The value of such a column; `name` is NULL where the place is not known. */
void code_name_get(const struct code_name *name, uint32_t column, struct query_value *ret);

#define CODE_COLUMNS(site_help, getter)                                                      \
    {"site",                                                                                 \
     site_help,                                                                              \
     QUERY_TEXT,                                                                             \
     .flags = QUERY_DETAIL | QUERY_PRIVATE,                                                  \
     .needs = QUERY_NEEDS_SYMBOLS,                                                           \
     .arg = CODE_SITE,                                                                       \
     .get = getter},                                                                         \
        {"function",                                                                         \
         NULL,                                                                               \
         QUERY_TEXT,                                                                         \
         .flags = QUERY_DETAIL | QUERY_PRIVATE,                                              \
         .needs = QUERY_NEEDS_SYMBOLS,                                                       \
         .arg = CODE_FUNCTION,                                                               \
         .get = getter},                                                                     \
        {"source_file",                                                                      \
         NULL,                                                                               \
         QUERY_TEXT,                                                                         \
         .flags = QUERY_DETAIL | QUERY_PRIVATE,                                              \
         .needs = QUERY_NEEDS_SYMBOLS,                                                       \
         .arg = CODE_FILE,                                                                   \
         .get = getter},                                                                     \
        {"line",                                                                             \
         NULL,                                                                               \
         QUERY_NUMBER,                                                                       \
         QUERY_SAME,                                                                         \
         .flags = QUERY_DETAIL | QUERY_PRIVATE,                                              \
         .needs = QUERY_NEEDS_SYMBOLS,                                                       \
         .arg = CODE_LINE,                                                                   \
         .get = getter},                                                                     \
    {                                                                                        \
        "frame", NULL, QUERY_TEXT, .flags = QUERY_DETAIL | QUERY_PRIVATE, .arg = CODE_FRAME, \
                                   .get = getter                                             \
    }
