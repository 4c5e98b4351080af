/* The JSON writer. Answers of several hundred kilobytes go through it at every refresh, so strings are
 * copied in runs and integers are printed without printf. */
#include "base/json.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/utf8.h"

#define U64_DIGITS_MAX 20
#define EXACT_MAX      9007199254740992.0 /* 2^53: a double holds every integer below */
#define REPLACEMENT    "\xef\xbf\xbd"     /* U+FFFD */

void json_init(struct json *j, struct buffer *out)
{
    *j = (struct json){.out = out, .start = out->len};
}

int json_finish(struct json *j)
{
    assert(j->depth == 0 && !j->after_key);
    return j->out->error;
}

/* The comma before the next item of the open container, where it is not the first. */
static void before_item(struct json *j)
{
    uint64_t bit = UINT64_C(1) << j->depth;
    if (j->depth > 0 && (j->filled & bit))
        buffer_append_char(j->out, ',');
    j->filled |= bit;
}

/* Whatever starts a value: a key has placed its comma already. */
static void before_value(struct json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    assert(!(j->objects & UINT64_C(1) << j->depth)); /* a value in an object needs a key */
    before_item(j);
}

static void container_begin(struct json *j, char open, bool object)
{
    before_value(j);
    buffer_append_char(j->out, open);
    if (j->depth == JSON_DEPTH_MAX) {
        if (!j->out->error)
            j->out->error = -EOVERFLOW;
        return;
    }
    j->depth++;
    uint64_t bit = UINT64_C(1) << j->depth;
    j->filled &= ~bit;
    j->objects = object ? j->objects | bit : j->objects & ~bit;
}

static void container_end(struct json *j, char close)
{
    assert(!j->after_key);
    if (j->depth == 0)
        return; /* only after the depth overflowed, which stuck as an error */
    j->depth--;
    buffer_append_char(j->out, close);
}

void json_object_begin(struct json *j)
{
    container_begin(j, '{', true);
}

void json_object_end(struct json *j)
{
    container_end(j, '}');
}

void json_array_begin(struct json *j)
{
    container_begin(j, '[', false);
}

void json_array_end(struct json *j)
{
    container_end(j, ']');
}

void json_key(struct json *j, const char *key)
{
    assert((j->objects & UINT64_C(1) << j->depth) && !j->after_key);
    before_item(j);
    json_quote(j->out, key, strlen(key));
    buffer_append_char(j->out, ':');
    j->after_key = true;
}

/* The bytes that may be copied as they are: ASCII without controls, quote and backslash. */
static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

#define EACH_BYTE(c) (UINT64_C(0x0101010101010101) * (c))

/* Non-zero when one of the eight bytes is not plain. With the top bits out of the way, adding to or
 * subtracting from all bytes at once cannot carry from one into the next. */
static uint64_t special_bytes(uint64_t v)
{
    uint64_t low = v & EACH_BYTE(0x7f);
    uint64_t not_control = low + EACH_BYTE(0x80 - 0x20);
    uint64_t not_quote = (low ^ EACH_BYTE('"')) + EACH_BYTE(0x7f);
    uint64_t not_backslash = (low ^ EACH_BYTE('\\')) + EACH_BYTE(0x7f);
    uint64_t not_delete = (low ^ EACH_BYTE(0x7f)) + EACH_BYTE(0x7f);
    return (v | ~(not_control & not_quote & not_backslash & not_delete)) & EACH_BYTE(0x80);
}

/* How many bytes from the start are plain. */
static size_t plain_run(const char *s, size_t len)
{
    size_t n = 0;
    for (uint64_t v; len - n >= sizeof(v); n += sizeof(v)) {
        memcpy(&v, s + n, sizeof(v));
        if (special_bytes(v))
            break;
    }
    while (n < len && is_plain((unsigned char)s[n]))
        n++;
    return n;
}

static void append_control(struct buffer *out, unsigned char c)
{
    static const char short_form[] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',  ['\f'] = 'f',
        ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\',
    };
    if (c < sizeof(short_form) && short_form[c]) {
        buffer_append(out, (char[]){'\\', short_form[c]}, 2);
        return;
    }
    static const char hex[] = "0123456789abcdef";
    buffer_append(out, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
}

