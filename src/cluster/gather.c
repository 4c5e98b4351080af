/* One question to several nodes. See gather.h. */
#include "cluster/gather.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "query/query.h"

struct gather {
    struct message_nonce nonce;
    struct query *query;
    struct query_result *result;
    uint64_t begin_ns, sent_ns, stall_ns, deadline_ns; /* moments */
    uint64_t last_ns;                                  /* when the last answer came */
    uint64_t end_ns;                                   /* 0: not done */
    struct gather_node *nodes;                         /* by ID */
    size_t n, cap;
    size_t counts[GATHER_MISSING + 1]; /* nodes by state */
};

int gather_new(const struct gather_options *options, struct gather **ret_gather)
{
    struct gather *g = calloc(1, sizeof(*g));
    int r = g ? 0 : -ENOMEM;
    if (r == 0 && options->query)
        r = query_result_new(options->query, GATHER_ROWS_MAX, &g->result);
    if (r < 0) {
        free(g);
        query_free(options->query);
        return r;
    }
    if (options->query)
        query_sum_nodes(options->query);
    g->nonce = options->nonce;
    g->query = options->query;
    g->begin_ns = g->sent_ns = options->now_ns;
    g->stall_ns =
        g->begin_ns + (options->stall_ns ? options->stall_ns : GATHER_STALL_MS * NS_PER_MS);
    g->deadline_ns = g->begin_ns +
                     (options->deadline_ns ? options->deadline_ns : GATHER_DEADLINE_MS * NS_PER_MS);
    *ret_gather = g;
    return 0;
}

void gather_free(struct gather *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n; i++)
        buffer_release(&g->nodes[i].body);
    free(g->nodes);
    query_result_free(g->result);
    query_free(g->query);
    free(g);
}

/* ---- nodes ---- */

static size_t place_of(const struct gather *g, const char *id, bool *ret_found)
{
    size_t low = 0, high = g->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = memcmp(g->nodes[middle].id, id, SUBJECT_ID_CHARS);
        *ret_found = order == 0;
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_found = false;
    return low;
}

static struct gather_node *node_find(struct gather *g, const char *id)
{
    bool found;
    size_t at = place_of(g, id, &found);
    return found ? &g->nodes[at] : NULL;
}

static void state_set(struct gather *g, struct gather_node *node, enum gather_state state,
                      const char *why)
{
    g->counts[node->state]--;
    g->counts[state]++;
    node->state = state;
    snprintf(node->why, sizeof(node->why), "%s", why);
}

int gather_expect(struct gather *g, const struct member *member, uint64_t now_ns)
{
    bool found;
    size_t at = place_of(g, member->id, &found);
    if (found)
        return 0;
    if (g->n == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 16;
        void *nodes = realloc(g->nodes, cap * sizeof(*g->nodes));
        if (!nodes)
            return -ENOMEM;
        g->nodes = nodes;
        g->cap = cap;
    }
    memmove(&g->nodes[at + 1], &g->nodes[at], (g->n - at) * sizeof(*g->nodes));
    g->n++;
    struct gather_node *node = &g->nodes[at];
    *node = (struct gather_node){.clock_offset_ns = member->clock_offset_ns};
    memcpy(node->id, member->id, sizeof(node->id));
    memcpy(node->version, member->version, sizeof(node->version));
    member_label(member, node->label);
    buffer_init(&node->body, GATHER_REPLY_MAX);
    g->counts[GATHER_WAITING]++;
    if (member->state == MEMBER_UNREACHABLE) {
        char why[64];
        snprintf(why, sizeof(why), "unreachable for %llu s",
                 (unsigned long long)((now_ns - member->since_ns) / NS_PER_S));
        state_set(g, node, GATHER_MISSING, why);
    }
    return 0;
}

void gather_sent(struct gather *g, uint64_t now_ns)
{
    uint64_t late_ns = now_ns > g->sent_ns ? now_ns - g->sent_ns : 0;
    g->sent_ns += late_ns;
    g->stall_ns += late_ns;
    g->deadline_ns += late_ns;
}

