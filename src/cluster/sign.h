/* Signatures of nodes: Ed25519. A node signs what it asks on behalf of its users; a target that trusts the node has its public key
 * in its configuration. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIGN_KEY_BYTES = 32,
    SIGN_BYTES = 64,
    SIGN_KEY_CHARS = 2 * SIGN_KEY_BYTES, /* of a key as lower-case hex digits */
};

struct sign_key {
    uint8_t secret[SIGN_KEY_BYTES], public[SIGN_KEY_BYTES];
};

/* A new one. -EAGAIN: no random numbers yet. */
int sign_key_make(struct sign_key *ret_key);
/* From `secret`: fills in `public`. */
void sign_key_derive(struct sign_key *key);

void sign_key_text(const uint8_t key[static SIGN_KEY_BYTES],
                   char ret_text[static SIGN_KEY_CHARS + 1]);
/* False: these are not SIGN_KEY_CHARS hex digits. */
bool sign_key_parse(const char *text, uint8_t ret_key[static SIGN_KEY_BYTES]);

void sign(const struct sign_key *key, const void *bytes, size_t len,
          uint8_t ret_signature[static SIGN_BYTES]);
bool sign_check(const uint8_t public[static SIGN_KEY_BYTES], const void *bytes, size_t len,
                const uint8_t signature[static SIGN_BYTES]);