/* Up to seven bytes as a number, in two pieces that may overlap; 0 bytes are ' '. Copied to `to`. */
static uint64_t copy_few(char *to, const char *s, size_t len)
{
    if (len >= 4) {
        uint32_t front, back;
        memcpy(&front, s, sizeof(front));
        memcpy(&back, s + len - sizeof(back), sizeof(back));
        memcpy(to, &front, sizeof(front));
        memcpy(to + len - sizeof(back), &back, sizeof(back));
        return front | (uint64_t)back << 32;
    }
    uint64_t all = EACH_BYTE(' ');
    for (size_t i = 0; i < len; i++)
        all = all << 8 | (unsigned char)(to[i] = s[i]);
    return all;
}

size_t json_plain(char *to, const char *s, size_t len)
{
    uint64_t v, special = 0;
    to[0] = '"';
    if (len < sizeof(v)) {
        special = special_bytes(copy_few(to + 1, s, len));
    } else {
        for (size_t n = 0; n + sizeof(v) < len; n += sizeof(v)) {
            memcpy(&v, s + n, sizeof(v));
            memcpy(to + 1 + n, &v, sizeof(v));
            special |= special_bytes(v);
        }
        memcpy(&v, s + len - sizeof(v), sizeof(v));
        memcpy(to + 1 + len - sizeof(v), &v, sizeof(v));
        special |= special_bytes(v);
    }
    to[len + 1] = '"';
    return special ? 0 : len + 2;
}

int json_quote(struct buffer *out, const char *s, size_t len)
{
    char *to = len < SIZE_MAX - 2 ? buffer_reserve(out, len + 2) : NULL;
    size_t plain = to ? json_plain(to, s, len) : 0; /* nearly all are */
    if (plain) {
        buffer_commit(out, plain);
        return 0;
    }
    buffer_append_char(out, '"');
    size_t i = 0;
    while (i < len) {
        size_t run = plain_run(s + i, len - i);
        buffer_append(out, s + i, run);
        i += run;
        if (i == len)
            break;
        unsigned char c = (unsigned char)s[i];
        if (c < 0x80) {
            append_control(out, c); /* DEL too: terminals act on it */
            i++;
            continue;
        }
        size_t n = utf8_sequence(s + i, len - i);
        if (n == 2 && c == 0xc2 && (unsigned char)s[i + 1] < 0xa0) {
            append_control(out, (unsigned char)s[i + 1]); /* and on these: U+009B is ESC [ */
            i += n;
            continue;
        }
        buffer_append(out, n ? s + i : REPLACEMENT, n ? n : strlen(REPLACEMENT));
        i += n ? n : 1;
    }
    return buffer_append_char(out, '"');
}

void json_string_n(struct json *j, const char *s, size_t len)
{
    before_value(j);
    json_quote(j->out, s, len);
}

void json_string(struct json *j, const char *s)
{
    if (s)
        json_string_n(j, s, strlen(s));
    else
        json_null(j);
}

#define EIGHT_DIGITS UINT64_C(100000000)

/* The eight digits of a number below 10^8, zeros before them included, the first one in the lowest byte. Each step
 * splits all parts at once: two of four digits, four of two, eight of one. */
static uint64_t eight_digits(uint32_t v)
{
    uint64_t parts = v / 10000 | (uint64_t)(v % 10000) << 32;
    uint64_t high = parts * 10486 >> 20 & UINT64_C(0x0000007f0000007f); /* / 100 */
    parts = high | (parts - high * 100) << 16;
    high = parts * 103 >> 10 & UINT64_C(0x000f000f000f000f); /* / 10 */
    return (high | (parts - high * 10) << 8) + EACH_BYTE('0');
}

static void put_eight(char *to, uint64_t digits)
{
    digits = htole64(digits);
    memcpy(to, &digits, sizeof(digits));
}

