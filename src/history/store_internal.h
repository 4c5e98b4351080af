/* What the files of the store share. */
#pragma once

#include <sqlite3.h>

#include "history/store.h"

/* Rows of chunks: window in the high half, series in the low. Rows of `recent`: window, then a number. */
#define CHUNK_ID(window, series)  ((int64_t)((window) << 32 | (series)))
#define RECENT_ID(window, number) ((int64_t)((window) << 20 | (number)))
enum { RECENT_PER_WINDOW_MAX = 1 << 20 };
#define SERIES_MAX UINT32_MAX
#define WINDOW_MAX (UINT64_C(1) << 31)

enum statement {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_PROCESS_FIND,
    SQL_PROCESS_ADD,
    SQL_PROCESS_SEEN,
    SQL_DEVICE_FIND,
    SQL_DEVICE_ADD,
    SQL_DEVICE_SEEN,
    SQL_SERIES_FIND,
    SQL_SERIES_ADD,
    SQL_RECENT_LAST,
    SQL_RECENT_ADD,
    SQL_RECENT_FIRST,
    SQL_RECENT_OF,
    SQL_RECENT_DELETE,
    SQL_CLOSED_GET,
    SQL_CLOSED_SET,
    SQL_PAGES,
    SQL_PRUNE_SERIES,
    SQL_PRUNE_PROCESSES,
    SQL_PRUNE_DEVICES,
    SQL_CHUNK_ADD, /* of each tier, HISTORY_TIERS of them; so are the next ones */
    SQL_CHUNK_SCAN = SQL_CHUNK_ADD + HISTORY_TIERS,
    SQL_CHUNK_FIRST = SQL_CHUNK_SCAN + HISTORY_TIERS,
    SQL_CHUNK_DELETE = SQL_CHUNK_FIRST + HISTORY_TIERS,
    SQL_STATEMENTS = SQL_CHUNK_DELETE + HISTORY_TIERS,
};

struct store {
    sqlite3 *db;
    sqlite3_stmt *statements[SQL_STATEMENTS]; /* prepared when first used */
    struct store_limits limits;
    uint64_t closed[HISTORY_TIERS]; /* windows below it were closed: as in the file */
    uint64_t maintained;            /* the window in which that was last done, 0: never */
    uint64_t pruned_s;              /* when names were last looked at, 0: never */
    bool hold_age;
    char *path;
    char error[256];
};

/* The text of a statement. */
const char *store_sql(int statement);

/* A statement, reset and without values; NULL on failure, which store_fail() then tells. */
sqlite3_stmt *store_statement(struct store *store, int statement);

/* Run one that gives no row. */
int store_run(struct store *store, sqlite3_stmt *statement);

/* Run one that gives one number at most; `ret` is left alone, and 0 returned, without a row; else 1. */
int store_number(struct store *store, sqlite3_stmt *statement, int64_t *ret);

/* Remembers the words and returns the -errno of the last failure. */
int store_fail(struct store *store, int code);

/* Close a window of `tier` from finer rows, in a transaction of the caller. */
int store_close(struct store *store, unsigned tier, uint64_t window);

/* Delete what is too old or too much; a transaction of its own. */
int store_prune(struct store *store, uint64_t now_s);
