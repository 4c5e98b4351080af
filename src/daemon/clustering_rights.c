/* Who asks from another node, and what that user may see and do here.
 *
 * A token of this node proves it: HMAC-SHA256 with the token's digest as the key, over everything that decides
 * what is done (message_ask_signed()). The token itself does not travel. A proof serves once, and for PROOF_S.
 *
 * Or the asking node vouches for its user, where cluster-trust names that node by its ID. Users are matched by
 * name, never by number; root only where the mapping says so. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "cluster/message.h"
#include "daemon/clustering_internal.h"
#include "daemon/daemon.h"
#include "daemon/token.h"
#include "daemon/users.h"

enum { PROOF_S = 30, HMAC_BLOCK = 64, SIGNED_MAX = 1 << 20 };

/* ---- proofs ---- */

static int hmac(const uint8_t key[static SHA256_BYTES], const struct buffer *message,
                uint8_t ret_mac[static SHA256_BYTES])
{
    uint8_t inner[SHA256_BYTES], outer[HMAC_BLOCK + SHA256_BYTES];
    struct buffer text = BUFFER_INIT(SIGNED_MAX + HMAC_BLOCK);
    for (size_t i = 0; i < HMAC_BLOCK; i++)
        buffer_append_char(&text, (char)((i < SHA256_BYTES ? key[i] : 0) ^ 0x36));
    buffer_append(&text, message->data, message->len);
    int r = message->error ? message->error : text.error;
    if (r == 0) {
        sha256(text.data, text.len, inner);
        for (size_t i = 0; i < HMAC_BLOCK; i++)
            outer[i] = (uint8_t)((i < SHA256_BYTES ? key[i] : 0) ^ 0x5c);
        memcpy(outer + HMAC_BLOCK, inner, sizeof(inner));
        sha256(outer, sizeof(outer), ret_mac);
    }
    buffer_release(&text);
    return r;
}

/* Which token: the beginning of the digest of its digest. */
static void key_name(const uint8_t digest[static SHA256_BYTES],
                     uint8_t ret_key[static MESSAGE_KEY_BYTES])
{
    uint8_t twice[SHA256_BYTES];
    sha256(digest, SHA256_BYTES, twice);
    memcpy(ret_key, twice, MESSAGE_KEY_BYTES);
}

void clustering_sign(void *context, const struct message_ask *ask, const char *target,
                     uint8_t ret_key[static MESSAGE_KEY_BYTES],
                     uint8_t ret_mac[static MESSAGE_MAC_BYTES])
{
    const struct clustering_ask *own = context;
    struct buffer text = BUFFER_INIT(SIGNED_MAX);
    uint8_t digest[SHA256_BYTES];
    sha256(own->token, strlen(own->token), digest);
    key_name(digest, ret_key);
    message_ask_signed(ask, own->clustering->settings.id, target, &text);
    if (hmac(digest, &text, ret_mac) < 0)
        memset(ret_mac, 0, MESSAGE_MAC_BYTES); /* which proves nothing */
    buffer_release(&text);
}

struct proof {
    const struct message_rights *rights;
    const struct buffer *text;
};

static bool proves(const uint8_t digest[static SHA256_BYTES], void *context)
{
    const struct proof *proof = context;
    uint8_t key[MESSAGE_KEY_BYTES], mac[SHA256_BYTES];
    key_name(digest, key);
    return memcmp(key, proof->rights->key, sizeof(key)) == 0 &&
           hmac(digest, proof->text, mac) == 0 && sha256_equal(mac, proof->rights->mac);
}

/* False: this proof came before. */
static bool nonce_is_new(struct clustering *c, const struct message_ask *ask, uint64_t now_ns)
{
    for (size_t i = 0; i < NONCES_KEPT; i++)
        if (c->nonces[i].expires_ns > now_ns &&
            message_nonce_equal(&c->nonces[i].nonce, &ask->nonce))
            return false;
    /* One that has not expired is not pushed out: rather nobody gets in. */
    if (c->nonces[c->nonces_next].expires_ns > now_ns)
        return false;
    c->nonces[c->nonces_next].nonce = ask->nonce;
    c->nonces[c->nonces_next].expires_ns = ask->rights.expires_ns;
    c->nonces_next = (c->nonces_next + 1) % NONCES_KEPT;
    return true;
}