size_t json_digits(char text[static JSON_DIGITS_MAX], uint64_t v)
{
    static const uint64_t powers[JSON_DIGITS_MAX] = {
        UINT64_C(1),
        UINT64_C(10),
        UINT64_C(100),
        UINT64_C(1000),
        UINT64_C(10000),
        UINT64_C(100000),
        UINT64_C(1000000),
        UINT64_C(10000000),
        UINT64_C(100000000),
        UINT64_C(1000000000),
        UINT64_C(10000000000),
        UINT64_C(100000000000),
        UINT64_C(1000000000000),
        UINT64_C(10000000000000),
        UINT64_C(100000000000000),
        UINT64_C(1000000000000000),
        UINT64_C(10000000000000000),
        UINT64_C(100000000000000000),
        UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    /* So many bits have this many digits or one more: 1233/4096 is just above log10(2). The length comes first: whatever
     * is written next need not wait for the digits. */
    unsigned bits = 64 - (unsigned)__builtin_clzll(v | 1);
    size_t digits = bits * 1233 >> 12;
    size_t len = digits + ((v | 1) >= powers[digits]);
    if (len <= 8) {
        put_eight(text, eight_digits((uint32_t)v) >> (64 - 8 * len)); /* without its zeros */
        return len;
    }
    /* What is written too much is overwritten by the digits behind. */
    uint64_t above = v / EIGHT_DIGITS;
    if (len <= 16) {
        put_eight(text, eight_digits((uint32_t)above) >> (128 - 8 * len));
    } else {
        put_eight(text, eight_digits((uint32_t)(above / EIGHT_DIGITS)) >> (192 - 8 * len));
        put_eight(text + len - 16, eight_digits((uint32_t)(above % EIGHT_DIGITS)));
    }
    put_eight(text + len - 8, eight_digits((uint32_t)(v % EIGHT_DIGITS)));
    return len;
}

static void append_u64(struct buffer *out, uint64_t v)
{
    char digits[JSON_DIGITS_MAX];
    buffer_append(out, digits,
                  json_digits(digits, v)); /* no more than they are: the limit may be near */
}

void json_u64(struct json *j, uint64_t v)
{
    before_value(j);
    append_u64(j->out, v);
}

void json_i64(struct json *j, int64_t v)
{
    before_value(j);
    if (v < 0)
        buffer_append_char(j->out, '-');
    append_u64(j->out, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

/* printf and strtod use the decimal point of the locale, which JSON does not know: whatever stands
 * there, of any length, becomes a dot. */
static size_t fix_decimal_point(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        if (strchr("0123456789+-eE", *from)) {
            *to++ = *from++;
            continue;
        }
        *to++ = '.';
        while (*from && !strchr("0123456789+-eE", *from))
            from++;
    }
    *to = '\0';
    return (size_t)(to - text);
}

void json_double(struct json *j, double v)
{
    if (!isfinite(v)) {
        json_null(j);
        return;
    }
    /* Whole numbers are common and need no printf; -0 is not one of them. */
    bool small = v > -EXACT_MAX && v < EXACT_MAX;
    if (small && v == (double)(int64_t)v && !(v == 0 && signbit(v))) {
        json_i64(j, (int64_t)v);
        return;
    }
    char text[64];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof(text), "%.*g", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    before_value(j);
    buffer_append(j->out, text, fix_decimal_point(text));
}

void json_bool(struct json *j, bool v)
{
    json_raw(j, v ? "true" : "false", v ? 4 : 5);
}

void json_null(struct json *j)
{
    json_raw(j, "null", 4);
}

void json_raw(struct json *j, const char *text, size_t len)
{
    before_value(j);
    buffer_append(j->out, text, len);
}

void json_field_string(struct json *j, const char *key, const char *s)
{
    json_key(j, key);
    json_string(j, s);
}

void json_field_u64(struct json *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_u64(j, v);
}

void json_field_i64(struct json *j, const char *key, int64_t v)
{
    json_key(j, key);
    json_i64(j, v);
}

void json_field_double(struct json *j, const char *key, double v)
{
    json_key(j, key);
    json_double(j, v);
}

void json_field_bool(struct json *j, const char *key, bool v)
{
    json_key(j, key);
    json_bool(j, v);
}

void json_field_null(struct json *j, const char *key)
{
    json_key(j, key);
    json_null(j);
}
