/* A file of history that a test fills point by point, so that each tier has exactly what the test says. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "base/buffer.h"
#include "check.h"
#include "history/pack.h"
#include "history/read.h"
#include "history/recent.h"
#include "history/store.h"
#include "history/store_internal.h"

enum {
    FILE_T0 = 1800000000 - 1800000000 % 7200, /* a window of the coarsest tier begins */
    FILE_RECENT = HISTORY_TIERS,              /* for file_put(): not closed yet */
};

struct file {
    char dir[64], path[128];
    sqlite3 *db;
    int64_t n_recent;
};

static inline void file_run(struct file *f, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(f->db, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

__attribute__((format(printf, 2, 3))) static inline int64_t file_add(struct file *f,
                                                                     const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *sql = sqlite3_vmprintf(format, args);
    va_end(args);
    file_run(f, sql);
    sqlite3_free(sql);
    return sqlite3_last_insert_rowid(f->db);
}

static inline int file_setup(void **state)
{
    struct file *f = calloc(1, sizeof(*f));
    struct store_limits limits = {UINT64_C(1) << 30, {3600, 86400, 30 * 86400}};
    struct store *store = NULL;
    strcpy(f->dir, "/dev/shm/memoir-file-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/%s", f->dir, HISTORY_FILE);
    assert_int_equal(store_open(f->path, &limits, &store), 0);
    store_free(store);
    assert_int_equal(sqlite3_open(f->path, &f->db), SQLITE_OK);
    file_run(f, "PRAGMA synchronous=OFF");
    *state = f;
    return 0;
}

static inline int file_teardown(void **state)
{
    struct file *f = *state;
    char command[128];
    sqlite3_close(f->db);
    snprintf(command, sizeof(command), "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

struct file_process {
    int64_t pid, start, boot, exec;
    uint32_t uid;
    const char *program, *node;
    int64_t began, first,
        last; /* 0: when the tests' time begins, and the last two: long around it */
};

static inline int64_t file_process(struct file *f, struct file_process p)
{
    return file_add(
        f,
        "INSERT INTO process(node, boot, ns, pid, start, exec, uid, program, began, first, last) "
        "VALUES('%s', %ld, 0, %ld, %ld, %ld, %u, '%s', %ld, %ld, %ld)",
        p.node ? p.node : "", p.boot, p.pid, p.start, p.exec, p.uid, p.program ? p.program : "",
        p.began ? p.began : FILE_T0, p.first ? p.first : FILE_T0 - 86400,
        p.last ? p.last : FILE_T0 + 86400);
}

struct file_device {
    uint32_t kind;
    int ordinal;
    const char *node, *name, *uid, *bus;
};

static inline int64_t file_device(struct file *f, struct file_device d)
{
    static int who;
    return file_add(f,
                    "INSERT INTO device(node, who, kind, ordinal, name, uid, bus, last) "
                    "VALUES('%s', 'who %d', %u, %d, '%s', '%s', '%s', 0)",
                    d.node ? d.node : "", who++, d.kind, d.ordinal, d.name ? d.name : "",
                    d.uid ? d.uid : "", d.bus ? d.bus : "");
}

static inline int64_t file_series(struct file *f, int64_t process, int64_t device, uint32_t space,
                                  enum history_metric metric)
{
    return file_add(f,
                    "INSERT INTO series(process, device, space, metric) VALUES(%ld, %ld, %u, %u)",
                    process, device, space, metric);
}

static inline void file_blob(struct file *f, const char *sql, int64_t id, const void *data,
                             size_t len)
{
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_prepare_v2(f->db, sql, -1, &s, NULL), SQLITE_OK);
    sqlite3_bind_int64(s, 1, id);
    sqlite3_bind_blob(s, 2, data, (int)len, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(s), SQLITE_DONE);
    sqlite3_finalize(s);
}

/* The chunk that is there already. */
static inline void file_chunk(struct file *f, const char *table, int64_t id,
                              struct pack_points *ret_points)
{
    char sql[64];
    sqlite3_stmt *s = NULL;
    ret_points->n = 0;
    snprintf(sql, sizeof(sql), "SELECT data FROM %s WHERE id=?", table);
    assert_int_equal(sqlite3_prepare_v2(f->db, sql, -1, &s, NULL), SQLITE_OK);
    sqlite3_bind_int64(s, 1, id);
    if (sqlite3_step(s) == SQLITE_ROW)
        assert_int_equal(
            pack_decode(sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0), ret_points),
            0);
    sqlite3_finalize(s);
}

/* A point of `series` in `tier`, later than those before, and of what that tier has closed: up to the end of its window. */
static inline void file_put(struct file *f, unsigned tier, int64_t series, uint64_t time_s,
                            uint64_t last, uint64_t max)
{
    unsigned of = tier == FILE_RECENT ? 0 : tier;
    uint64_t window = time_s / history_window_s(of);
    uint8_t bytes[PACK_BYTES_MAX];
    struct pack_points points = {0};
    char table[16], sql[64];
    snprintf(table, sizeof(table), "chunk%u", tier);
    if (tier < FILE_RECENT)
        file_chunk(f, table, CHUNK_ID(window, (uint64_t)series), &points);
    points.slot[points.n] = (uint8_t)(time_s % history_window_s(of) / history_step_s[of]);
    points.last[points.n] = last;
    points.max[points.n++] = max;
    points.has_max = true;
    size_t len = pack_encode(&points, bytes);
    if (tier == FILE_RECENT) {
        struct buffer row = BUFFER_INIT(1 << 16);
        assert_int_equal(recent_append(&row, 0, (uint64_t)series, bytes, len), 0);
        file_blob(f, "INSERT INTO recent VALUES(?, ?)", RECENT_ID((int64_t)window, f->n_recent++),
                  row.data, row.len);
        buffer_release(&row);
        return;
    }
    snprintf(sql, sizeof(sql), "INSERT OR REPLACE INTO %s VALUES(?, ?)", table);
    file_blob(f, sql, CHUNK_ID((int64_t)window, series), bytes, len);
    file_add(f, "UPDATE tier SET closed=max(closed, %lu) WHERE tier=%u", window + 1, tier);
}
