/* Tenstorrent's allocation protocol. See tt.h.
 *
 * The usual message is one of a million about the same process: it costs no system call, no allocation, a
 * comparison of pids and the report itself. Everything else is looked up once and kept in a slot. */
#include "daemon/tt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/behalf.h"
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/server.h"
#include "daemon/tt_device.h"
#include "daemon/tt_internal.h"
#include "daemon/tt_wire.h"

enum {
    SLOTS_MAX = 64,          /* processes that one connection speaks for at a time */
    CACHED_DEVICES = 8,      /* whose accounts a slot keeps */
    BAD_MAX = 10,            /* messages of no type before the connection closes */
    SETTLE_MS = 10,          /* rest after which the size of the first message is guessed, */
    SETTLE_PIECES_MS = 1000, /* and from a client whose messages come in pieces */
    AHEAD_FAR = 16,          /* messages that are looked at before their turn */
    AHEAD_NEAR = 8,
    STOP_EVERY = 128, /* reports between two looks at the clock */
    RETRY_MS = 1000,  /* after a book could not be had */
};

/* Spaces of this protocol, as columns of a slot. */
enum column { COLUMN_CB = TT_BUFFER_TYPES, COLUMN_KERNEL, COLUMNS };
static const int spaces[COLUMNS] = {
    [TT_BUFFER_DRAM] = MEMOIR_SPACE_DRAM,     [TT_BUFFER_L1] = MEMOIR_SPACE_L1,
    [TT_BUFFER_SYSTEM] = MEMOIR_SPACE_SYSTEM, [TT_BUFFER_L1_SMALL] = MEMOIR_SPACE_L1_SMALL,
    [TT_BUFFER_TRACE] = MEMOIR_SPACE_TRACE,   [COLUMN_CB] = MEMOIR_SPACE_CB,
    [COLUMN_KERNEL] = MEMOIR_SPACE_KERNEL,
};

/* One process that the client speaks for. */
struct slot {
    int32_t claimed;
    struct behalf *behalf; /* NULL: could not be had; try again at */
    uint64_t retry_ns;
    int32_t device;                                 /* the one with an account outside the cache */
    uint16_t accounts[CACHED_DEVICES + 1][COLUMNS]; /* 0: not made yet */
};

struct tt {
    struct server *server;
    struct conn *conn;
    struct tt_framing framing;
    bool first_done; /* the first message was applied before its size was known */
    bool answered;   /* by a size that was guessed */
    bool said_denied;
    uint32_t bad;
    uint32_t n_slots, next_slot;
    bool slow;   /* the last report cost more than usual */
    bool unseen; /* reported something that the ledger's figures may not have yet */
    struct slot *last;
    struct slot **slots; /* n_slots */
};

/* ---- whose ---- */

static void slot_clear(struct slot *slot)
{
    behalf_unref(slot->behalf);
    *slot = (struct slot){0};
}

static void say_denied(struct tt *tt, int32_t pid, const char *why)
{
    if (!tt->said_denied && server_may_log(tt->server, conn_peer(tt->conn)->uid) &&
        server_may_say(&tt->server->said_ns))
        log_warn("PID %d (uid %u) reports about PID %d: %s, ignored and counted",
                 (int)conn_peer(tt->conn)->pid, conn_peer(tt->conn)->uid, (int)pid, why);
    tt->said_denied = true;
}

/* Get the book of a process. False when there is none to be had. */
static bool slot_fill(struct tt *tt, struct slot *slot, int32_t claimed,
                      const struct peer_process *process)
{
    struct behalf_subject subject = {.source = BOOK_SOURCE_SOCKET,
                                     .pid = process->pid,
                                     .start_ticks = process->start_ticks,
                                     .speaker = conn_peer(tt->conn)->uid};
    slot->claimed = claimed;
    slot->device = -1;
    int r = behalf_get(tt->server->daemon, &subject, &slot->behalf);
    if (r >= 0)
        return true;
    slot->behalf = NULL;
    slot->retry_ns = clock_monotonic_ns() + RETRY_MS * NS_PER_MS;
    tt->server->figures.refused_books++;
    if (r != -ESRCH)
        say_denied(tt, claimed, strerror(-r));
    return false;
}

