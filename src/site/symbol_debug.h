/* Separate debug files of one module. They are opened by the symbolizer, not here: the worker cannot open files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SYMBOL_WANT_MAX = 255, SYMBOL_GIVEN_MAX = 3 };

enum symbol_want_kind {
    SYMBOL_WANT_LINK = 1, /* name of a debug link */
    SYMBOL_WANT_BUILD_ID,
    SYMBOL_WANT_PATH, /* inside the directory of debug files */
};

/* A debug file that a module needs. Crosses the worker's socket. */
struct symbol_want {
    uint8_t kind; /* enum symbol_want_kind */
    uint8_t len;
    char bytes[SYMBOL_WANT_MAX + 1];
};

/* Open the files that may be meant, for the module of the query under way: how many. The caller takes them. */
typedef size_t symbol_give(void *context, const struct symbol_want *want,
                           int ret_fds[static SYMBOL_GIVEN_MAX]);

struct symbol_debug {
    int fd;            /* opened by build-id, or -1 */
    symbol_give *give; /* NULL: there are no others */
    void *context;
};

/* Takes fd (-1: none). */
void symbol_debug_init(struct symbol_debug *debug, int fd, symbol_give *give, void *context);
void symbol_debug_release(struct symbol_debug *debug);

/* An open file with the module's debug information, or -1. It has the same build-id; or, if the module
 * has none, the checksum that its debug link gives. The caller takes the descriptor. */
int symbol_debug_find(struct symbol_debug *debug, const uint8_t *build_id, size_t build_id_len,
                      const char *debuglink, uint32_t debuglink_crc);

/* An open file with that build-id, which debug files refer to by `path` (dwz); -1: none. */
int symbol_debug_alternate(struct symbol_debug *debug, const uint8_t *build_id, size_t build_id_len,
                           const char *path);

/* CRC-32 as in .gnu_debuglink. */
uint32_t symbol_debug_crc(uint32_t crc, const void *data, size_t len);
