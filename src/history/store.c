/* Opening, checking and beginning the file, and its statements. See store.h. */
#include "history/store.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "history/store_internal.h"

enum {
    APPLICATION = 0x4d454d48, /* "MEMH" */
    SCHEMA = 1,
    PAGE_BYTES = 8192,
    CACHE_KIB = 2048,
    LOG_BYTES_MAX = 8 << 20, /* of the write-ahead log after it was moved into the file */
    BUSY_MS = 2000,
    KEEP_ASIDE = 2,
};

static const char schema[] =
    "CREATE TABLE process(id INTEGER PRIMARY KEY AUTOINCREMENT, node TEXT NOT NULL, boot INTEGER NOT NULL,"
    " ns INTEGER NOT NULL, pid INTEGER NOT NULL, start INTEGER NOT NULL, exec INTEGER NOT NULL,"
    " uid INTEGER NOT NULL, program TEXT NOT NULL, began INTEGER NOT NULL, first INTEGER NOT NULL,"
    " last INTEGER NOT NULL);"
    "CREATE UNIQUE INDEX process_who ON process(pid, start, boot, exec, ns, node);"
    "CREATE TABLE device(id INTEGER PRIMARY KEY AUTOINCREMENT, node TEXT NOT NULL, who TEXT NOT NULL,"
    " kind INTEGER NOT NULL, ordinal INTEGER NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,"
    " bus TEXT NOT NULL, last INTEGER NOT NULL);"
    "CREATE UNIQUE INDEX device_who ON device(who, node);"
    "CREATE TABLE series(id INTEGER PRIMARY KEY AUTOINCREMENT, process INTEGER NOT NULL,"
    " device INTEGER NOT NULL, space INTEGER NOT NULL, metric INTEGER NOT NULL);"
    "CREATE UNIQUE INDEX series_who ON series(process, device, space, metric);"
    "CREATE TABLE recent(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE tier(tier INTEGER PRIMARY KEY, step INTEGER NOT NULL, closed INTEGER NOT NULL);"
    "CREATE TABLE chunk0(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE chunk1(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE chunk2(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "INSERT INTO tier VALUES(0, 1, 0), (1, 10, 0), (2, 60, 0);";

#define CHUNK_SQL(first, text) \
    [(first)] = text("chunk0"), [(first) + 1] = text("chunk1"), [(first) + 2] = text("chunk2")
#define TEXT_ADD(table)    "INSERT OR REPLACE INTO " table " VALUES(?, ?)"
#define TEXT_SCAN(table)   "SELECT id, data FROM " table " WHERE id BETWEEN ? AND ? ORDER BY id"
#define TEXT_FIRST(table)  "SELECT id FROM " table " WHERE id >= ? ORDER BY id LIMIT 1"
#define TEXT_DELETE(table) "DELETE FROM " table " WHERE id BETWEEN ? AND ?"