static struct slot *slot_find(struct tt *tt, int32_t claimed)
{
    for (uint32_t i = 0; i < tt->n_slots; i++)
        if (tt->slots[i]->claimed == claimed)
            return tt->slots[i];
    return NULL;
}

/* A slot for another process; the oldest one, if there is no more room. */
static struct slot *slot_new(struct tt *tt)
{
    struct slot *slot;
    if (tt->n_slots < SLOTS_MAX) {
        struct slot **slots = realloc(tt->slots, (tt->n_slots + 1) * sizeof(*slots));
        if (!slots)
            return NULL;
        tt->slots = slots;
        slot = calloc(1, sizeof(*slot));
        if (slot)
            slots[tt->n_slots++] = slot;
        return slot;
    }
    slot = tt->slots[tt->next_slot];
    tt->next_slot = (tt->next_slot + 1) % SLOTS_MAX;
    slot_clear(slot);
    return slot;
}

static struct slot *slot_of_slow(struct tt *tt, int32_t claimed)
{
    tt->slow = true;
    struct slot *slot = slot_find(tt, claimed);
    if (slot && slot->behalf && behalf_alive(slot->behalf))
        return tt->last = slot;
    if (slot && !slot->behalf && clock_monotonic_ns() < slot->retry_ns)
        return NULL;
    if (slot) { /* it ended, or its pid is another's by now */
        slot_clear(slot);
        peer_forget(conn_peer(tt->conn), claimed);
    }
    tt->last = NULL;
    struct peer_process process;
    int r = peer_resolve(conn_peer(tt->conn), claimed, &process);
    if (r < 0) {
        tt->server->figures.denied_reports++;
        if (r == -EPERM)
            say_denied(tt, claimed, "it may not speak for that process");
        return NULL;
    }
    if (!slot)
        slot = slot_new(tt);
    return slot && slot_fill(tt, slot, claimed, &process) ? (tt->last = slot) : NULL;
}

static inline struct slot *slot_of(struct tt *tt, int32_t claimed)
{
    struct slot *slot = tt->last;
    if (__builtin_expect(slot && slot->claimed == claimed && behalf_alive(slot->behalf), 1))
        return slot;
    return slot_of_slow(tt, claimed);
}

static int account_make(struct tt *tt, struct slot *slot, uint16_t *row, int32_t device, int column)
{
    int number = tt_device_declare(tt->server, slot->behalf, device);
    int account = number < 0 ? number : behalf_account(slot->behalf, number, spaces[column]);
    if (account > 0)
        row[column] = (uint16_t)account;
    return account;
}

/* The accounts of a device. */
static inline uint16_t *row_of(struct slot *slot, int32_t device)
{
    if (__builtin_expect(device < CACHED_DEVICES, 1))
        return slot->accounts[device];
    if (slot->device != device) {
        slot->device = device;
        memset(slot->accounts[CACHED_DEVICES], 0, sizeof(slot->accounts[0]));
    }
    return slot->accounts[CACHED_DEVICES];
}

/* ---- reports ---- */

static void bad_report(struct tt *tt, struct slot *slot)
{
    tt->server->figures.bad_reports++;
    behalf_lose(slot->behalf, BOOK_LOSS_BAD_ARGUMENT, 1);
}

static void report_alloc(struct tt *tt, struct slot *slot, const struct tt_message *m, int column)
{
    uint16_t *row = row_of(slot, m->device);
    int account = row[column] ? row[column] : account_make(tt, slot, row, m->device, column);
    if (account < 0) {
        bad_report(tt, slot);
        return;
    }
    /* An id is one buffer of its device: what it was in another memory is gone. */
    bool buffer = column < TT_BUFFER_TYPES;
    int r = behalf_alloc_among(slot->behalf, (uint32_t)account, buffer ? row : row + column,
                               buffer ? TT_BUFFER_TYPES : 1, m->buffer_id, m->size);
    struct server_figures *figures = &tt->server->figures;
    if (r == -EDQUOT) {
        if (figures->refused_buffers++ == 0)
            log_warn(
                "PID %d holds %llu buffers: more are not accounted (buffers-per-client-max, or "
                "2^56 bytes in one space)",
                (int)slot->claimed, (unsigned long long)behalf_blocks(slot->behalf));
    } else if (r == -EINVAL) {
        figures->bad_reports++;
    } else {
        figures->reports++;
    }
}

