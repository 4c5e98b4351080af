/* NATS's keys as text. See nkey.h. */
#include "cluster/nkey.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cluster/sign.h"

enum {
    PREFIX_USER = 20 << 3,
    PREFIX_SEED = 18 << 3,
    SEED_BYTES = 2 + SIGN_KEY_BYTES + 2,
    PUBLIC_BYTES = 1 + SIGN_KEY_BYTES + 2,
    CRC_POLYNOMIAL = 0x1021, /* XMODEM */
};

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

static uint16_t crc16(const uint8_t *bytes, size_t len)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < len; i++) {
        crc ^= (uint16_t)(bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ CRC_POLYNOMIAL : crc << 1);
    }
    return crc;
}

static int base32_decode(const char *text, size_t chars, uint8_t *ret_bytes, size_t len)
{
    uint32_t bits = 0;
    unsigned n_bits = 0;
    size_t n = 0;
    for (size_t i = 0; i < chars; i++) {
        const char *at = text[i] ? strchr(alphabet, text[i]) : NULL;
        if (!at)
            return -EINVAL;
        bits = bits << 5 | (uint32_t)(at - alphabet);
        n_bits += 5;
        if (n_bits >= 8 && n < len) {
            n_bits -= 8;
            ret_bytes[n++] = (uint8_t)(bits >> n_bits);
        }
    }
    return n == len ? 0 : -EINVAL;
}

static void base32_encode(const uint8_t *bytes, size_t len, char *ret_text)
{
    uint32_t bits = 0;
    unsigned n_bits = 0;
    for (size_t i = 0; i < len; i++) {
        bits = bits << 8 | bytes[i];
        for (n_bits += 8; n_bits >= 5; n_bits -= 5)
            *ret_text++ = alphabet[bits >> (n_bits - 5) & 31];
    }
    if (n_bits)
        *ret_text++ = alphabet[bits << (5 - n_bits) & 31];
    *ret_text = '\0';
}

int nkey_public(const char *seed, char ret_public[static NKEY_PUBLIC_CHARS + 1])
{
    uint8_t raw[SEED_BYTES], out[PUBLIC_BYTES] = {PREFIX_USER};
    struct sign_key key;
    if (strlen(seed) != NKEY_SEED_CHARS ||
        base32_decode(seed, NKEY_SEED_CHARS, raw, sizeof(raw)) < 0)
        return -EINVAL;
    uint16_t crc = crc16(raw, SEED_BYTES - 2);
    bool is_seed = raw[0] == (PREFIX_SEED | PREFIX_USER >> 5) &&
                   raw[1] == (PREFIX_USER & 31) << 3 && raw[SEED_BYTES - 2] == (crc & 0xff) &&
                   raw[SEED_BYTES - 1] == crc >> 8;
    memcpy(key.secret, raw + 2, sizeof(key.secret));
    explicit_bzero(raw, sizeof(raw));
    if (is_seed) {
        sign_key_derive(&key);
        memcpy(out + 1, key.public, sizeof(key.public));
        crc = crc16(out, PUBLIC_BYTES - 2);
        out[PUBLIC_BYTES - 2] = (uint8_t)(crc & 0xff);
        out[PUBLIC_BYTES - 1] = (uint8_t)(crc >> 8);
        base32_encode(out, sizeof(out), ret_public);
    }
    explicit_bzero(&key, sizeof(key));
    return is_seed ? 0 : -EINVAL;
}