const char *store_sql(int statement)
{
    static const char *const texts[SQL_STATEMENTS] = {
        [SQL_BEGIN] = "BEGIN IMMEDIATE",
        [SQL_COMMIT] = "COMMIT",
        [SQL_ROLLBACK] = "ROLLBACK",
        [SQL_PROCESS_FIND] =
            "SELECT id FROM process WHERE pid=? AND start=? AND boot=? AND exec=? AND "
            "ns=? AND node=?",
        [SQL_PROCESS_ADD] = "INSERT INTO process(pid, start, boot, exec, ns, node, uid, program, "
                            "began, first, last) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?10)",
        [SQL_PROCESS_SEEN] = "UPDATE process SET last=max(last, ?2) WHERE id=?1",
        [SQL_DEVICE_FIND] = "SELECT id FROM device WHERE who=? AND node=?",
        [SQL_DEVICE_ADD] = "INSERT INTO device(who, node, kind, ordinal, name, uid, bus, last) "
                           "VALUES(?,?,?,?,?,?,?,?)",
        [SQL_DEVICE_SEEN] = "UPDATE device SET last=max(last, ?2) WHERE id=?1",
        [SQL_SERIES_FIND] =
            "SELECT id FROM series WHERE process=? AND device=? AND space=? AND metric=?",
        [SQL_SERIES_ADD] = "INSERT INTO series(process, device, space, metric) VALUES(?,?,?,?)",
        [SQL_RECENT_LAST] =
            "SELECT id FROM recent WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1",
        [SQL_RECENT_ADD] = "INSERT INTO recent VALUES(?, ?)",
        [SQL_RECENT_FIRST] = "SELECT id FROM recent WHERE id >= ? ORDER BY id LIMIT 1",
        [SQL_RECENT_OF] = "SELECT id, data FROM recent WHERE id BETWEEN ? AND ? ORDER BY id",
        [SQL_RECENT_DELETE] = "DELETE FROM recent WHERE id BETWEEN ? AND ?",
        [SQL_CLOSED_GET] = "SELECT closed FROM tier WHERE tier=? AND step=?",
        [SQL_CLOSED_SET] = "UPDATE tier SET closed=?2 WHERE tier=?1",
        [SQL_PAGES] = "SELECT (SELECT page_count FROM pragma_page_count) - "
                      "(SELECT freelist_count FROM pragma_freelist_count)",
        [SQL_PRUNE_SERIES] =
            "DELETE FROM series WHERE (process <> 0 AND process IN (SELECT id FROM process WHERE last < ?1)) "
            "OR (device <> 0 AND device IN (SELECT id FROM device WHERE last < ?1))",
        [SQL_PRUNE_PROCESSES] = "DELETE FROM process WHERE last < ?",
        [SQL_PRUNE_DEVICES] = "DELETE FROM device WHERE last < ?",
        CHUNK_SQL(SQL_CHUNK_ADD, TEXT_ADD),
        CHUNK_SQL(SQL_CHUNK_SCAN, TEXT_SCAN),
        CHUNK_SQL(SQL_CHUNK_FIRST, TEXT_FIRST),
        CHUNK_SQL(SQL_CHUNK_DELETE, TEXT_DELETE),
    };
    return texts[statement];
}

/* ---- errors ---- */

int store_errno(sqlite3 *db, int code)
{
    int error = db ? sqlite3_system_errno(db) : 0;
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_SCHEMA:
        return -EBADMSG;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return -EACCES;
    case SQLITE_CANTOPEN:
        return error ? -error : -ENOENT;
    case SQLITE_IOERR:
        /* A file larger than our limit allows is a full disk to us. */
        return error == EFBIG || error == EDQUOT || error == ENOSPC ? -ENOSPC : -EIO;
    case SQLITE_ERROR: /* no such table, say: the file is not what it was */
        return -EBADMSG;
    default:
        return -EINVAL;
    }
}

int store_fail(struct store *store, int code)
{
    snprintf(store->error, sizeof(store->error), "%s",
             store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(code));
    int r = store_errno(store->db, code);
    return r < 0 ? r : -EINVAL;
}

const char *store_error(const struct store *store)
{
    return store->error;
}

/* ---- statements ---- */

sqlite3_stmt *store_statement(struct store *store, int statement)
{
    sqlite3_stmt **s = &store->statements[statement];
    if (!*s && sqlite3_prepare_v3(store->db, store_sql(statement), -1, SQLITE_PREPARE_PERSISTENT, s,
                                  NULL) != SQLITE_OK)
        return NULL;
    sqlite3_reset(*s);
    sqlite3_clear_bindings(*s);
    return *s;
}

int store_run(struct store *store, sqlite3_stmt *statement)
{
    int code = statement ? sqlite3_step(statement) : sqlite3_errcode(store->db);
    int r = code == SQLITE_DONE || code == SQLITE_ROW ? 0 : store_fail(store, code);
    sqlite3_reset(statement);
    return r;
}

int store_number(struct store *store, sqlite3_stmt *statement, int64_t *ret)
{
    int code = statement ? sqlite3_step(statement) : sqlite3_errcode(store->db);
    int r = 0;
    if (code == SQLITE_ROW) {
        *ret = sqlite3_column_int64(statement, 0);
        r = 1;
    } else if (code != SQLITE_DONE) {
        r = store_fail(store, code);
    }
    sqlite3_reset(statement);
    return r;
}

int store_begin(struct store *store)
{
    return store_run(store, store_statement(store, SQL_BEGIN));
}