/* Another connection, or a daemon before us, may have made an account that this slot has not seen. */
static uint16_t account_seen(struct slot *slot, uint16_t *row, int32_t device, int column)
{
    if (!row[column]) {
        int account =
            behalf_account_lookup(slot->behalf, MEMOIR_DEVICE_NPU, device, spaces[column]);
        row[column] = account > 0 ? (uint16_t)account : 0;
    }
    return row[column];
}

/* A free tells no size that counts, and often not which memory: wherever the id is. */
static void report_free(struct tt *tt, struct slot *slot, const struct tt_message *m, int column)
{
    uint16_t *row = row_of(slot, m->device);
    tt->server->figures.reports++;
    bool buffer = column < TT_BUFFER_TYPES;
    int begin = buffer ? 0 : column, n = buffer ? TT_BUFFER_TYPES : 1;
    if (behalf_free_among(slot->behalf, row + begin, (uint32_t)n, m->buffer_id) == 0)
        return;
    for (int other = begin; other < begin + n; other++)
        if (!row[other] && account_seen(slot, row, m->device, other) &&
            behalf_free_among(slot->behalf, row + other, 1, m->buffer_id) == 0)
            return;
    behalf_lose(slot->behalf, BOOK_LOSS_UNKNOWN_FREE, 1);
}

static inline bool is_alloc(uint8_t type)
{
    return type == TT_ALLOC || type == TT_CB_ALLOC || type == TT_KERNEL_LOAD;
}

static void report(struct tt *tt, const struct tt_message *m)
{
    struct slot *slot = slot_of(tt, m->pid ? m->pid : peer_own_pid(conn_peer(tt->conn)));
    if (!slot)
        return;
    tt->unseen = true;
    bool alloc = is_alloc(m->type);
    bool buffer = m->type == TT_ALLOC || m->type == TT_FREE;
    int column = m->type == TT_CB_ALLOC || m->type == TT_CB_FREE ? COLUMN_CB
                 : buffer                                        ? m->buffer_type
                                                                 : COLUMN_KERNEL;
    if (m->device < 0 || m->device >= TT_DEVICES_MAX || (alloc && m->size == 0) ||
        (m->type == TT_ALLOC && column >= TT_BUFFER_TYPES)) {
        bad_report(tt, slot);
        return;
    }
    if (alloc)
        report_alloc(tt, slot, m, column);
    else
        report_free(tt, slot, m, buffer && column >= TT_BUFFER_TYPES ? 0 : column);
}

/* ---- questions ---- */

static void answer_send(struct tt *tt, const struct tt_answer *answer)
{
    uint8_t bytes[TT_SIZE_MAX];
    tt_encode(answer, tt->framing.size, bytes);
    (void)conn_send(tt->conn, bytes, tt->framing.size); /* a failure closes it */
}

static void question(struct tt *tt, const struct tt_message *m)
{
    struct server *server = tt->server;
    struct tt_answer answer = {.head = {.device = m->device, .pid = m->pid}};
    server->figures.queries++;
    /* A client that reports and then asks sees its reports. */
    if (tt->unseen)
        server_figures_changed(server);
    tt->unseen = false;
    server_refresh(server);
    if (m->type == TT_DUMP_REMAINING || m->type == TT_DUMP_KERNELS) {
        tt_dump(server, tt->conn, tt->framing.size, m);
        return;
    }
    answer.head.timestamp = clock_real_ns();
    answer.devices = tt_device_count(server);
    if (m->type == TT_QUERY) {
        answer.head.type = TT_RESPONSE;
        tt_device_usage(server, m->device, &answer);
    } else {
        answer.head.type = TT_DEVICE_INFO_RESPONSE;
        if (m->device >= 0)
            tt_device_usage(server, m->device, &answer);
    }
    if (m->device >= 0)
        tt_device_describe(server, m->device, &answer);
    answer_send(tt, &answer);
}

