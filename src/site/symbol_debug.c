/* Finding a module's debug file by build-id or debug link, and checking that it belongs to it. */
#include "site/symbol_debug.h"

#include <elfutils/libdwelf.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { CRC_FILE_MAX = 1 << 30 }; /* larger debug files without build-id are not read whole */

void symbol_debug_init(struct symbol_debug *debug, int fd, symbol_give *give, void *context)
{
    *debug = (struct symbol_debug){.fd = fd, .give = give, .context = context};
}

void symbol_debug_release(struct symbol_debug *debug)
{
    if (debug->fd >= 0)
        close(debug->fd);
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

/* The first of the files given that belongs to the module; the others are closed. */
static int choose(struct symbol_debug *debug, const struct symbol_want *want,
                  const uint8_t *build_id, size_t build_id_len, uint32_t crc)
{
    int fds[SYMBOL_GIVEN_MAX], found = -1;
    size_t n = debug->give ? debug->give(debug->context, want, fds) : 0;
    for (size_t i = 0; i < n; i++) {
        if (found < 0 && belongs(fds[i], build_id, build_id_len, crc))
            found = fds[i];
        else
            close(fds[i]);
    }
    return found;
}

static int ask(struct symbol_debug *debug, enum symbol_want_kind kind, const void *bytes,
               size_t len, const uint8_t *build_id, size_t build_id_len, uint32_t crc)
{
    struct symbol_want want = {.kind = (uint8_t)kind, .len = (uint8_t)len};
    if (len == 0 || len > SYMBOL_WANT_MAX)
        return -1;
    memcpy(want.bytes, bytes, len);
    return choose(debug, &want, build_id, build_id_len, crc);
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
    return debuglink ? ask(debug, SYMBOL_WANT_LINK, debuglink, strlen(debuglink), build_id,
                           build_id_len, debuglink_crc)
                     : -1;
}

int symbol_debug_alternate(struct symbol_debug *debug, const uint8_t *build_id, size_t build_id_len,
                           const char *path)
{
    int fd = ask(debug, SYMBOL_WANT_BUILD_ID, build_id, build_id_len, build_id, build_id_len, 0);
    if (fd < 0 && path[0] == '/' && build_id_len > 0)
        fd = ask(debug, SYMBOL_WANT_PATH, path, strlen(path), build_id, build_id_len, 0);
    return fd;
}
