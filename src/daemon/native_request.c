/* The keys of a message are a table; what a key means for which request is one bit each, since JSON objects
 * have no order: whether a key belongs to the request is known at the end of the line. */
#include "daemon/native_request.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/native_request_internal.h"
#include "daemon/native_words.h"

/* ---- errors ---- */

void native_error_set(struct native_error *error, const char *code, const char *fmt, ...)
{
    *error = (struct native_error){.code = code, .at = -1, .len = -1, .index = -1};
    va_list args;
    va_start(args, fmt);
    vsnprintf(error->message, sizeof(error->message), fmt, args);
    va_end(args);
}

void native_error_write(const struct native_error *error, const struct native_request *request,
                        struct json *json)
{
    json_object_begin(json);
    json_key(json, "error");
    json_object_begin(json);
    json_field_string(json, "code", error->code);
    json_field_string(json, "message", error->message);
    if (error->part)
        json_field_string(json, "part", error->part);
    if (error->at >= 0)
        json_field_i64(json, "at", error->at);
    if (error->len >= 0)
        json_field_i64(json, "length", error->len);
    if (error->index >= 0)
        json_field_i64(json, "index", error->index);
    json_object_end(json);
    if (request->has_seq)
        json_field_u64(json, "seq", request->seq);
    if (request->id) {
        json_key(json, "id");
        json_raw(json, request->id, request->id_len);
    }
    json_object_end(json);
}

/* ---- values ---- */

/* Text into a field; one that is too long is cut at a character where `cut`, else an error. */
static bool take_text(struct parse *p, char *to, size_t size, bool cut)
{
    struct json_text text;
    if (!json_read_string(&p->r, &text))
        return false;
    int64_t len = json_text_copy(&text, to, size);
    if (len == -EINVAL)
        return parse_fail(p, "NUL in a text");
    if (len == -ENOBUFS && !cut)
        return parse_fail(p, "text too long");
    if (len == -ENOBUFS)
        native_text_cut(&text, to, size);
    return true;
}

/* The bytes of a number or a short string, to be sent back as they are. */
static bool take_echo(struct parse *p, const char **ret_data, size_t *ret_len)
{
    enum json_type type = json_read_peek(&p->r);
    const char *begin = p->r.at;
    if (type != JSON_STRING && type != JSON_NUMBER)
        return parse_fail(p, "expected a number or a string");
    if (!json_read_skip(&p->r))
        return false;
    if (p->r.at - begin > NATIVE_ID_MAX + 2)
        return parse_fail(p, "more than 64 bytes");
    *ret_data = begin;
    *ret_len = (size_t)(p->r.at - begin);
    return true;
}

/* ---- the parts of other requests ---- */

static bool take_capacity(struct parse *p)
{
    struct native_device *device = &p->request->device;
    struct json_text key;
    enum { MAX = sizeof(device->capacity) / sizeof(*device->capacity) };
    if (!json_read_object(&p->r))
        return false;
    while (json_read_key(&p->r, &key)) {
        uint32_t space = native_space(&key);
        uint64_t bytes;
        if (space < MEMOIR_SPACE_DRAM)
            return parse_fail(
                p, "a capacity belongs to a device's space: dram, l1, l1_small, trace, cb, kernel "
                   "or system");
        if (device->n_capacity == MAX)
            return parse_fail(p, "too many capacities");
        if (!json_read_u64(&p->r, &bytes))
            return false;
        device->capacity[device->n_capacity++] =
            (struct memoir_capacity){.space = (int)space, .bytes = bytes};
    }
    return !p->r.error;
}

static bool take_ordinal(struct parse *p)
{
    int64_t ordinal;
    if (!json_read_i64(&p->r, &ordinal))
        return false;
    if (ordinal < 0 || ordinal > INT32_MAX)
        return parse_fail(p, "expected a number from 0 to 2^31-1");
    p->request->device.ordinal = (int32_t)ordinal;
    p->request->device.has_ordinal = true;
    return true;
}

static bool take_device_kind(struct parse *p)
{
    struct json_text text;
    if (!json_read_string(&p->r, &text))
        return false;
    int kind = native_device_kind(&text);
    p->request->device.kind = (uint32_t)kind;
    return kind >= 0 || parse_fail(p, "expected gpu, npu, fpga, simulated or other");
}

