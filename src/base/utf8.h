/* UTF-8 as it comes from strangers: names of processes, paths, tags. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The length (1 to 4) of the valid UTF-8 sequence at `s`, of which `len` > 0 bytes may be read; 0 when
 * it is none: a stray or missing continuation, an overlong form, a surrogate, past U+10FFFF. */
static inline size_t utf8_sequence(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n > len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90))
        return 0; /* overlong */
    if ((p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0; /* surrogate; past the end of Unicode */
    return n;
}

/* Bytes below 0x80 only, as most texts are: eight at once. */
static inline bool utf8_is_ascii(const char *s, size_t len)
{
    uint64_t eight, all = 0;
    if (len < sizeof(eight)) {
        for (size_t i = 0; i < len; i++)
            all |= (unsigned char)s[i];
        return !(all & 0x80);
    }
    for (size_t i = 0; i + sizeof(eight) < len; i += sizeof(eight)) {
        memcpy(&eight, s + i, sizeof(eight));
        all |= eight;
    }
    memcpy(&eight, s + len - sizeof(eight), sizeof(eight)); /* the last ones, some of them twice */
    return !((all | eight) & UINT64_C(0x8080808080808080));
}

/* The character of a valid sequence of `n` bytes. */
static inline uint32_t utf8_decode(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    switch (n) {
    case 1:
        return p[0];
    case 2:
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3:
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    default:
        return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    }
}

/* Characters that print nothing but change what is seen: directions, joiners, tags. */
static inline bool utf8_deceives(uint32_t c)
{
    return (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0xad || c == 0x61c ||
           (c >= 0xe0000 && c <= 0xe007f);
}

/* May people see this text as it is: UTF-8 without control characters and without those that deceive? */
static inline bool utf8_is_plain(const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_sequence(text + i, len - i);
        uint32_t c = n ? utf8_decode(text + i, n) : 0;
        if (c < ' ' || (c >= 0x7f && c < 0xa0) || utf8_deceives(c))
            return false;
    }
    return true;
}
