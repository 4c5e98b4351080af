/* Devices and reports of a native client go into its book.
 *
 * A message is looked at whole before any of it is applied; what its book then refuses (a limit) is counted
 * there and told once a message. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/behalf.h"
#include "daemon/daemon.h"
#include "daemon/native_internal.h"
#include "daemon/native_words.h"
#include "daemon/server.h"

/* ---- the book ---- */

/* uid 65534: who answers for remote clients whose token names no user. */
enum { UID_NOBODY = 65534 };

static struct behalf_subject subject_of(const struct native_client *client)
{
    const struct native_identity *identity = client->identity;
    if (!identity)
        return (struct behalf_subject){.source = BOOK_SOURCE_SOCKET,
                                       .pid = client->pid,
                                       .start_ticks = client->start_ticks,
                                       .speaker = conn_peer(client->conn)->uid};
    uint32_t owner = client->viewer_uid == UINT32_MAX ? UID_NOBODY : client->viewer_uid;
    return (struct behalf_subject){
        .source = BOOK_SOURCE_SOCKET,
        .pid = client->pid,
        .host = identity->host,
        .token = identity->token,
        .uid = geteuid() == 0 ? owner : geteuid(),
        .start_ticks = client->session, /* so that resuming finds it, and nothing else does */
        .comm = identity->program[0] ? identity->program : NULL,
        .command = identity->command[0] ? identity->command : NULL,
    };
}

void native_book_drop(struct native_client *client)
{
    behalf_unref(client->behalf);
    client->behalf = NULL;
    free(client->bindings);
    client->bindings = NULL;
    client->n_bindings = 0;
}

static void refuse_book(struct native_client *client, int r)
{
    struct native_error error;
    if (r == -ESRCH)
        native_error_set(&error, "forbidden", "PID %d is gone", (int)client->pid);
    else if (r == -EPERM)
        native_error_set(
            &error, "forbidden",
            "PID %d is not yours (any more), or this memoird belongs to another user and "
            "writes only for processes of that user",
            (int)client->pid);
    else if (r == -EDQUOT)
        native_error_set(&error, "limit", "too many books: see books-max and books-per-user-max");
    else if (r == -EBUSY)
        native_error_set(&error, "internal",
                         "the book of PID %d cannot be taken over yet: try again later",
                         (int)client->pid);
    else
        native_error_set(&error, "internal", "no book could be made: %s", strerror(-r));
    native_refuse(client, &error);
}

bool native_book(struct native_client *client)
{
    if (client->behalf && behalf_alive(client->behalf))
        return true;
    native_book_drop(client); /* numbers of devices were those of the old one */
    struct behalf_subject subject = subject_of(client);
    bool unknown = !client->remote && client->start_ticks == 0;
    int r = unknown ? -ESRCH : behalf_get(client->native->daemon, &subject, &client->behalf);
    if (r < 0)
        refuse_book(client, r);
    return r >= 0;
}

/* Room for a device's number; [0] is the host's. */
static struct native_binding *binding_make(struct native_client *client, size_t index)
{
    if (index >= client->n_bindings) {
        size_t n = index + 1;
        struct native_binding *more = realloc(client->bindings, n * sizeof(*more));
        if (!more)
            return NULL;
        memset(more + client->n_bindings, 0, (n - client->n_bindings) * sizeof(*more));
        client->bindings = more;
        client->n_bindings = n;
        more[0].declared = true;
    }
    return &client->bindings[index];
}

/* ---- devices ---- */

void native_device(struct native_client *client)
{
    const struct native_device *device = &client->native->parser.request.device;
    struct native_error error;
    struct json json;
    if (!native_book(client))
        return;
    struct native_binding *binding = binding_make(client, device->number + 1);
    int number = binding
                     ? behalf_device(client->behalf,
                                     &(struct behalf_device){
                                         .kind = device->kind,
                                         .ordinal = device->has_ordinal ? device->ordinal
                                                                        : (int32_t)device->number,
                                         .name = device->name,
                                         .uid = device->uid,
                                         .bus = device->bus,
                                         .capacity = device->capacity,
                                         .n_capacity = device->n_capacity,
                                     })
                     : -ENOMEM;
    if (number < 0) {
        native_error_set(&error, number == -ENOSPC ? "limit" : "internal",
                         number == -ENOSPC ? "a book has room for %d devices"
                                           : "out of memory for device %d, try again later",
                         number == -ENOSPC ? BEHALF_DEVICES_MAX : (int)device->number);
        native_refuse(client, &error);
        return;
    }
    *binding = (struct native_binding){.declared = true, .device = (uint16_t)number};
    native_answer_begin(client->native, &json);
    json_field_u64(&json, "device", device->number);
    native_answer_end(client, &json);
}

/* ---- reports ---- */

struct apply {
    struct native_client *client;
    struct json_text tag_text; /* the last tag, and its number in the book */
    uint32_t tag;
    size_t refused; /* reports that the book had no room for, */
    size_t first;   /* the first of them, */
    int why;        /* and -errno */
};

static bool same_text(const struct json_text *a, const struct json_text *b)
{
    return a->len == b->len && (a->data == b->data || memcmp(a->data, b->data, a->len) == 0);
}

static uint32_t tag_number(struct apply *apply, const struct json_text *text)
{
    char name[NATIVE_TAG_MAX + 1];
    if (!text->data || text->len == 0)
        return 0;
    if (apply->tag_text.data && same_text(text, &apply->tag_text))
        return apply->tag;
    native_text_cut(text, name, sizeof(name));
    apply->tag_text = *text;
    apply->tag = behalf_tag(apply->client->behalf, name);
    return apply->tag;
}

