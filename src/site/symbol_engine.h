/* The part of the symbolizer that reads ELF and DWARF, in the worker process (or, for trusted files,
 * in the caller's). Its answers are flat records, which can cross a socket. */
#pragma once

#include "base/buffer.h"
#include "site/symbol_debug.h"
#include "site/symbol_file.h"

enum {
    SYMBOL_RECORD_MAX = 1 << 20, /* bytes of one answer */
    SYMBOL_FRAMES_MAX = 64,      /* inlined calls at one address; more are cut */
};

/* A record: this, then `frames` times a symbol_record_frame, each followed by its two strings with
 * their terminators; a length of 0 means that there is none. */
struct symbol_record {
    int32_t result; /* 0 or -errno, as symbolizer_resolve() returns it */
    uint32_t frames;
};

struct symbol_record_frame {
    uint64_t function_offset;
    uint32_t line;
    uint32_t column;
    uint32_t function_len; /* with terminator, or 0 */
    uint32_t file_len;
    uint32_t inlined;
    uint32_t function_bytes; /* of the outermost function's code; 0: not known */
};

struct symbol_engine;

/* `give` opens separate debug files; NULL: there are none. */
int symbol_engine_new(unsigned modules_max, symbol_give *give, void *context,
                      struct symbol_engine **ret_engine);
void symbol_engine_free(struct symbol_engine *engine);

/* For many answers about one module: find it, whose open files are taken (closed or kept); then append a record
 * for each offset. A module is good until the next one is found. */
struct symbol_lookup {
    void *module; /* NULL: none, because of */
    int error;
    bool is_return_address;
};
struct symbol_lookup symbol_engine_find(struct symbol_engine *engine,
                                        const struct symbol_query *query,
                                        struct symbol_files *files);
void symbol_engine_look_up(const struct symbol_lookup *lookup, uint64_t offset,
                           struct buffer *record);

/* Both in one: answer a query from open files, which are taken. Appends one record. */
void symbol_engine_resolve(struct symbol_engine *engine, const struct symbol_query *query,
                           struct symbol_files *files, struct buffer *record);
