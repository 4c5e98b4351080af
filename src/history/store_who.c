/* Numbers for processes, devices and series, and rows of `recent`. See store.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "history/store_internal.h"

static void bind_text(sqlite3_stmt *s, int column, const char *text, size_t size)
{
    sqlite3_bind_text(s, column, text, (int)strnlen(text, size), SQLITE_STATIC);
}

static void bind(sqlite3_stmt *s, int column, uint64_t value)
{
    sqlite3_bind_int64(s, column, (int64_t)value);
}

static int add(struct store *store, sqlite3_stmt *s, int64_t *ret_id)
{
    int r = store_run(store, s);
    if (r == 0)
        *ret_id = sqlite3_last_insert_rowid(store->db);
    return r;
}

static void bind_process(sqlite3_stmt *s, const struct sample_process *p, uint64_t boot)
{
    sqlite3_bind_int(s, 1, p->pid);
    bind(s, 2, p->start_ticks);
    bind(s, 3, boot);
    bind(s, 4, p->exec_id);
    bind(s, 5, p->pid_ns);
    bind_text(s, 6, p->node, sizeof(p->node));
}

int store_process(struct store *store, const struct sample_process *process, uint64_t boot,
                  uint64_t now_s, int64_t *ret_id)
{
    sqlite3_stmt *s = store_statement(store, SQL_PROCESS_FIND);
    if (s)
        bind_process(s, process, boot);
    int r = store_number(store, s, ret_id);
    if (r != 0)
        return r < 0 ? r : 0;
    s = store_statement(store, SQL_PROCESS_ADD);
    if (s) {
        bind_process(s, process, boot);
        bind(s, 7, process->uid);
        bind_text(s, 8, process->program, sizeof(process->program));
        bind(s, 9, process->began_ns / 1000000000);
        bind(s, 10, now_s);
    }
    return add(store, s, ret_id);
}

/* What makes it the same device, as the ledger decides. */
static void device_who(const struct sample_device *d, char who[static 192])
{
    if (d->uid[0])
        snprintf(who, 192, "uid %.64s", d->uid);
    else if (d->bus[0])
        snprintf(who, 192, "bus %.32s", d->bus);
    else
        snprintf(who, 192, "%u %d %.64s", d->kind, d->ordinal, d->name);
}

int store_device(struct store *store, const struct sample_device *device, uint64_t now_s,
                 int64_t *ret_id)
{
    char who[192];
    device_who(device, who);
    sqlite3_stmt *s = store_statement(store, SQL_DEVICE_FIND);
    if (s) {
        bind_text(s, 1, who, sizeof(who));
        bind_text(s, 2, device->node, sizeof(device->node));
    }
    int r = store_number(store, s, ret_id);
    if (r != 0)
        return r < 0 ? r : 0;
    s = store_statement(store, SQL_DEVICE_ADD);
    if (s) {
        bind_text(s, 1, who, sizeof(who));
        bind_text(s, 2, device->node, sizeof(device->node));
        bind(s, 3, device->kind);
        sqlite3_bind_int(s, 4, device->ordinal);
        bind_text(s, 5, device->name, sizeof(device->name));
        bind_text(s, 6, device->uid, sizeof(device->uid));
        bind_text(s, 7, device->bus, sizeof(device->bus));
        bind(s, 8, now_s);
    }
    return add(store, s, ret_id);
}

int store_series(struct store *store, int64_t process, int64_t device, uint32_t space,
                 uint32_t metric, int64_t *ret_id)
{
    int64_t id = 0;
    int r = 0;
    for (int statement = SQL_SERIES_FIND; r == 0 && statement <= SQL_SERIES_ADD; statement++) {
        sqlite3_stmt *s = store_statement(store, statement);
        if (s) {
            sqlite3_bind_int64(s, 1, process);
            sqlite3_bind_int64(s, 2, device);
            bind(s, 3, space);
            bind(s, 4, metric);
        }
        r = statement == SQL_SERIES_FIND ? store_number(store, s, &id) : add(store, s, &id);
    }
    if (r < 0)
        return r;
    if (id <= 0 || (uint64_t)id > SERIES_MAX)
        return -EOVERFLOW; /* after four billion series */
    *ret_id = id;
    return 0;
}

static int seen(struct store *store, int statement, int64_t id, uint64_t now_s)
{
    sqlite3_stmt *s = store_statement(store, statement);
    if (s) {
        sqlite3_bind_int64(s, 1, id);
        bind(s, 2, now_s);
    }
    return store_run(store, s);
}

int store_process_seen(struct store *store, int64_t id, uint64_t now_s)
{
    return seen(store, SQL_PROCESS_SEEN, id, now_s);
}

int store_device_seen(struct store *store, int64_t id, uint64_t now_s)
{
    return seen(store, SQL_DEVICE_SEEN, id, now_s);
}

int store_recent(struct store *store, uint64_t window, const void *data, size_t len)
{
    if (window >= WINDOW_MAX)
        return -EOVERFLOW;
    int64_t last = RECENT_ID(window, 0) - 1;
    sqlite3_stmt *s = store_statement(store, SQL_RECENT_LAST);
    if (s) {
        sqlite3_bind_int64(s, 1, RECENT_ID(window, 0));
        sqlite3_bind_int64(s, 2, RECENT_ID(window, RECENT_PER_WINDOW_MAX - 2));
    }
    int r = store_number(store, s, &last);
    if (r < 0)
        return r;
    s = store_statement(store, SQL_RECENT_ADD);
    if (s) {
        sqlite3_bind_int64(s, 1, last + 1);
        sqlite3_bind_blob64(s, 2, data, len, SQLITE_STATIC);
    }
    return store_run(store, s);
}
