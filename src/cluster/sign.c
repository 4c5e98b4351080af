/* Signatures of nodes. See sign.h. */
#include "cluster/sign.h"

#include <assert.h>
#include <errno.h>
#include <nettle/eddsa.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static_assert(SIGN_KEY_BYTES == ED25519_KEY_SIZE, "of the library");
static_assert(SIGN_BYTES == ED25519_SIGNATURE_SIZE, "of the library");

void sign_key_derive(struct sign_key *key)
{
    ed25519_sha512_public_key(key->public, key->secret);
}

int sign_key_make(struct sign_key *ret_key)
{
    if (getrandom(ret_key->secret, sizeof(ret_key->secret), GRND_NONBLOCK) !=
        sizeof(ret_key->secret))
        return -EAGAIN;
    sign_key_derive(ret_key);
    return 0;
}

void sign_key_text(const uint8_t key[static SIGN_KEY_BYTES],
                   char ret_text[static SIGN_KEY_CHARS + 1])
{
    for (size_t i = 0; i < SIGN_KEY_BYTES; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", key[i]);
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sign_key_parse(const char *text, uint8_t ret_key[static SIGN_KEY_BYTES])
{
    uint8_t key[SIGN_KEY_BYTES];
    if (strlen(text) != SIGN_KEY_CHARS)
        return false;
    for (size_t i = 0; i < SIGN_KEY_BYTES; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        key[i] = (uint8_t)(high << 4 | low);
    }
    memcpy(ret_key, key, sizeof(key));
    return true;
}

void sign(const struct sign_key *key, const void *bytes, size_t len,
          uint8_t ret_signature[static SIGN_BYTES])
{
    ed25519_sha512_sign(key->public, key->secret, len, bytes, ret_signature);
}

bool sign_check(const uint8_t public[static SIGN_KEY_BYTES], const void *bytes, size_t len,
                const uint8_t signature[static SIGN_BYTES])
{
    return ed25519_sha512_verify(public, len, bytes, signature) == 1;
}