static bool is_fresh(const struct message_rights *rights, uint64_t now_ns)
{
    return rights->expires_ns > now_ns && rights->expires_ns <= now_ns + 2 * PROOF_S * NS_PER_S;
}

static bool by_token(struct clustering *c, const struct cluster_question *q,
                     struct clustering_rights *ret, const char **ret_why)
{
    const struct message_rights *rights = &q->ask.rights;
    uint64_t now = clock_real_ns();
    struct token token;
    struct buffer text = BUFFER_INIT(SIGNED_MAX);
    message_ask_signed(&q->ask, q->asker, c->settings.id, &text);
    struct proof proof = {rights, &text};
    int r = c->tokens ? tokens_prove(c->tokens, proves, &proof, &token) : -EACCES;
    buffer_release(&text);
    *ret_why = "this token is not known here";
    if (r < 0)
        return false;
    *ret_why = "the proof has expired: are the clocks of both nodes right?";
    if (!is_fresh(rights, now))
        return false;
    *ret_why = "this proof was used before";
    if (!nonce_is_new(c, &q->ask, now))
        return false;
    ret->viewer.uid = token.has_uid ? token.uid : UINT32_MAX;
    ret->viewer.sees_all = token.has_uid && token.uid == 0;
    ret->control = token.control;
    snprintf(ret->who, sizeof(ret->who), "token %s at %s", token.name, q->asker_label);
    return true;
}

/* ---- vouching ---- */

/* The local user that `mapping` ("ann=bob:carl=carl") makes of `user`. NULL: of none. */
static const char *mapped(char *mapping, const char *user)
{
    char *pair;
    while ((pair = strsep(&mapping, ":")) != NULL) {
        char *equal = strchr(pair, '=');
        if (!equal)
            continue;
        *equal = '\0';
        if (strcmp(pair, user) == 0)
            return equal + 1;
    }
    return NULL;
}

/* The local user as whom `user` of the node `asker` may ask, in `ret_name`. */
static bool trusted(const char *trust, const char *asker, const char *user, char *ret_name,
                    size_t size)
{
    char *copy = strdup(trust), *rest = copy, *word;
    bool found = false;
    while (copy && !found && (word = strsep(&rest, " ,\t")) != NULL) {
        char *mapping = strchr(word, ':');
        if (mapping)
            *mapping++ = '\0';
        if (strcmp(word, asker) != 0)
            continue;
        const char *local = mapping ? mapped(mapping, user) : strcmp(user, "root") ? user : NULL;
        found = local && *local;
        if (found)
            snprintf(ret_name, size, "%s", local);
    }
    free(copy);
    return found;
}

static void by_vouching(struct clustering *c, const struct cluster_question *q,
                        struct clustering_rights *ret)
{
    char name[MESSAGE_NAME_MAX + 1];
    uint32_t uid;
    const char *user = q->ask.rights.user;
    if (!user[0] || !trusted(c->settings.trust, q->asker, user, name, sizeof(name)))
        return;
    users_refresh(c->users);
    if (!users_uid(c->users, name, &uid))
        return;
    ret->viewer.uid = uid;
    ret->viewer.sees_all = uid == 0;
    /* The server vouches for the node (subject.h); what acts is done once, and not later. */
    uint64_t now = clock_real_ns();
    ret->control = q->ask.what == MESSAGE_CALL && is_fresh(&q->ask.rights, now) &&
                   nonce_is_new(c, &q->ask, now);
    snprintf(ret->who, sizeof(ret->who), "%s at %s", user, q->asker_label);
}

bool clustering_rights(struct clustering *c, const struct cluster_question *q,
                       struct clustering_rights *ret, const char **ret_why)
{
    *ret = (struct clustering_rights){.viewer = {.uid = UINT32_MAX}};
    snprintf(ret->who, sizeof(ret->who), "node %s", q->asker_label);
    if (q->ask.rights.key)
        return by_token(c, q, ret, ret_why);
    by_vouching(c, q, ret);
    return true;
}
