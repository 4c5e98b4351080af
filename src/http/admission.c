/* See admission.h. */
#include "http/admission.h"

#include <stdlib.h>

#include "base/accountable.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/share.h"
#include "http/exchange.h"
#include "http/internal.h"
#include "http/socket_owner.h"

enum {
    OWN_PART = 2,         /* of all places, for one payer */
    PAYER_KINDS = 3,      /* user, unknown user of this machine, address */
    PAYER_UNKNOWN = 1,    /* key of that user */
    SEARCH_SHARE = 10,    /* searches for a place of one's own take one part in ten of the time */
    SEARCH_BURST_MS = 20, /* and after a quiet time so long at once */
};

/* A connection whose client takes longer than this with its body, or with taking an answer, may have to go. */
static const uint64_t YIELD_NS = NS_PER_S;

/* ---- payers ---- */

struct payer {
    uint64_t key;
    size_t n; /* its connections */
    bool is_root;
    uint64_t search_ns; /* time that searches have taken, on a clock that they may not overtake */
    LIST_ENTRY(payer) link;
};

static struct payer *payer_get(struct http *http, uint64_t key)
{
    struct payers *bucket = &http->payers[hash_mix(key) % HTTP_PAYER_BUCKETS];
    struct payer *payer;
    LIST_FOREACH(payer, bucket, link)
    if (payer->key == key)
        break;
    if (!payer && (payer = calloc(1, sizeof(*payer)))) {
        payer->key = key;
        payer->is_root = key == 0;
        LIST_INSERT_HEAD(bucket, payer, link);
    }
    if (payer)
        payer->n++;
    return payer;
}

void admission_leave(struct conn *conn)
{
    struct payer *payer = conn->payer;
    conn->payer = NULL;
    if (!payer || --payer->n > 0)
        return;
    LIST_REMOVE(payer, link);
    free(payer);
}

static uint64_t payer_key(struct http *http, struct conn *conn)
{
    uint32_t uid = 0;
    bool known = conn->has_peer;
    if (known)
        uid = conn->peer.uid;
    else if (conn->local)
        known = socket_owner(http->owner_fd, conn->fd, &uid);
    http->owners_known = http->owners_known || (known && !conn->has_peer);
    if (known)
        return PAYER_KINDS * (uint64_t)accountable_uid(uid);
    return conn->local ? PAYER_UNKNOWN : PAYER_KINDS * (conn->address >> 2) + 2;
}

static size_t own_max(const struct http *http, const struct conn *conn)
{
    size_t max = http->limits.connections_max;
    if (!conn->local)
        return http->limits.connections_address_max;
    /* Where the kernel does not tell owners, all users of this machine are one. */
    bool nameless = conn->payer->key == PAYER_UNKNOWN && !http->owners_known;
    return conn->payer->is_root || nameless ? max : max / OWN_PART;
}

/* ---- places ---- */

/* How readily does it give up its place? 0: not at all; 3: it only holds one; 2: nobody in particular lets us wait for
 * its body, or for taking its answer; 1: a user other than root does. */
static int conn_yields(const struct conn *conn, uint64_t now)
{
    const struct exchange *exchange = conn->exchange;
    if (conn->shut)
        return 0;
    if (conn->phase == CONN_IDLE || (conn->phase == CONN_ASKING && !exchange))
        return 3;
    if ((conn->phase != CONN_ASKING && conn->phase != CONN_TAKING) || !exchange ||
        now - conn->since_ns < YIELD_NS)
        return 0;
    return exchange->viewer.by == HTTP_BY_NOBODY ? 2 : !exchange->viewer.sees_all;
}

/* End one connection: the readiest, of those one of the payer with most, of those the oldest. With `only`, one of that
 * payer. False: all of them do something. */
static bool make_room(struct http *http, const struct payer *only)
{
    struct conn *conn, *best = NULL;
    int best_yields = 0;
    uint64_t now = clock_monotonic_ns();
    LIST_FOREACH(conn, &http->conns, link)
    {
        int yields = only && conn->payer != only ? 0 : conn_yields(conn, now);
        if (yields == 0 || yields < best_yields)
            continue;
        bool better = yields > best_yields               ? true
                      : conn->payer->n != best->payer->n ? conn->payer->n > best->payer->n
                                                         : conn->since_ns < best->since_ns;
        if (better) {
            best = conn;
            best_yields = yields;
        }
    }
    if (best)
        http_conn_shut(http, best);
    return best;
}

/* One of its own goes. Most of a flood is turned away without a search, which would take the time of others. */
static bool make_own_room(struct http *http, struct payer *payer)
{
    uint64_t begin = clock_monotonic_ns(), allowed = begin / SEARCH_SHARE;
    uint64_t burst = SEARCH_BURST_MS * NS_PER_MS;
    if (payer->search_ns > allowed)
        return false;
    if (allowed > burst && payer->search_ns < allowed - burst)
        payer->search_ns = allowed - burst;
    bool made = make_room(http, payer);
    payer->search_ns += clock_monotonic_ns() - begin;
    return made;
}

bool admission_enter(struct http *http, struct conn *conn)
{
    conn->payer = payer_get(http, payer_key(http, conn));
    if (!conn->payer)
        return false;
    struct payer *payer = conn->payer;
    size_t own = payer->n - 1;
    bool fits =
        own < own_max(http, conn)
            ? share_fits(http->n_conns, own, http->limits.connections_max, payer->is_root) ||
                  make_room(http, NULL)
            : conn->local && make_own_room(http, payer);
    if (!fits)
        admission_leave(conn);
    return fits;
}