/* "a,b" or ["a","b"]. */
static bool take_list(struct parse *p, char *to, size_t size)
{
    size_t len = 0;
    if (json_read_peek(&p->r) != JSON_ARRAY)
        return take_text(p, to, size, false);
    json_read_array(&p->r);
    while (json_read_item(&p->r)) {
        if (len > 0 && len + 1 < size)
            to[len++] = ',';
        if (!take_text(p, to + len, size - len, false))
            return false;
        len += strlen(to + len);
    }
    return !p->r.error;
}

static bool take_scope(struct parse *p)
{
    struct json_text text;
    if (!json_read_string(&p->r, &text))
        return false;
    p->request->query.cluster = json_text_is(&text, "cluster");
    return p->request->query.cluster || json_text_is(&text, "node") ||
           parse_fail(p, "expected node or cluster");
}

static bool take_query(struct parse *p)
{
    struct native_query *query = &p->request->query;
    const struct {
        const char *name;
        char *to;
        bool list;
        size_t size; /* 0: NATIVE_QUERY_PART_MAX and a NUL */
    } members[] = {
        {"by", query->by, true},
        {"show", query->show, true},
        {"sort", query->sort, true},
        {"where", query->where, false},
        {"table", query->table, false, sizeof(query->table)},
        {"node", query->node, false, sizeof(query->node)},
        {"token", query->token, false, sizeof(query->token)},
    };
    enum { N = sizeof(members) / sizeof(*members) };
    struct json_text key;
    if (!json_read_object(&p->r))
        return false;
    while (json_read_key(&p->r, &key)) {
        size_t i = 0;
        while (i < N && !json_text_is(&key, members[i].name))
            i++;
        size_t size = i < N && members[i].size ? members[i].size : NATIVE_QUERY_PART_MAX + 1;
        if (i < N && (members[i].list ? take_list(p, members[i].to, size)
                                      : take_text(p, members[i].to, size, false)))
            continue;
        if (i < N)
            return false;
        if (json_text_is(&key, "scope")) {
            if (!take_scope(p))
                return false;
            continue;
        }
        if (json_text_is(&key, "partial")) {
            if (!json_read_bool(&p->r, &query->partial))
                return false;
            continue;
        }
        uint64_t *second = json_text_is(&key, "since")   ? &query->since_s
                           : json_text_is(&key, "until") ? &query->until_s
                           : json_text_is(&key, "step")  ? &query->step_s
                                                         : NULL;
        if (second) {
            if (!json_read_u64(&p->r, second))
                return false;
            continue;
        }
        if (!json_text_is(&key, "limit"))
            return parse_fail(
                p,
                "a query has table, by, where, show, sort, limit, partial, scope, node, token, since, until and step");
        if (!json_read_u64(&p->r, &query->limit))
            return false;
    }
    return !p->r.error;
}

static bool take_call(struct parse *p)
{
    struct native_call *call = &p->request->call;
    const struct {
        const char *name;
        char *to;
        size_t size;
    } members[] = {
        {"node", call->node, sizeof(call->node)},
        {"token", call->token, sizeof(call->token)},
        {"method", call->method, sizeof(call->method)},
        {"target", call->target, sizeof(call->target)},
        {"body", call->body, sizeof(call->body)},
    };
    enum { N = sizeof(members) / sizeof(*members) };
    struct json_text key;
    if (!json_read_object(&p->r))
        return false;
    while (json_read_key(&p->r, &key)) {
        size_t i = 0;
        while (i < N && !json_text_is(&key, members[i].name))
            i++;
        if (i == N)
            return parse_fail(p, "a call has node, method, target, body and token");
        if (!take_text(p, members[i].to, members[i].size, false))
            return false;
    }
    if (!p->r.error && (!call->node[0] || call->target[0] != '/'))
        return parse_fail(p, "a call needs a node, and a target that begins with /");
    return !p->r.error;
}

