/* The messages between nodes. See message.h. */
#include "cluster/message.h"

#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "base/varint.h"

/* ---- writing ---- */

static void put_head(struct buffer *out, enum message_kind kind)
{
    buffer_append(out, "MC", 2);
    varint_put(out, MESSAGE_VERSION);
    varint_put(out, kind);
}

static void put_text(struct buffer *out, const char *text)
{
    size_t len = strlen(text);
    varint_put(out, len);
    buffer_append(out, text, len);
}

static void put_bytes(struct buffer *out, const uint8_t *bytes, size_t len)
{
    varint_put(out, len);
    buffer_append(out, bytes, len);
}

static void put_nonce(struct buffer *out, const struct message_nonce *nonce)
{
    buffer_append(out, &nonce->high, sizeof(nonce->high));
    buffer_append(out, &nonce->low, sizeof(nonce->low));
}

void message_write_hello(const struct message_hello *hello, struct buffer *out)
{
    put_head(out, MESSAGE_HELLO);
    put_text(out, hello->name);
    put_text(out, hello->version);
    varint_put(out, hello->started_ns);
    varint_put(out, hello->now_ns);
    varint_put(out, hello->interval_ms);
    varint_put(out, hello->first);
    varint_put(out, hello->watch_ms);
}

void message_write_bye(struct buffer *out)
{
    put_head(out, MESSAGE_BYE);
}

static void put_rights(struct buffer *out, const struct message_rights *rights)
{
    put_text(out, rights->user ? rights->user : "");
    varint_put(out, rights->expires_ns);
    put_bytes(out, rights->key, rights->key ? MESSAGE_KEY_BYTES : 0);
    put_bytes(out, rights->mac, rights->mac ? MESSAGE_MAC_BYTES : 0);
}

void message_write_ask(const struct message_ask *ask, struct buffer *out)
{
    put_head(out, MESSAGE_ASK);
    put_nonce(out, &ask->nonce);
    varint_put(out, ask->deadline_ms);
    varint_put(out, ask->what);
    put_rights(out, &ask->rights);
    put_bytes(out, ask->body, ask->body_len);
    put_bytes(out, ask->rights.signature, ask->rights.signature ? MESSAGE_SIGNATURE_BYTES : 0);
}

void message_write_ack(const struct message_nonce *nonce, struct buffer *out)
{
    put_head(out, MESSAGE_ACK);
    put_nonce(out, nonce);
}

void message_write_reply(const struct message_reply *reply, struct buffer *out)
{
    put_head(out, MESSAGE_REPLY);
    put_nonce(out, &reply->nonce);
    varint_put(out, reply->part);
    varint_put(out, reply->parts);
    put_bytes(out, reply->body, reply->body_len);
}

void message_write_refuse(const struct message_refuse *refuse, struct buffer *out)
{
    put_head(out, MESSAGE_REFUSE);
    put_nonce(out, &refuse->nonce);
    put_text(out, refuse->reason);
}

void message_write_lost(const char *id, struct buffer *out)
{
    put_head(out, MESSAGE_LOST);
    put_text(out, id);
}

void message_ask_signed(const struct message_ask *ask, const char *asker, const char *target,
                        struct buffer *out)
{
    put_text(out, "memoir ask");
    put_text(out, asker);
    put_text(out, target);
    put_nonce(out, &ask->nonce);
    varint_put(out, ask->rights.expires_ns);
    varint_put(out, ask->what);
    put_text(out, ask->rights.user ? ask->rights.user : "");
    put_bytes(out, ask->body, ask->body_len);
}

/* ---- reading ---- */

struct reading {
    struct varint_reader in;
    struct message *message;
    size_t used; /* of message->texts */
};

static uint32_t take_u32(struct reading *r, uint32_t max)
{
    uint64_t value = varint_take(&r->in);
    if (value > max)
        r->in.bad = true;
    return r->in.bad ? 0 : (uint32_t)value;
}

static const uint8_t *take_bytes(struct reading *r, size_t max, size_t *ret_len)
{
    uint64_t len = varint_take(&r->in);
    if (len > max)
        r->in.bad = true;
    *ret_len = r->in.bad ? 0 : (size_t)len;
    return varint_bytes(&r->in, *ret_len);
}

/* A copy that ends with NUL. People will see it. */
static const char *take_text(struct reading *r, size_t max)
{
    size_t len;
    const uint8_t *bytes = take_bytes(r, max, &len);
    if (!bytes || !utf8_is_plain((const char *)bytes, len) ||
        len + 1 > sizeof(r->message->texts) - r->used) {
        r->in.bad = true;
        return "";
    }
    char *text = r->message->texts + r->used;
    if (len)
        memcpy(text, bytes, len);
    text[len] = '\0';
    r->used += len + 1;
    return text;
}

