/* The file of browsers' sessions, which outlives a restart: any bytes in it. Nobody gets in by it who does not know a cookie. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "http/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

static void path_remove(void)
{
    unlink(path);
}

static void path_make(void)
{
    if (path[0])
        return;
    strcpy(path, "/dev/shm/memoir-fuzz-session-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    close(fd);
    atexit(path_remove);
    log_set_level(LOG_LEVEL_ERROR);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char cookie[] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    struct http_viewer viewer = {0};
    path_make();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || fs_write_all(fd, (const char *)data, size) < 0)
        abort();
    close(fd);
    struct http_sessions *sessions = NULL;
    if (sessions_new(path, &sessions) == 0) {
        char code[SESSION_SECRET_CHARS + 1], fresh[SESSION_SECRET_CHARS + 1];
        (void)sessions_find(sessions, cookie, strlen(cookie), &viewer);
        if (sessions_code_make(sessions, &viewer, code) == 0 &&
            sessions_begin(sessions, code, fresh, &viewer) == 0 &&
            sessions_find(sessions, fresh, strlen(fresh), &viewer) < 0)
            abort(); /* a new one must be known, however full the file was */
        sessions_end(sessions, cookie, strlen(cookie));
    }
    sessions_free(sessions);
    return 0;
}