static bool take_topics(struct parse *p)
{
    struct json_text text;
    if (!json_read_array(&p->r))
        return false;
    while (json_read_item(&p->r)) {
        if (!json_read_string(&p->r, &text))
            return false;
        uint32_t topic = native_topic(&text);
        if (!topic)
            return parse_fail(p, "expected processes, devices or reports");
        p->request->topics |= topic;
    }
    return !p->r.error && (p->request->topics != 0 || parse_fail(p, "nothing to subscribe to"));
}

static bool take_interval(struct parse *p)
{
    if (!json_read_u64(&p->r, &p->request->interval_ms))
        return false;
    return (p->request->interval_ms >= NATIVE_INTERVAL_MS_MIN &&
            p->request->interval_ms <= NATIVE_INTERVAL_MS_MAX) ||
           parse_fail(p, "an interval is 10 to 3600000 ms");
}

static bool take_session(struct parse *p)
{
    struct json_text text;
    p->request->hello.has_session = true;
    if (!json_read_string(&p->r, &text))
        return false;
    if (text.len != NATIVE_SESSION_CHARS || text.escaped)
        return parse_fail(p, "a session has 32 hex digits");
    for (size_t i = 0; i < text.len; i++)
        if (!strchr("0123456789abcdef", text.data[i]))
            return parse_fail(p, "a session has 32 hex digits");
    memcpy(p->request->hello.session, text.data, text.len);
    return true;
}

static bool take_pid(struct parse *p)
{
    p->request->has_pid = true;
    if (!json_read_u64(&p->r, &p->request->pid))
        return false;
    return (p->request->pid > 0 && p->request->pid <= INT32_MAX) ||
           parse_fail(p, "no process has such a pid");
}

static bool take_seq(struct parse *p)
{
    if (!json_read_u64(&p->r, &p->request->seq))
        return false;
    p->request->has_seq = true;
    return p->request->seq > 0 || parse_fail(p, "the first seq is 1");
}

static bool take_number(struct parse *p)
{
    int16_t number = -1; /* gcc cannot see that parse_device() sets it */
    if (!parse_device(p, &number))
        return false;
    p->request->device.number = (uint32_t)number;
    return number >= 0 || parse_fail(p, "expected the device's number, 0 to 255");
}

static bool take_ping(struct parse *p)
{
    return take_echo(p, &p->request->ping, &p->request->ping_len);
}

static bool take_request_id(struct parse *p)
{
    return take_echo(p, &p->request->id, &p->request->id_len);
}

static bool take_true(struct parse *p)
{
    bool yes = false;
    return json_read_bool(&p->r, &yes) && (yes || parse_fail(p, "expected true"));
}

static bool take_login(struct parse *p)
{
    struct json_text text;
    if (!json_read_string(&p->r, &text))
        return false;
    p->request->login_control = json_text_is(&text, "control");
    return p->request->login_control || json_text_is(&text, "read") ||
           parse_fail(p, "expected read or control");
}

/* A PID, or "list". */
static bool take_trace(struct parse *p)
{
    struct json_text text;
    if (json_read_peek(&p->r) != JSON_STRING)
        return take_pid(p);
    return json_read_string(&p->r, &text) &&
           (json_text_is(&text, "list") || parse_fail(p, "expected a pid or \"list\""));
}

static bool take_cluster(struct parse *p)
{
    struct json_text text;
    if (!json_read_string(&p->r, &text))
        return false;
    p->request->cluster_reload = json_text_is(&text, "reload");
    return p->request->cluster_reload || json_text_is(&text, "status") ||
           parse_fail(p, "expected status or reload");
}

static bool take_version(struct parse *p)
{
    return json_read_u64(&p->r, &p->request->hello.version);
}

static bool take_ack(struct parse *p)
{
    return json_read_bool(&p->r, &p->request->ack);
}

#define TAKE_TEXT(name, field, cut)                                             \
    static bool name(struct parse *p)                                           \
    {                                                                           \
        return take_text(p, p->request->field, sizeof(p->request->field), cut); \
    }
TAKE_TEXT(take_token_text, hello.token, false)
TAKE_TEXT(take_host, hello.host, true)
TAKE_TEXT(take_program, hello.program, true)
TAKE_TEXT(take_command, hello.command, true)
TAKE_TEXT(take_name, device.name, true)
TAKE_TEXT(take_uid, device.uid, true)
TAKE_TEXT(take_bus, device.bus, true)