/* ---- messages ---- */

/* -EBADMSG after too much garbage. */
static int bad_message(struct tt *tt)
{
    tt->server->figures.bad_reports++;
    return ++tt->bad >= BAD_MAX ? -EBADMSG : 0;
}

/* In a large book every report waits for memory, unless it was asked for before its turn. Any account will do:
 * blocks of a device are looked for in one place. */
static inline void look_ahead(const struct tt *tt, const uint8_t *bytes, bool far)
{
    struct tt_message m = tt_decode(bytes);
    const struct slot *slot = tt->last;
    if (!slot || m.pid != slot->claimed || (uint32_t)m.device >= CACHED_DEVICES)
        return;
    const uint16_t *row = slot->accounts[m.device];
    int column = 0;
    while (column < COLUMNS && !row[column])
        column++;
    if (column < COLUMNS)
        behalf_prefetch(slot->behalf, row[column], m.buffer_id,
                        far                ? BEHALF_AHEAD_FAR
                        : is_alloc(m.type) ? BEHALF_AHEAD_ALLOC
                                           : BEHALF_AHEAD_FREE);
}

/* Must it wait, for others who want dumps as well? */
static bool dump_waits(struct tt *tt, const struct tt_message *m)
{
    uint64_t wait_ns = tt_dump_wait(tt->server, m);
    if (wait_ns > 0)
        conn_hold(tt->conn, wait_ns);
    return wait_ns > 0 || (tt_is_dump(m) && conn_answer_waits(tt->conn));
}

/* All whole messages, or as many as there is time for. Returns bytes taken, or -errno. */
static ssize_t messages(struct tt *tt, const uint8_t *bytes, size_t n)
{
    size_t size = tt->framing.size, at = 0, reports = 0;
    int r = 0;
    tt->slow = false;
    for (; n - at >= size && r >= 0; at += size) {
        if (__builtin_expect(tt->slow || reports % STOP_EVERY == STOP_EVERY - 1, 0)) {
            if (conn_must_stop(tt->conn))
                break;
            tt->slow = false;
        }
        struct tt_message m = tt_decode(bytes + at);
        if (n - at >= (AHEAD_FAR + 1) * size) {
            look_ahead(tt, bytes + at + AHEAD_FAR * size, true);
            look_ahead(tt, bytes + at + AHEAD_NEAR * size, false);
        }
        if (__builtin_expect(!tt_is_request(m.type), 0)) {
            r = bad_message(tt);
        } else if (tt_is_question(m.type)) {
            if (dump_waits(tt, &m))
                break;
            question(tt, &m);
            tt->slow = true;
        } else {
            reports++;
            report(tt, &m);
        }
    }
    if (reports)
        conn_spend(tt->conn, reports);
    if (r < 0)
        tt->server->figures.closed_message++;
    return r < 0 ? r : (ssize_t)at;
}

static bool pid_known(void *context, int32_t pid)
{
    struct tt *tt = context;
    return peer_is_known(conn_peer(tt->conn), pid);
}

/* The size is known by now: go on where the first message ends. */
static ssize_t framed(struct tt *tt, const uint8_t *bytes, size_t n)
{
    struct tt_framing *f = &tt->framing;
    size_t skip = 0;
    if (f->base) { /* a guess took it away: all of it, or less than it was */
        skip = f->size - f->base;
        f->base = 0;
        tt->first_done = false;
        if (skip > 0 && tt->answered) {
            if (server_may_log(tt->server, conn_peer(tt->conn)->uid) &&
                server_may_say(&tt->server->said_ns))
                log_warn("PID %d was answered with messages of another size than it uses: closed",
                         (int)conn_peer(tt->conn)->pid);
            return -EBADMSG;
        }
    } else if (tt->first_done) {
        skip = f->size;
        tt->first_done = false;
    }
    if (skip > n) { /* the rest of the first one has not come yet */
        f->base = (uint16_t)(f->size - skip);
        tt->first_done = true;
        return 0;
    }
    ssize_t taken = messages(tt, bytes + skip, n - skip);
    return taken < 0 ? taken : taken + (ssize_t)skip;
}

