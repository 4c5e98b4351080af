/* Finding a module's debug file by build-id or debug link, and checking that it belongs to it. */
#include "site/symbol_debug.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { CRC_FILE_MAX = 1 << 30 }; /* larger debug files without build-id are not read whole */

void symbol_debug_init(struct symbol_debug *debug, int fd, const char *path, const char *debug_dir)
{
    *debug = (struct symbol_debug){.fd = fd, .debug_dir = debug_dir};
    if (path && path[0] == '/')
        debug->path = strdup(path);
}

void symbol_debug_release(struct symbol_debug *debug)
{
    if (debug->fd >= 0)
        close(debug->fd);
    free(debug->path);
    *debug = (struct symbol_debug){.fd = -1};
}

uint32_t symbol_debug_crc(uint32_t crc, const void *data, size_t len)
{
    static uint32_t table[256];
    const uint8_t *p = data;
    if (table[1] == 0) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++)
                c = c & 1 ? UINT32_C(0xedb88320) ^ (c >> 1) : c >> 1;
            table[i] = c;
        }
    }
    crc = ~crc;
    for (size_t i = 0; i < len; i++)
        crc = table[(crc ^ p[i]) & 0xff] ^ (crc >> 8);
    return ~crc;
}

static bool crc_matches(int fd, uint32_t wanted)
{
    static char chunk[1 << 16];
    uint32_t crc = 0;
    off_t at = 0;
    for (ssize_t n; (n = pread(fd, chunk, sizeof(chunk), at)) > 0; at += n) {
        if (at > CRC_FILE_MAX)
            return false;
        crc = symbol_debug_crc(crc, chunk, (size_t)n);
    }
    return crc == wanted;
}

static bool belongs(int fd, const uint8_t *build_id, size_t len, uint32_t crc)
{
    if (len == 0)
        return crc_matches(fd, crc);
    const void *id;
    Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
    ssize_t got = elf ? dwelf_elf_gnu_build_id(elf, &id) : -1;
    bool same = got > 0 && (size_t)got == len && memcmp(id, build_id, len) == 0;
    elf_end(elf);
    return same;
}

/* As the worker, which may have no right to /proc/self/fd by which symbol_file_open() goes. */
static int open_regular(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

int symbol_debug_find(struct symbol_debug *debug, const uint8_t *build_id, size_t build_id_len,
                      const char *debuglink, uint32_t debuglink_crc)
{
    if (debug->fd >= 0 && build_id_len > 0) {
        int fd = MEMOIR_TAKE_FD(debug->fd);
        if (belongs(fd, build_id, build_id_len, 0))
            return fd;
        close(fd);
    }
    /* A link names a file, not a place. */
    if (!debuglink || !debug->path || debuglink[0] == '\0' || strchr(debuglink, '/'))
        return -1;
    int dir_len = (int)(strrchr(debug->path, '/') - debug->path);
    static const struct {
        bool under_debug_dir;
        const char *sub;
    } places[] = {{false, ""}, {false, "/.debug"}, {true, ""}};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[4096];
        int n = snprintf(path, sizeof(path), "%s%.*s%s/%s",
                         places[i].under_debug_dir ? debug->debug_dir : "", dir_len, debug->path,
                         places[i].sub, debuglink);
        if (n < 0 || (size_t)n >= sizeof(path) || strcmp(path, debug->path) == 0)
            continue;
        int fd = open_regular(path);
        if (fd < 0)
            continue;
        if (belongs(fd, build_id, build_id_len, debuglink_crc))
            return fd;
        close(fd);
    }
    return -1;
}