/* ---- what comes ---- */

bool gather_ack(struct gather *g, const char *id)
{
    struct gather_node *node = node_find(g, id);
    if (!node || (node->state != GATHER_WAITING && node->state != GATHER_MISSING))
        return false;
    state_set(g, node, GATHER_WORKING, "");
    return true;
}

static bool is_open(const struct gather_node *node)
{
    return node->state == GATHER_WAITING || node->state == GATHER_WORKING ||
           (node->state == GATHER_MISSING && !node->rejected);
}

static bool reject(struct gather *g, struct gather_node *node, const char *why)
{
    node->rejected = true;
    buffer_release(&node->body);
    state_set(g, node, GATHER_MISSING, why);
    return true;
}

/* The answer is whole. */
static bool take(struct gather *g, struct gather_node *node, const void *bytes, size_t len,
                 uint64_t now_ns)
{
    int r = 0;
    if (g->query)
        r = query_partial_read_from(
            g->result, bytes, len,
            &(struct query_partial_from){.node = node->label, .ret_missing = &node->lacks});
    if (r < 0)
        return reject(g, node,
                      r == -ENOMEM ? "no memory for its answer" : "its answer was invalid");
    node->took_ns = now_ns - g->begin_ns;
    g->last_ns = now_ns;
    state_set(g, node, GATHER_ANSWERED, "");
    return true;
}

bool gather_reply(struct gather *g, const char *id, const struct message_reply *reply,
                  uint64_t now_ns)
{
    struct gather_node *node = node_find(g, id);
    if (!node || !is_open(node))
        return false;
    if (reply->parts == 1 && g->query)
        return take(g, node, reply->body, reply->body_len, now_ns);
    /* Messages of one sender keep their order. */
    if (reply->part != node->parts_got)
        return reject(g, node, "its answer was invalid");
    if (buffer_append(&node->body, reply->body, reply->body_len) < 0)
        return reject(g, node, "its answer was too large");
    node->parts_got++;
    if (node->parts_got < reply->parts) {
        if (node->state != GATHER_WORKING)
            state_set(g, node, GATHER_WORKING, "");
        return true;
    }
    bool taken = take(g, node, buffer_string(&node->body), node->body.len, now_ns);
    if (g->query)
        buffer_release(&node->body);
    return taken;
}

bool gather_refuse(struct gather *g, const char *id, const char *reason)
{
    struct gather_node *node = node_find(g, id);
    if (!node || !is_open(node))
        return false;
    state_set(g, node, GATHER_REFUSED, reason);
    return true;
}

void gather_unsent(struct gather *g, const char *self, const char *why)
{
    for (size_t i = 0; i < g->n; i++)
        if (strcmp(g->nodes[i].id, self) != 0 && g->nodes[i].state == GATHER_WAITING)
            state_set(g, &g->nodes[i], GATHER_MISSING, why);
}

/* ---- time ---- */

static void give_up(struct gather *g, enum gather_state state, const char *why)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->nodes[i].state == state)
            state_set(g, &g->nodes[i], GATHER_MISSING, why);
}

static uint64_t stall_of(const struct gather *g)
{
    size_t waiting = g->counts[GATHER_WAITING];
    bool congested = waiting > GATHER_CROWD && waiting > g->n / 100;
    uint64_t pause_ms = congested ? GATHER_STALL_MS : GATHER_FLOW_MS;
    uint64_t flow_ns = g->last_ns ? g->last_ns + pause_ms * NS_PER_MS : 0;
    uint64_t least_ns = congested ? g->sent_ns + GATHER_CROWD_MS * NS_PER_MS : g->stall_ns;
    uint64_t stall_ns = flow_ns > least_ns ? flow_ns : least_ns;
    return stall_ns < g->deadline_ns ? stall_ns : g->deadline_ns;
}

