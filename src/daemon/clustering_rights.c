/* Who asks from another node, and what that user may see and do here.
 *
 * A token of this node proves it: HMAC-SHA256 with the token's digest as the key, over everything that decides
 * what is done (message_ask_signed()). The token itself does not travel.
 *
 * Or the asking node vouches for its user, where cluster-trust names that node by its ID, and signs the same bytes with its key.
 * Users are matched by name, never by number; root only where the mapping says so. Without the key in cluster-trust only the
 * server's permissions say which node asks: such a node may look, not act.
 *
 * A proof is valid for PROOF_S; one that allows control is accepted once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
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
                     struct cluster_proof *ret_proof)
{
    const struct clustering_ask *own = context;
    const struct clustering *c = own->clustering;
    struct buffer text = BUFFER_INIT(SIGNED_MAX);
    message_ask_signed(ask, c->settings.id, target, &text);
    if (own->token && target[0] && !text.error) {
        uint8_t digest[SHA256_BYTES];
        sha256(own->token, strlen(own->token), digest);
        key_name(digest, ret_proof->key);
        ret_proof->has_mac = true;
        if (hmac(digest, &text, ret_proof->mac) < 0)
            memset(ret_proof->mac, 0, MESSAGE_MAC_BYTES); /* which proves nothing */
    } else if (c->has_key && ask->rights.user[0] && !text.error) {
        sign(&c->key, text.data, text.len, ret_proof->signature);
        ret_proof->has_signature = true;
    }
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

/* May this question change anything? Only then does its proof serve once: an answer to a copy goes to the asker, whoever sends it. */
static bool may_act(const struct message_ask *ask)
{
    static const char get[] = "GET"; /* with its NUL */
    return ask->what == MESSAGE_CALL &&
           (ask->body_len < sizeof(get) || memcmp(ask->body, get, sizeof(get)) != 0);
}

/* Remember the nonce of a proof of user `who` until the proof expires. False: it was there, or there is no room, of which one user
 * gets a share only. */
static bool nonce_take(struct clustering *c, const struct message_ask *ask, uint32_t who,
                       uint64_t now_ns, const char **ret_why)
{
    size_t free_one = NONCES_KEPT, own = 0;
    *ret_why = "memoird has just started there, and cannot know whether this proof was used "
               "before: try again";
    if (ask->rights.expires_ns < c->begun_ns + PROOF_S * NS_PER_S)
        return false;
    *ret_why = "this proof was used before";
    for (size_t i = 0; i < NONCES_KEPT; i++) {
        if (c->nonces[i].expires_ns <= now_ns) {
            free_one = i;
            continue;
        }
        if (message_nonce_equal(&c->nonces[i].nonce, &ask->nonce))
            return false;
        own += c->nonces[i].who == who;
    }
    *ret_why = "too many calls in a minute: try again later";
    if (free_one == NONCES_KEPT || own >= NONCES_USER)
        return false;
    c->nonces[free_one].nonce = ask->nonce;
    c->nonces[free_one].expires_ns = ask->rights.expires_ns;
    c->nonces[free_one].who = who;
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
    uint32_t who = token.has_uid ? token.uid : (uint32_t)hash_string(token.name, 1);
    if (token.control && may_act(&q->ask) && !nonce_take(c, &q->ask, who, now, ret_why))
        return false;
    ret->viewer.uid = token.has_uid ? token.uid : UINT32_MAX;
    ret->viewer.sees_all = token.has_uid && token.uid == 0;
    ret->control = token.control;
    snprintf(ret->who, sizeof(ret->who), "token %s at %s", token.name, q->asker_label);
    return true;
}

/* ---- vouching ---- */

static bool signature_holds(const struct clustering *c, const struct cluster_question *q,
                            const uint8_t key[static SIGN_KEY_BYTES])
{
    struct buffer text = BUFFER_INIT(SIGNED_MAX);
    if (!q->ask.rights.signature)
        return false;
    message_ask_signed(&q->ask, q->asker, q->to_all ? "" : c->settings.id, &text);
    bool holds = !text.error && sign_check(key, text.data, text.len, q->ask.rights.signature);
    buffer_release(&text);
    return holds;
}

/* Is the question signed by the node, and fresh? */
static bool is_proved(struct clustering *c, const struct cluster_question *q,
                      const struct clustering_trust *trust, const char **ret_why)
{
    uint64_t now = clock_real_ns();
    *ret_why =
        "the signature of the asking node is invalid: cluster-trust needs the word that 'memoir "
        "cluster key' prints there";
    if (!signature_holds(c, q, trust->key))
        return false;
    *ret_why = "the signature has expired: are the clocks of both nodes right?";
    return is_fresh(&q->ask.rights, now);
}

static bool by_vouching(struct clustering *c, const struct cluster_question *q,
                        struct clustering_rights *ret, const char **ret_why)
{
    struct clustering_trust trust;
    uint32_t uid;
    const char *user = q->ask.rights.user;
    if (!user[0])
        return true;
    clustering_trust(c->settings.trust, q->asker, user, &trust);
    if (!trust.local[0])
        return true;
    if (trust.has_key && !is_proved(c, q, &trust, ret_why))
        return false;
    users_refresh(c->users);
    if (!users_uid(c->users, trust.local, &uid))
        return true;
    bool control = trust.has_key && q->ask.what == MESSAGE_CALL;
    if (control && may_act(&q->ask) && !nonce_take(c, &q->ask, uid, clock_real_ns(), ret_why))
        return false;
    ret->viewer.uid = uid;
    ret->viewer.sees_all = uid == 0;
    ret->control = control;
    snprintf(ret->who, sizeof(ret->who), "%s at %s", user, q->asker_label);
    return true;
}

bool clustering_rights(struct clustering *c, const struct cluster_question *q,
                       struct clustering_rights *ret, const char **ret_why)
{
    *ret = (struct clustering_rights){.viewer = {.uid = UINT32_MAX}};
    snprintf(ret->who, sizeof(ret->who), "node %s", q->asker_label);
    return q->ask.rights.key ? by_token(c, q, ret, ret_why) : by_vouching(c, q, ret, ret_why);
}