static struct message_nonce take_nonce(struct reading *r)
{
    struct message_nonce nonce = {0};
    const uint8_t *bytes = varint_bytes(&r->in, 2 * sizeof(uint64_t));
    if (bytes) {
        memcpy(&nonce.high, bytes, sizeof(nonce.high));
        memcpy(&nonce.low, bytes + sizeof(nonce.high), sizeof(nonce.low));
    }
    return nonce;
}

static void take_hello(struct reading *r, struct message_hello *hello)
{
    hello->name = take_text(r, MESSAGE_NAME_MAX);
    hello->version = take_text(r, MESSAGE_NAME_MAX);
    hello->started_ns = varint_take(&r->in);
    hello->now_ns = varint_take(&r->in);
    hello->interval_ms = take_u32(r, MESSAGE_NODE_DEADLINE_MAX);
    hello->first = varint_take(&r->in) != 0;
    hello->watch_ms = 0;
    if (!r->in.bad && varint_left(&r->in)) /* the first versions have no such field */
        hello->watch_ms = take_u32(r, MESSAGE_NODE_DEADLINE_MAX);
    if (!hello->name[0] || hello->interval_ms == 0)
        r->in.bad = true;
}

/* Both or none. */
static void take_rights(struct reading *r, struct message_rights *rights)
{
    size_t key_len, mac_len;
    rights->user = take_text(r, MESSAGE_NAME_MAX);
    rights->expires_ns = varint_take(&r->in);
    rights->key = take_bytes(r, MESSAGE_KEY_BYTES, &key_len);
    rights->mac = take_bytes(r, MESSAGE_MAC_BYTES, &mac_len);
    if (!r->in.bad && key_len == 0 && mac_len == 0)
        rights->key = rights->mac = NULL;
    else if (key_len != MESSAGE_KEY_BYTES || mac_len != MESSAGE_MAC_BYTES)
        r->in.bad = true;
}

static void take_ask(struct reading *r, struct message_ask *ask)
{
    ask->nonce = take_nonce(r);
    ask->deadline_ms = take_u32(r, MESSAGE_NODE_DEADLINE_MAX);
    ask->what = (enum message_what)take_u32(r, UINT32_MAX);
    take_rights(r, &ask->rights);
    ask->body = take_bytes(r, MESSAGE_MAX, &ask->body_len);
    size_t len = 0;
    if (!r->in.bad && varint_left(&r->in)) /* the first versions have no such field */
        ask->rights.signature = take_bytes(r, MESSAGE_SIGNATURE_BYTES, &len);
    if (len == 0)
        ask->rights.signature = NULL;
    else if (len != MESSAGE_SIGNATURE_BYTES)
        r->in.bad = true;
}

static void take_reply(struct reading *r, struct message_reply *reply)
{
    reply->nonce = take_nonce(r);
    reply->part = take_u32(r, MESSAGE_PARTS_MAX);
    reply->parts = take_u32(r, MESSAGE_PARTS_MAX);
    reply->body = take_bytes(r, MESSAGE_MAX, &reply->body_len);
    if (reply->part >= reply->parts)
        r->in.bad = true;
}

int message_read(const void *bytes, size_t len, struct message *ret)
{
    struct reading r = {.in = varint_reader(bytes, len), .message = ret};
    const uint8_t *magic = varint_bytes(&r.in, 2);
    if (!magic || memcmp(magic, "MC", 2) != 0)
        return -EBADMSG;
    uint64_t version = varint_take(&r.in), kind = varint_take(&r.in);
    if (r.in.bad)
        return -EBADMSG;
    if (version != MESSAGE_VERSION || kind < MESSAGE_HELLO || kind > MESSAGE_LOST)
        return -EPROTO;
    ret->kind = (enum message_kind)kind;
    switch (ret->kind) {
    case MESSAGE_HELLO:
        take_hello(&r, &ret->hello);
        break;
    case MESSAGE_BYE:
        break;
    case MESSAGE_ASK:
        take_ask(&r, &ret->ask);
        break;
    case MESSAGE_ACK:
        ret->ack = take_nonce(&r);
        break;
    case MESSAGE_REPLY:
        take_reply(&r, &ret->reply);
        break;
    case MESSAGE_REFUSE:
        ret->refuse.nonce = take_nonce(&r);
        ret->refuse.reason = take_text(&r, MESSAGE_REASON_MAX);
        break;
    case MESSAGE_LOST:
        ret->lost = take_text(&r, MESSAGE_ID_CHARS);
        r.in.bad |= strlen(ret->lost) != MESSAGE_ID_CHARS;
        break;
    }
    return r.in.bad ? -EBADMSG : 0;
}
