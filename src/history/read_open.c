/* Opening the file of history for reading only. */
#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "history/read_internal.h"
#include "history/store_internal.h"

enum { BUSY_MS = 2000, URI_MAX = 3 * STORE_PATH_MAX };

/* A transaction, so that all statements see one picture while a writer goes on. */
static int open_as(const char *name, int flags, sqlite3 **ret_db)
{
    sqlite3 *db = NULL;
    int code = sqlite3_open_v2(name, &db, SQLITE_OPEN_READONLY | flags, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(db, BUSY_MS);
    if (code == SQLITE_OK)
        code = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    int r = code == SQLITE_OK ? store_check(db) : store_errno(db, code);
    if (r < 0)
        sqlite3_close(db);
    else
        *ret_db = db;
    return r;
}

/* For a file where no log can be made beside it: it is read as it is, because no writer can change it. */
static int open_unchanging(const char *path, sqlite3 **ret_db)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer uri = BUFFER_INIT(URI_MAX);
    buffer_append_str(&uri, "file:");
    for (const char *p = path; *p; p++)
        buffer_printf(&uri, strchr("%?#", *p) ? "%%%02x" : "%c", (unsigned char)*p);
    int r = buffer_append_str(&uri, "?immutable=1");
    return r < 0 ? r : open_as(buffer_string(&uri), SQLITE_OPEN_URI, ret_db);
}

int read_open(const char *path, sqlite3 **ret_db)
{
    int r = open_as(path, 0, ret_db);
    if (r == -EROFS ||
        r == -ENOENT) /* a directory without rights to write, or a read-only file system */
        r = open_unchanging(path, ret_db);
    return r == -ENODATA ? -ENOENT : r; /* being begun: as good as none yet */
}
