/* Dumps: who holds what, block by block. Limited in time and rows, since the loop does nothing else
 * meanwhile; and after one the next has to wait, so that all of them together take a part of the time. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/server.h"
#include "daemon/tt_internal.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum {
    ROWS_MAX = 65536,
    TIME_MAX_MS = 50,
    HELD_MAX = 1 << 18,
    LINES_MAX = 100, /* in the log, of one dump */
    SHARE = 4,       /* dumps take a quarter of the time */
};

struct dump {
    struct conn *conn;
    uint16_t size;
    bool kernels;   /* only these */
    int32_t device; /* -1: all */
    const struct ledger_process *process;
    uint32_t *accounts;
    uint64_t rows, now_ns, now_real_ns;
    bool cut;
};

/* What a client calls the space: buffer types, then 5 for circular buffers and 6 for kernels. */
static int wire_type(uint32_t space)
{
    switch (space) {
    case MEMOIR_SPACE_DRAM:
        return TT_BUFFER_DRAM;
    case MEMOIR_SPACE_L1:
        return TT_BUFFER_L1;
    case MEMOIR_SPACE_SYSTEM:
        return TT_BUFFER_SYSTEM;
    case MEMOIR_SPACE_L1_SMALL:
        return TT_BUFFER_L1_SMALL;
    case MEMOIR_SPACE_TRACE:
        return TT_BUFFER_TRACE;
    case MEMOIR_SPACE_CB:
        return 5;
    case MEMOIR_SPACE_KERNEL:
        return 6;
    default:
        return -1;
    }
}

static bool is_wanted(const struct dump *d, const struct ledger_account *account)
{
    const struct ledger_device *device = account->device;
    return device && device->kind == MEMOIR_DEVICE_NPU && !device->host[0] &&
           (d->device < 0 || device->ordinal == d->device) && wire_type(account->space) >= 0 &&
           (!d->kernels || account->space == MEMOIR_SPACE_KERNEL);
}

static int send_row(struct dump *d, const struct tt_message *head)
{
    uint8_t bytes[TT_SIZE_MAX];
    tt_encode(&(struct tt_answer){.head = *head}, d->size, bytes);
    return conn_send(d->conn, bytes, d->size);
}

static int each_block(const struct book_block_view *view, void *context)
{
    struct dump *d = context;
    uint32_t index = view->account < BOOK_RECORDS_MAX ? d->accounts[view->account] : UINT32_MAX;
    if (index >= d->process->n_accounts || !is_wanted(d, &d->process->accounts[index]))
        return 0;
    if (d->rows == ROWS_MAX) {
        d->cut = true;
        return 1;
    }
    const struct ledger_account *account = &d->process->accounts[index];
    uint64_t age = d->now_ns > view->time_ns ? d->now_ns - view->time_ns : 0;
    struct tt_message row = {
        .type = TT_RESPONSE,
        .buffer_type = (uint8_t)wire_type(account->space),
        .device = account->device->ordinal,
        .pid = d->process->pid,
        .size = view->bytes,
        .buffer_id = view->id,
        .timestamp = d->now_real_ns - age,
    };
    d->rows++;
    return send_row(d, &row) < 0 ? -EPIPE : 0;
}

static int dump_book(struct dump *d, struct ledger_book *book, uint64_t deadline_ns)
{
    uint32_t accounts[BOOK_RECORDS_MAX];
    int fd = ledger_book_open(book);
    if (fd < 0)
        return 0; /* gone meanwhile */
    d->accounts = accounts;
    ledger_book_accounts(book, accounts);
    struct book_scan_limits limits = {.deadline_ns = deadline_ns, .held_max = HELD_MAX, .tries = 2};
    int r = book_reader_blocks_within(book->reader, fd, &limits, each_block, d, NULL);
    close(fd);
    if (r == -ETIME)
        d->cut = true;
    return r == -EPIPE ? r : 0;
}

static bool holds_wanted(const struct dump *d, const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_accounts; i++)
        if (p->accounts[i].totals.live_blocks > 0 && is_wanted(d, &p->accounts[i]))
            return true;
    return false;
}

static void dump_answer(struct dump *d, struct ledger_process *const *all, size_t n)
{
    uint64_t deadline_ns = clock_monotonic_ns() + TIME_MAX_MS * NS_PER_MS;
    d->now_ns = proc_monotonic_ns();
    d->now_real_ns = clock_real_ns();
    for (size_t i = 0; i < n && !d->cut; i++) {
        d->process = all[i];
        if (!peer_may_see(conn_peer(d->conn), all[i]->uid) || !holds_wanted(d, all[i]))
            continue;
        for (size_t k = 0; k < all[i]->n_books && !d->cut; k++)
            if (dump_book(d, all[i]->books[k], deadline_ns) < 0)
                return;
    }
    struct tt_message end = {
        .type = TT_RESPONSE,
        .buffer_type = d->cut,
        .device = -1,
        .size = d->rows,
        .buffer_id = TT_DUMP_MARK,
        .timestamp = d->now_real_ns,
    };
    (void)send_row(d, &end);
}

static void dump_log(struct server *server, const struct dump *d, struct ledger_process *const *all,
                     size_t n)
{
    uint32_t uid = conn_peer(d->conn)->uid;
    size_t lines = 0;
    for (size_t i = 0; i < n && lines < LINES_MAX; i++) {
        if (!peer_may_see(conn_peer(d->conn), all[i]->uid))
            continue;
        for (size_t k = 0; k < all[i]->n_accounts && lines < LINES_MAX; k++) {
            const struct ledger_account *a = &all[i]->accounts[k];
            if (a->totals.live_blocks == 0 || !is_wanted(d, a))
                continue;
            if (!server_may_log(server, uid))
                return;
            log_info("dump: PID %d (%s) holds %" PRIu64 " bytes in %" PRIu64
                     " blocks of %s on device %d",
                     (int)all[i]->pid, all[i]->name, a->totals.live_bytes, a->totals.live_blocks,
                     ledger_space_name(a->space), (int)a->device->ordinal);
            lines++;
        }
    }
    if (lines == 0)
        log_info("dump: nothing is held");
}

void tt_dump(struct server *server, struct conn *conn, uint16_t size, const struct tt_message *m)
{
    struct dump d = {
        .conn = conn,
        .size = size,
        .kernels = m->type == TT_DUMP_KERNELS,
        .device = tt_is_log_dump(m) ? -1 : m->device}; /* the original server ignores the device */
    size_t n;
    struct ledger_process *const *all = ledger_processes(server->daemon->ledger, &n);
    if (tt_is_dump(m)) {
        uint64_t begin = clock_monotonic_ns();
        dump_answer(&d, all, n);
        uint64_t end = clock_monotonic_ns();
        server->dump_rest_until_ns = end + (end - begin) * (SHARE - 1);
    } else if (server_may_log(server, conn_peer(conn)->uid) &&
               server_may_say(
                   &server->dumped_ns)) { /* who may not must not take another's second */
        dump_log(server, &d, all, n);
    }
}

uint64_t tt_dump_wait(const struct server *server, const struct tt_message *m)
{
    if (!tt_is_dump(m))
        return 0;
    uint64_t now = clock_monotonic_ns();
    return now < server->dump_rest_until_ns ? server->dump_rest_until_ns - now : 0;
}
