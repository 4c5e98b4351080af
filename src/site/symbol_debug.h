/* Separate debug files of one module. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct symbol_debug {
    int fd;                /* opened by build-id, or -1 */
    char *path;            /* of the module, to look beside it; NULL if not known */
    const char *debug_dir; /* borrowed */
};

/* Takes fd (-1: none); copies path (NULL: none). */
void symbol_debug_init(struct symbol_debug *debug, int fd, const char *path, const char *debug_dir);
void symbol_debug_release(struct symbol_debug *debug);

/* An open file with the module's debug information, or -1. It has the same build-id; or, if the module
 * has none, the checksum that its debug link gives. The caller takes the descriptor. */
int symbol_debug_find(struct symbol_debug *debug, const uint8_t *build_id, size_t build_id_len,
                      const char *debuglink, uint32_t debuglink_crc);

/* CRC-32 as in .gnu_debuglink. */
uint32_t symbol_debug_crc(uint32_t crc, const void *data, size_t len);
