/* See base64.h. */
#include "base/base64.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_append(struct buffer *out, const void *bytes, size_t len)
{
    const uint8_t *in = bytes;
    char *to = buffer_reserve(out, (len + 2) / 3 * 4), *at = to;
    if (!to)
        return out->error;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t word = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                        (left > 2 ? in[i + 2] : 0u);
        *at++ = letters[word >> 18];
        *at++ = letters[word >> 12 & 63];
        *at++ = left > 1 ? letters[word >> 6 & 63] : '=';
        *at++ = left > 2 ? letters[word & 63] : '=';
    }
    buffer_commit(out, (size_t)(at - to));
    return 0;
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(struct buffer *out, const char *text, size_t len)
{
    if (len % 4)
        return -EINVAL;
    for (size_t i = 0; i < len; i += 4) {
        bool last = i + 4 == len;
        size_t padding =
            last ? (text[i + 3] == '=') + (text[i + 2] == '=' && text[i + 3] == '=') : 0;
        uint32_t word = 0;
        for (size_t k = 0; k < 4; k++) {
            int value = k < 4 - padding ? value_of(text[i + k]) : 0;
            if (value < 0)
                return -EINVAL;
            word = word << 6 | (uint32_t)value;
        }
        if (word & ((1u << 8 * padding) - 1)) /* one text only for the same bytes */
            return -EINVAL;
        const char bytes[] = {(char)(word >> 16), (char)(word >> 8), (char)word};
        buffer_append(out, bytes, 3 - padding);
    }
    return out->error;
}