static ssize_t on_bytes(struct conn *conn, const uint8_t *bytes, size_t n)
{
    struct tt *tt = conn_state(conn);
    struct tt_framing *f = &tt->framing;
    if (f->proved && f->base == 0 && !tt->first_done)
        return messages(tt, bytes, n);
    if (tt_framing_look(f, bytes, n, pid_known, tt) < 0) {
        tt->server->figures.closed_message++;
        log_debug("PID %d sends no messages of ours: closed", (int)conn_peer(conn)->pid);
        return -EBADMSG;
    }
    /* A report is the same in every size, so it need not wait. */
    if (f->base == 0 && !tt->first_done && n >= TT_COMMON) {
        struct tt_message m = tt_decode(bytes);
        if (!tt_is_question(m.type)) {
            report(tt, &m);
            conn_spend(conn, 1);
            tt->first_done = true;
        }
    }
    if (f->proved)
        return framed(tt, bytes, n);
    if (tt_framing_guess(f, n))
        conn_wake_after(conn, (f->pieces ? SETTLE_PIECES_MS : SETTLE_MS) * NS_PER_MS);
    return 0;
}

/* Nothing came for a while: the first message is over, if it can be. */
static ssize_t on_wake(struct conn *conn, const uint8_t *bytes, size_t n)
{
    struct tt *tt = conn_state(conn);
    struct tt_framing *f = &tt->framing;
    uint16_t guess = f->proved ? 0 : tt_framing_guess(f, n);
    if (guess == 0 || n == 0)
        return 0;
    if (tt->answered)
        return -EBADMSG; /* by another size: it was no whole message then */
    f->size = guess;
    if (f->base == 0 && !tt->first_done) {
        struct tt_message m = tt_decode(bytes);
        if (dump_waits(tt, &m))
            return 0;
        question(tt, &m);
        tt->answered = true;
    }
    f->base = guess;
    tt->first_done = true;
    return (ssize_t)n;
}

/* The client has closed its sending side: what came of its first message is all of it. */
static ssize_t on_end(struct conn *conn, const uint8_t *bytes, size_t n)
{
    struct tt *tt = conn_state(conn);
    struct tt_framing *f = &tt->framing;
    if (f->proved || tt->first_done || n < TT_COMMON)
        return f->proved ? on_bytes(conn, bytes, n) : (ssize_t)n;
    if (tt_framing_guess(f, n))
        return on_wake(conn, bytes, n);
    /* A dump for the log gets no answer, so that its size does not matter: one script sends 104 bytes. */
    struct tt_message m = tt_decode(bytes);
    if (tt_is_log_dump(&m))
        question(tt, &m);
    return (ssize_t)n;
}

static int on_open(struct conn *conn)
{
    struct tt *tt = calloc(1, sizeof(*tt));
    if (!tt)
        return -ENOMEM;
    tt->server = conn_context(conn);
    tt->conn = conn;
    conn_set_state(conn, tt);
    return 0;
}

static void on_close(struct conn *conn, enum conn_end end)
{
    struct tt *tt = conn_state(conn);
    for (uint32_t i = 0; i < tt->n_slots; i++) {
        behalf_unref(tt->slots[i]->behalf);
        free(tt->slots[i]);
    }
    free(tt->slots);
    free(tt);
}

const struct conn_protocol tt_protocol = {
    .name = "tt",
    .on_open = on_open,
    .on_bytes = on_bytes,
    .on_wake = on_wake,
    .on_end = on_end,
    .on_close = on_close,
    .rest_max = 4 * TT_SIZE_MAX,
};