static bool take_token(struct parse *p)
{
    p->request->hello.has_token = true;
    return take_token_text(p);
}

static bool take_alloc(struct parse *p)
{
    return parse_report(p, NATIVE_ALLOC);
}

static bool take_free(struct parse *p)
{
    return parse_report(p, NATIVE_FREE);
}

static bool take_realloc(struct parse *p)
{
    return parse_report(p, NATIVE_REALLOC);
}

static bool take_transfer(struct parse *p)
{
    return parse_report(p, NATIVE_TRANSFER);
}

/* ---- a message ---- */

#define OF(kind) (1u << (kind))
#define OF_ALL   (~0u)

static const struct {
    const char *name;
    bool (*take)(struct parse *p);
    enum native_kind names; /* the request that this key asks for, or NATIVE_NONE */
    unsigned of;            /* the requests that may have it */
} keys[] = {
    {"report", parse_reports, NATIVE_REPORT, 0},
    {"seq", take_seq, NATIVE_NONE, OF(NATIVE_REPORT) | OF(NATIVE_RESET)},
    {"ack", take_ack, NATIVE_NONE, OF(NATIVE_REPORT) | OF(NATIVE_RESET)},
    {"id", take_request_id, NATIVE_NONE, OF_ALL},
    {"alloc", take_alloc, NATIVE_REPORT, 0},
    {"free", take_free, NATIVE_REPORT, 0},
    {"realloc", take_realloc, NATIVE_REPORT, 0},
    {"transfer", take_transfer, NATIVE_REPORT, 0},
    {"reset", take_true, NATIVE_RESET, 0},
    {"query", take_query, NATIVE_QUERY, 0},
    {"ping", take_ping, NATIVE_PING, 0},
    {"device", take_number, NATIVE_DEVICE, 0},
    {"kind", take_device_kind, NATIVE_NONE, OF(NATIVE_DEVICE)},
    {"ordinal", take_ordinal, NATIVE_NONE, OF(NATIVE_DEVICE)},
    {"name", take_name, NATIVE_NONE, OF(NATIVE_DEVICE)},
    {"uid", take_uid, NATIVE_NONE, OF(NATIVE_DEVICE)},
    {"bus", take_bus, NATIVE_NONE, OF(NATIVE_DEVICE)},
    {"capacity", take_capacity, NATIVE_NONE, OF(NATIVE_DEVICE)},
    {"hello", take_version, NATIVE_HELLO, 0},
    {"session", take_session, NATIVE_NONE, OF(NATIVE_HELLO)},
    {"token", take_token, NATIVE_NONE, OF(NATIVE_HELLO)},
    {"host", take_host, NATIVE_NONE, OF(NATIVE_HELLO)},
    {"program", take_program, NATIVE_NONE, OF(NATIVE_HELLO)},
    {"command", take_command, NATIVE_NONE, OF(NATIVE_HELLO)},
    {"pid", take_pid, NATIVE_NONE, OF(NATIVE_HELLO) | OF(NATIVE_SUBSCRIBE)},
    {"subscribe", take_topics, NATIVE_SUBSCRIBE, 0},
    {"interval_ms", take_interval, NATIVE_NONE, OF(NATIVE_SUBSCRIBE)},
    {"unsubscribe", take_true, NATIVE_UNSUBSCRIBE, 0},
    {"login", take_login, NATIVE_LOGIN, 0},
    {"trace", take_trace, NATIVE_TRACE, 0},
    {"cluster", take_cluster, NATIVE_CLUSTER, 0},
    {"call", take_call, NATIVE_CALL, 0},
};
enum { N_KEYS = sizeof(keys) / sizeof(*keys) };

static const char request_names[] =
    "hello, device, alloc, free, realloc, transfer, report, query, subscribe, "
    "unsubscribe, login, trace, cluster, call or ping";

static int refuse_key(const struct json_text *key, const char *what, struct native_error *ret_error)
{
    native_error_set(ret_error, "bad-request", what,
                     (int)(key->len < NATIVE_ID_MAX ? key->len : NATIVE_ID_MAX), key->data);
    return -EINVAL;
}