/* The account of a place that check_places() has let pass, or -errno. */
static inline int account_of(struct native_client *client, const struct native_place *place)
{
    struct native_binding *binding = &client->bindings[place->device + 1];
    int account = binding->accounts[place->space];
    if (account > 0)
        return account;
    account = behalf_account(client->behalf, binding->device, place->space);
    if (account > 0)
        binding->accounts[place->space] = (uint16_t)account;
    return account;
}

static int apply_alloc(struct apply *apply, const struct native_report *report)
{
    int account = account_of(apply->client, &report->at);
    if (account < 0)
        return account;
    return behalf_alloc(apply->client->behalf, (uint32_t)account, report->at.id, report->bytes,
                        tag_number(apply, &report->tag));
}

static int apply_free(struct apply *apply, const struct native_place *place)
{
    int account = account_of(apply->client, place);
    if (account < 0)
        return account;
    int r = behalf_free(apply->client->behalf, (uint32_t)account, place->id, NULL);
    return r == -ENOENT ? 0 : r; /* counted as "unknown free" */
}

static int apply_moved(struct apply *apply, const struct native_report *report, bool into)
{
    const struct native_place *place = into ? &report->at : &report->from;
    int account = account_of(apply->client, place);
    if (account < 0)
        return account;
    int r =
        behalf_transfer(apply->client->behalf, (uint32_t)account, place->id, report->bytes, into);
    return r == -ENOENT ? 0 : r;
}

static int apply_one(struct apply *apply, const struct native_report *report)
{
    int r;
    switch (report->op) {
    case NATIVE_ALLOC:
        return apply_alloc(apply, report);
    case NATIVE_FREE:
        return apply_free(apply, &report->at);
    case NATIVE_REALLOC:
        r = apply_free(apply, &report->from);
        return r < 0 ? r : apply_alloc(apply, report);
    default:
        r = apply_moved(apply, report, false);
        return r < 0 ? r : apply_moved(apply, report, true);
    }
}

static bool declared(const struct native_client *client, const struct native_place *place)
{
    size_t index = (size_t)(place->device + 1);
    return index < client->n_bindings && client->bindings[index].declared;
}

/* Every place must be one that the client told of. */
static bool check_places(struct native_client *client, const struct native_request *request)
{
    struct native_error error;
    if (!binding_make(client, 0)) {
        native_error_set(&error, "internal", "out of memory, try again later");
        native_refuse(client, &error);
        return false;
    }
    for (size_t i = 0; i < request->n_reports; i++) {
        const struct native_report *report = &request->reports[i];
        const struct native_place *bad = !declared(client, &report->at)     ? &report->at
                                         : !declared(client, &report->from) ? &report->from
                                                                            : NULL;
        if (!bad)
            continue;
        native_error_set(&error, "bad-report",
                         "report %zu: device %d was not declared on this connection: send "
                         "{\"device\":%d} first; none was applied",
                         i, bad->device, bad->device);
        error.index = (int64_t)i;
        native_refuse(client, &error);
        return false;
    }
    return true;
}

static void tell_refused(struct native_client *client, const struct apply *apply)
{
    struct native_error error;
    if (apply->why == -EDQUOT)
        native_error_set(&error, "limit",
                         "%zu reports were not accounted: more than buffers-per-client-max live "
                         "blocks, or 2^56 bytes in one space",
                         apply->refused);
    else if (apply->why == -ENOSPC)
        native_error_set(&error, "limit",
                         "%zu reports were not accounted: the book is full (tmpfs-size)",
                         apply->refused);
    else
        native_error_set(&error, "internal", "%zu reports were not accounted: %s", apply->refused,
                         strerror(-apply->why));
    error.index = (int64_t)apply->first;
    native_refuse(client, &error);
}

static void ack(struct native_client *client, uint64_t seq)
{
    struct json json;
    native_answer_begin(client->native, &json);
    json_field_u64(&json, "ack", seq);
    native_answer_end(client, &json);
}

/* Was this message applied before? Then it was sent again, though it had arrived. */
static bool is_repeated(struct native_client *client, const struct native_request *request)
{
    if (!request->has_seq || !client->session || request->seq > client->seq)
        return false;
    if (request->ack)
        ack(client, request->seq);
    return true;
}

static void applied(struct native_client *client, const struct native_request *request)
{
    if (request->has_seq && client->session) {
        client->seq = request->seq;
        behalf_session_applied(client->behalf, client->session, request->seq);
    }
    if (request->ack)
        ack(client, request->seq);
}

void native_report(struct native_client *client)
{
    const struct native_request *request = &client->native->parser.request;
    struct apply apply = {.client = client};
    if (!native_book(client) || is_repeated(client, request) || !check_places(client, request))
        return;
    for (size_t i = 0; i < request->n_reports; i++) {
        int r = apply_one(&apply, &request->reports[i]);
        if (r < 0 && apply.refused++ == 0) {
            apply.first = i;
            apply.why = r;
        }
    }
    client->native->daemon->server->figures.reports += request->n_reports;
    conn_spend(client->conn, request->n_reports);
    if (apply.refused > 0)
        tell_refused(client, &apply);
    applied(client, request);
}

void native_reset(struct native_client *client)
{
    const struct native_request *request = &client->native->parser.request;
    if (!native_book(client) || is_repeated(client, request))
        return;
    conn_spend(client->conn, 1 + behalf_drop(client->behalf));
    applied(client, request);
}