int store_commit(struct store *store)
{
    return store_run(store, store_statement(store, SQL_COMMIT));
}

void store_rollback(struct store *store)
{
    char words[sizeof(store->error)];
    if (sqlite3_get_autocommit(store->db))
        return;
    memcpy(words, store->error, sizeof(words)); /* what failed first is what counts */
    for (int i = 0; i < SQL_STATEMENTS; i++)
        sqlite3_reset(store->statements[i]);
    (void)store_run(store, store_statement(store, SQL_ROLLBACK));
    memcpy(store->error, words, sizeof(words));
}

/* ---- opening ---- */

static int pragma(sqlite3 *db, const char *name, int64_t *ret)
{
    char text[64];
    sqlite3_stmt *s = NULL;
    snprintf(text, sizeof(text), "PRAGMA %s", name);
    int code = sqlite3_prepare_v2(db, text, -1, &s, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(s);
    if (code == SQLITE_ROW)
        *ret = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return store_errno(db, code);
}

/* Prepares a look at every table, which fails where one is missing or has other columns. */
int store_check(sqlite3 *db)
{
    int64_t application = 0, version = 0, tables = 0;
    int r = pragma(db, "application_id", &application);
    if (r == 0)
        r = pragma(db, "user_version", &version);
    if (r == 0)
        r = pragma(db, "schema_version", &tables);
    if (r == 0 && application == 0 && version == 0 && tables == 0)
        return -ENODATA;
    if (r == 0 && (application != APPLICATION || version != SCHEMA))
        return -EBADMSG;
    for (int i = SQL_PROCESS_FIND; r == 0 && i < SQL_STATEMENTS; i++) {
        sqlite3_stmt *s = NULL;
        if (strncmp(store_sql(i), "SELECT", 6) != 0)
            continue;
        r = store_errno(db, sqlite3_prepare_v2(db, store_sql(i), -1, &s, NULL));
        sqlite3_finalize(s);
    }
    return r;
}

static int schema_begin(sqlite3 *db)
{
    char text[256];
    snprintf(text, sizeof(text),
             "PRAGMA page_size=%d; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL",
             PAGE_BYTES);
    int code = sqlite3_exec(db, text, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(db, schema, NULL, NULL, NULL);
    snprintf(text, sizeof(text), "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT",
             APPLICATION, SCHEMA);
    if (code == SQLITE_OK)
        code = sqlite3_exec(db, text, NULL, NULL, NULL);
    return store_errno(db, code);
}

static int settings(struct store *store)
{
    char text[512];
    snprintf(text, sizeof(text),
             "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-%d; "
             "PRAGMA journal_size_limit=%d; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF; "
             "PRAGMA cell_size_check=ON",
             CACHE_KIB, LOG_BYTES_MAX);
    return store_errno(store->db, sqlite3_exec(store->db, text, NULL, NULL, NULL));
}

static int closed_load(struct store *store)
{
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        sqlite3_stmt *s = store_statement(store, SQL_CLOSED_GET);
        int64_t closed = 0;
        sqlite3_bind_int64(s, 1, tier);
        sqlite3_bind_int64(s, 2, history_step_s[tier]);
        int r = store_number(store, s, &closed);
        if (r <= 0 || closed < 0 || (uint64_t)closed >= WINDOW_MAX)
            return r < 0 ? r : -EBADMSG;
        store->closed[tier] = (uint64_t)closed;
    }
    return 0;
}

/* Made by us, so that nobody else can read it, and empty files are begun. */
static int file_make(const char *path, bool *ret_empty)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ELOOP ? -EBADMSG : -errno;
    *ret_empty = st.st_size == 0;
    return S_ISREG(st.st_mode) ? 0 : -EBADMSG;
}