/* The fault that the reader found, with the place. */
static int refuse_value(const struct parse *p, const char *key, struct native_error *ret_error)
{
    const char *what = json_read_error(&p->r);
    if (p->out_of_memory) {
        native_error_set(ret_error, "internal", "out of memory, try again later");
        return -ENOMEM;
    }
    if (p->in_report && p->n_reports > 0) {
        native_error_set(ret_error, "bad-report", "report %zu: %s (byte %zu); none was applied",
                         p->n_reports - 1, what, json_read_where(&p->r));
        ret_error->index = (int64_t)p->n_reports - 1;
    } else if (key) {
        native_error_set(ret_error, "bad-request", "'%s': %s (byte %zu)", key, what,
                         json_read_where(&p->r));
    } else {
        native_error_set(ret_error, "bad-json", "%s at byte %zu: send one JSON object on each line",
                         what, json_read_where(&p->r));
    }
    ret_error->at = (int64_t)json_read_where(&p->r);
    return -EBADMSG;
}

/* One request, and no keys of another. */
static int check_keys(const struct parse *p, struct native_error *ret_error)
{
    size_t named = N_KEYS;
    for (size_t i = 0; i < N_KEYS; i++) {
        if (!(p->keys >> i & 1) || keys[i].names == NATIVE_NONE)
            continue;
        if (named < N_KEYS) {
            native_error_set(ret_error, "bad-request",
                             "both '%s' and '%s': send one request on each line", keys[named].name,
                             keys[i].name);
            return -EINVAL;
        }
        named = i;
    }
    if (named == N_KEYS) {
        native_error_set(ret_error, "bad-request", "no request: expected %s", request_names);
        return -EINVAL;
    }
    p->request->kind = keys[named].names;
    for (size_t i = 0; i < N_KEYS; i++)
        if ((p->keys >> i & 1) && i != named && !(keys[i].of & OF(p->request->kind))) {
            native_error_set(ret_error, "bad-request", "'%s' does not belong to '%s'", keys[i].name,
                             keys[named].name);
            return -EINVAL;
        }
    return 0;
}

/* Only what may be looked at without its key is cleared: the parts of a query are large. */
static void request_clear(struct native_request *request)
{
    struct native_query *q = &request->query;
    q->table[0] = q->by[0] = q->where[0] = q->show[0] = q->sort[0] = '\0';
    q->limit = 0;
    q->partial = q->cluster = false;
    q->since_s = q->until_s = q->step_s = 0;
    q->node[0] = q->token[0] = '\0';
    struct native_call *c = &request->call;
    c->node[0] = c->token[0] = c->method[0] = c->target[0] = c->body[0] = '\0';
    memset(&request->hello, 0, sizeof(request->hello));
    memset(&request->device, 0, sizeof(request->device));
    request->kind = NATIVE_NONE;
    request->id = request->ping = NULL;
    request->has_pid = request->has_seq = request->ack = request->login_control = false;
    request->cluster_reload = false;
    request->pid = request->seq = 0;
    request->topics = 0;
    request->interval_ms = NATIVE_INTERVAL_MS;
    request->reports = NULL;
    request->n_reports = 0;
}

int native_parse(struct native_parser *parser, const char *line, size_t len,
                 struct native_error *ret_error)
{
    struct parse p = {.parser = parser, .request = &parser->request};
    struct json_text key;
    request_clear(p.request);
    json_read_init(&p.r, line, len);
    json_read_object(&p.r);
    while (json_read_key(&p.r, &key)) {
        size_t i = 0;
        while (i < N_KEYS && !json_text_is(&key, keys[i].name))
            i++;
        if (i == N_KEYS)
            return refuse_key(&key, "unknown key '%.*s'", ret_error);
        if (p.keys >> i & 1)
            return refuse_key(&key, "'%.*s' is there twice", ret_error);
        p.keys |= UINT64_C(1) << i;
        if (!keys[i].take(&p))
            return refuse_value(&p, keys[i].name, ret_error);
    }
    if (json_read_finish(&p.r) < 0)
        return refuse_value(&p, NULL, ret_error);
    p.request->reports = parser->reports;
    p.request->n_reports = p.n_reports;
    return check_keys(&p, ret_error);
}

void native_parser_release(struct native_parser *parser)
{
    free(parser->reports);
    *parser = (struct native_parser){0};
}