bool gather_tick(struct gather *g, uint64_t now_ns, uint64_t *ret_next_ns)
{
    if (g->counts[GATHER_WAITING] && now_ns >= stall_of(g))
        give_up(g, GATHER_WAITING, "no sign of life");
    if (g->counts[GATHER_WORKING] && now_ns >= g->deadline_ns)
        give_up(g, GATHER_WORKING, "not ready in time");
    if (!g->counts[GATHER_WAITING] && !g->counts[GATHER_WORKING]) {
        g->end_ns = now_ns > g->last_ns ? now_ns : g->last_ns;
        return true;
    }
    *ret_next_ns = g->counts[GATHER_WAITING] ? stall_of(g) : g->deadline_ns;
    return false;
}

/* ---- the whole ---- */

const struct message_nonce *gather_nonce(const struct gather *g)
{
    return &g->nonce;
}

const struct gather_node *gather_nodes(const struct gather *g, size_t *ret_n)
{
    *ret_n = g->n;
    return g->nodes;
}

size_t gather_answered(const struct gather *g)
{
    return g->counts[GATHER_ANSWERED];
}

int gather_finish(struct gather *g)
{
    return g->result ? query_result_finish(g->result) : 0;
}

const struct query *gather_query(const struct gather *g)
{
    return g->query;
}

struct query_result *gather_result(struct gather *g)
{
    return g->result;
}

const struct buffer *gather_body(const struct gather *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->nodes[i].state == GATHER_ANSWERED)
            return &g->nodes[i].body;
    return NULL;
}

static void missing_json(const struct gather *g, struct json *json)
{
    json_key(json, "missing");
    json_array_begin(json);
    for (size_t i = 0; i < g->n; i++) {
        const struct gather_node *node = &g->nodes[i];
        if (node->state == GATHER_ANSWERED)
            continue;
        json_object_begin(json);
        json_field_string(json, "node", node->label);
        json_field_string(json, "id", node->id);
        json_field_bool(json, "refused", node->state == GATHER_REFUSED);
        json_field_string(json, "why", node->why);
        json_object_end(json);
    }
    json_array_end(json);
}

static void lacking_json(const struct gather *g, struct json *json)
{
    json_key(json, "lacking");
    json_array_begin(json);
    for (size_t i = 0; i < g->n && g->query; i++) {
        const struct gather_node *node = &g->nodes[i];
        if (!node->lacks)
            continue;
        json_object_begin(json);
        json_field_string(json, "node", node->label);
        json_field_string(json, "version", node->version);
        json_key(json, "columns");
        json_array_begin(json);
        for (size_t o = 0; o < query_outputs(g->query); o++)
            if (node->lacks >> o & 1)
                json_string(json, query_output(g->query, o)->name);
        json_array_end(json);
        json_object_end(json);
    }
    json_array_end(json);
}

static void clocks_json(const struct gather *g, struct json *json)
{
    json_key(json, "clocks");
    json_array_begin(json);
    for (size_t i = 0; i < g->n; i++) {
        const struct gather_node *node = &g->nodes[i];
        int64_t offset = node->clock_offset_ns;
        if (offset < MEMBER_CLOCK_SHOWN_MS * (int64_t)NS_PER_MS &&
            offset > -MEMBER_CLOCK_SHOWN_MS * (int64_t)NS_PER_MS)
            continue;
        json_object_begin(json);
        json_field_string(json, "node", node->label);
        json_field_double(json, "clock_offset", (double)(offset / (int64_t)NS_PER_MS) / 1000);
        json_object_end(json);
    }
    json_array_end(json);
}

void gather_json(const struct gather *g, struct json *json)
{
    json_object_begin(json);
    json_field_u64(json, "expected", g->n);
    json_field_u64(json, "answered", g->counts[GATHER_ANSWERED]);
    missing_json(g, json);
    lacking_json(g, json);
    clocks_json(g, json);
    uint64_t took_ns = g->end_ns > g->begin_ns ? g->end_ns - g->begin_ns : 0;
    json_field_double(json, "took", (double)(took_ns / 1000) / 1e6);
    json_object_end(json);
}