static int open_checked(struct store *store)
{
    bool empty = false;
    int r = file_make(store->path, &empty);
    if (r < 0) {
        snprintf(store->error, sizeof(store->error), "%s", strerror(-r));
        return r;
    }
    int code = sqlite3_open_v2(store->path, &store->db,
                               SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX |
                                   SQLITE_OPEN_PRIVATECACHE,
                               NULL);
    if (code != SQLITE_OK)
        return store_fail(store, code);
    sqlite3_extended_result_codes(store->db, 1);
    sqlite3_busy_timeout(store->db, BUSY_MS);
    int64_t version = 0, tables = 0;
    r = pragma(store->db, "schema_version", &tables);
    if (r == 0)
        r = pragma(store->db, "user_version", &version);
    /* A daemon that was killed before its first commit left an empty database, not an empty file. */
    if (r == 0 && (empty || (tables == 0 && version == 0)))
        r = schema_begin(store->db);
    if (r == 0)
        r = store_check(store->db);
    if (r == 0)
        r = settings(store);
    return r == 0 ? closed_load(store) : r;
}

int store_open(const char *path, const struct store_limits *limits, struct store **ret_store)
{
    MEMOIR_CLEANUP(store_freep)
    struct store *store = calloc(1, sizeof(*store));
    if (!store)
        return -ENOMEM;
    store->path = strdup(path);
    if (!store->path)
        return -ENOMEM;
    int r = open_checked(store);
    if (r < 0)
        return r;
    store_set_limits(store, limits);
    *ret_store = MEMOIR_TAKE(store);
    return 0;
}

void store_set_limits(struct store *store, const struct store_limits *limits)
{
    char text[64];
    store->limits = *limits;
    store->maintained = store->pruned_s = 0;
    snprintf(text, sizeof(text), "PRAGMA max_page_count=%" PRIu64,
             limits->bytes_max / PAGE_BYTES + 1);
    (void)sqlite3_exec(store->db, text, NULL, NULL, NULL);
}

void store_free(struct store *store)
{
    if (!store)
        return;
    if (store->db)
        store_rollback(store);
    for (int i = 0; i < SQL_STATEMENTS; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    free(store->path);
    free(store);
}

void store_freep(struct store **store)
{
    store_free(*store);
}

uint64_t store_bytes(struct store *store)
{
    char log[STORE_PATH_MAX];
    struct stat st;
    uint64_t bytes = stat(store->path, &st) == 0 ? (uint64_t)st.st_size : 0;
    if (snprintf(log, sizeof(log), "%s-wal", store->path) < (int)sizeof(log) && stat(log, &st) == 0)
        bytes += (uint64_t)st.st_size;
    return bytes;
}

/* ---- a file that is not ours, or no more ---- */

static void forget_old(const char *path)
{
    char pattern[STORE_PATH_MAX];
    glob_t found = {0};
    if (snprintf(pattern, sizeof(pattern), "%s.bad-*", path) < (int)sizeof(pattern) &&
        glob(pattern, 0, NULL, &found) == 0) {
        /* Names end in the time, so they sort by age; the logs have names of their own. */
        size_t files = 0;
        for (size_t i = found.gl_pathc; i > 0; i--) {
            const char *name = found.gl_pathv[i - 1];
            size_t len = strlen(name);
            bool log = len > 4 && strcmp(name + len - 4, "-wal") == 0;
            files += !log;
            if (files > KEEP_ASIDE || (log && files >= KEEP_ASIDE))
                unlink(name);
        }
    }
    globfree(&found);
}

int store_set_aside(const char *path, char ret_name[static STORE_PATH_MAX])
{
    char from[STORE_PATH_MAX], to[STORE_PATH_MAX], stamp[32];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!gmtime_r(&now.tv_sec, &tm) || !strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%S", &tm))
        return -EOVERFLOW;
    if (snprintf(ret_name, STORE_PATH_MAX, "%s.bad-%s.%06ld", path, stamp, now.tv_nsec / 1000) >=
        STORE_PATH_MAX - 8)
        return -ENAMETOOLONG;
    if (rename(path, ret_name) < 0)
        return -errno;
    snprintf(from, sizeof(from), "%s-wal", path);
    snprintf(to, sizeof(to), "%s-wal", ret_name);
    if (rename(from, to) < 0 && errno != ENOENT)
        return -errno; /* a log of another file must not meet the new one */
    snprintf(from, sizeof(from), "%s-shm", path);
    if (unlink(from) < 0 && errno != ENOENT)
        return -errno;
    forget_old(path);
    return 0;
}
