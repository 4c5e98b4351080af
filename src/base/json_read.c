/* The reader. Positions are pointers into the caller's bytes; nesting is two bit sets, so that depth costs
 * no memory and no recursion. */
#include "base/json_read.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void json_read_init(struct json_read *r, const char *text, size_t len)
{
    *r = (struct json_read){.start = text, .at = text, .end = text + len};
}

bool json_read_fail(struct json_read *r, const char *error)
{
    if (!r->error)
        r->error = error;
    return false;
}

const char *json_read_error(const struct json_read *r)
{
    return r->error;
}

size_t json_read_where(const struct json_read *r)
{
    return (size_t)(r->at - r->start);
}

static inline void skip_space(struct json_read *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

int json_read_finish(struct json_read *r)
{
    bool untouched = r->at == r->start;
    skip_space(r);
    if (!r->error && (r->depth > 0 || untouched))
        json_read_fail(r, "the value is not complete");
    if (!r->error && r->at < r->end)
        json_read_fail(r, "something follows the value");
    return r->error ? -EBADMSG : 0;
}

enum json_type json_read_peek(struct json_read *r)
{
    if (r->error)
        return JSON_NOTHING;
    skip_space(r);
    if (r->at == r->end)
        return JSON_NOTHING;
    switch (*r->at) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
        return JSON_TRUE;
    case 'f':
        return JSON_FALSE;
    case 'n':
        return JSON_NULL;
    default:
        return *r->at == '-' || (*r->at >= '0' && *r->at <= '9') ? JSON_NUMBER : JSON_NOTHING;
    }
}

/* ---- containers ---- */

static bool container_enter(struct json_read *r, char open, bool object, const char *expected)
{
    if (r->error)
        return false;
    skip_space(r);
    if (r->at == r->end || *r->at != open)
        return json_read_fail(r, expected);
    if (r->depth == JSON_READ_DEPTH_MAX)
        return json_read_fail(r, "nested too deep");
    r->at++;
    uint32_t bit = UINT32_C(1) << r->depth++;
    r->filled &= ~bit;
    r->objects = object ? r->objects | bit : r->objects & ~bit;
    return true;
}

bool json_read_object(struct json_read *r)
{
    return container_enter(r, '{', true, "expected an object");
}

bool json_read_array(struct json_read *r)
{
    return container_enter(r, '[', false, "expected an array");
}

/* To the next item of the container that we are in: past the comma, or out of the container. */
static inline bool container_next(struct json_read *r, char close)
{
    assert(r->depth > 0 || r->error);
    if (r->error)
        return false;
    uint32_t bit = UINT32_C(1) << (r->depth - 1);
    skip_space(r);
    if (r->at == r->end)
        return json_read_fail(r, "ends in the middle");
    if (*r->at == close) {
        r->at++;
        r->depth--;
        return false;
    }
    if (r->filled & bit) {
        if (*r->at != ',')
            return json_read_fail(r, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
        r->at++;
    }
    r->filled |= bit;
    return true;
}

bool json_read_item(struct json_read *r)
{
    return container_next(r, ']');
}

bool json_read_key(struct json_read *r, struct json_text *ret_key)
{
    if (!container_next(r, '}') || !json_read_string(r, ret_key))
        return false;
    skip_space(r);
    if (r->at == r->end || *r->at != ':')
        return json_read_fail(r, "expected ':'");
    r->at++;
    return true;
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The code unit of four hex digits at `p`, or -1. */
static int code_unit(const char *p, const char *end)
{
    int unit = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* The code point of the \u escape whose digits are at *p, which moves behind it; -1 for a bad one, also
 * for half of a surrogate pair. */
static int32_t code_point(const char **p, const char *end)
{
    int unit = code_unit(*p, end);
    if (unit < 0)
        return -1;
    *p += 4;
    if (unit < 0xd800 || unit > 0xdfff)
        return unit;
    if (unit > 0xdbff || end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
        return -1;
    int low = code_unit(*p + 2, end);
    if (low < 0xdc00 || low > 0xdfff)
        return -1;
    *p += 6;
    return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

/* The byte that a one-letter escape stands for, or 0. */
static char escape_byte(char letter)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *found = letter ? strchr(letters, letter) : NULL;
    return found ? bytes[found - letters] : 0;
}

/* Past as many plain bytes (ASCII, no quote, no backslash, no control) as can be seen eight at a time. */
static inline const char *plain_run(const char *p, const char *end)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    while (end - p >= 8) {
        uint64_t v;
        memcpy(&v, p, sizeof(v));
        v = le64toh(v);
        uint64_t quote = v ^ (ones * '"'), back = v ^ (ones * '\\');
        /* A byte's high bit ends up set where it is special. Borrows may mark a byte too many, but only
         * behind one that really is: the first is right. */
        uint64_t special = ((quote - ones) | (back - ones) | (v - ones * 0x20) | v) & highs;
        if (special)
            return p + (__builtin_ctzll(special) >> 3);
        p += 8;
    }
    return p;
}

static bool escape_check(struct json_read *r, const char **p)
{
    if (*p + 1 == r->end)
        return json_read_fail(r, "ends inside a string");
    char letter = (*p)[1];
    *p += 2;
    if (letter == 'u' ? code_point(p, r->end) < 0 : !escape_byte(letter))
        return json_read_fail(r, "bad escape in a string");
    return true;
}

bool json_read_string(struct json_read *r, struct json_text *ret_text)
{
    if (r->error)
        return false;
    skip_space(r);
    if (r->at == r->end || *r->at != '"')
        return json_read_fail(r, "expected a string");
    const char *begin = r->at + 1, *p = begin;
    bool escaped = false;
    for (;;) {
        p = plain_run(p, r->end);
        r->at = p;
        if (p == r->end)
            return json_read_fail(r, "ends inside a string");
        unsigned char c = (unsigned char)*p;
        if (c == '"')
            break;
        if (c == '\\') {
            escaped = true;
            if (!escape_check(r, &p))
                return false;
        } else if (c < 0x20) {
            return json_read_fail(r, "control byte in a string");
        } else if (c < 0x80) {
            p++;
        } else {
            size_t n = utf8_sequence(p, (size_t)(r->end - p));
            if (n == 0)
                return json_read_fail(r, "not UTF-8");
            p += n;
        }
    }
    r->at = p + 1;
    *ret_text = (struct json_text){.data = begin, .len = (size_t)(p - begin), .escaped = escaped};
    return true;
}

static size_t utf8_put(char *to, int32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* The next decoded character of a checked text, as 1 to 4 bytes. */
static size_t text_next(const char **p, const char *end, char to[static 4])
{
    if (**p != '\\') {
        to[0] = *(*p)++;
        return 1;
    }
    char letter = (*p)[1];
    *p += 2;
    if (letter == 'u')
        return utf8_put(to, code_point(p, end));
    to[0] = escape_byte(letter);
    return 1;
}

int64_t json_text_copy(const struct json_text *text, char *buffer, size_t size)
{
    size_t len = 0;
    if (!text->escaped) { /* no raw NUL can be in it */
        if (text->len >= size)
            return -ENOBUFS;
        if (text->len > 0) /* else `data` may be NULL */
            memcpy(buffer, text->data, text->len);
        len = text->len;
    } else {
        char c[4];
        for (const char *p = text->data, *end = p + text->len; p < end;) {
            size_t n = text_next(&p, end, c);
            if (c[0] == '\0')
                return -EINVAL;
            if (n >= size - len)
                return -ENOBUFS;
            memcpy(buffer + len, c, n);
            len += n;
        }
        if (size == 0)
            return -ENOBUFS;
    }
    buffer[len] = '\0';
    return (int64_t)len;
}

bool json_text_is(const struct json_text *text, const char *word)
{
    size_t len = strlen(word);
    if (!text->escaped)
        return text->len == len && (len == 0 || memcmp(text->data, word, len) == 0);
    char c[4];
    for (const char *p = text->data, *end = p + text->len; p < end;) {
        size_t n = text_next(&p, end, c);
        if (n > len || memcmp(word, c, n) != 0)
            return false;
        word += n;
        len -= n;
    }
    return len == 0;
}

/* ---- numbers ---- */

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* A number with a fraction, an exponent, or more than 64 bits. */
static bool number_double(struct json_read *r, const char *p, struct json_number *ret)
{
    char text[JSON_READ_NUMBER_MAX + 1];
    size_t len = (size_t)(p - r->at);
    memcpy(text, r->at, len);
    text[len] = '\0';
    /* glibc keeps the C locale ready: this allocates nothing and cannot fail. */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double d = strtod_l(text, NULL, c);
    if (!isfinite(d))
        return json_read_fail(r, "number out of range");
    *ret = (struct json_number){.kind = JSON_DOUBLE, .d = d};
    r->at = p;
    return true;
}

bool json_read_number(struct json_read *r, struct json_number *ret_number)
{
    if (r->error)
        return false;
    skip_space(r);
    const char *p = r->at, *end = r->end;
    bool negative = p < end && *p == '-';
    p += negative;
    const char *first = p;
    uint64_t value = 0;
    bool wide = false;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        wide |= __builtin_mul_overflow(value, 10, &value) ||
                __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value);
    if (p == first)
        return json_read_fail(r, "expected a number");
    if (*first == '0' && p - first > 1)
        return json_read_fail(r, "a number begins with 0");
    bool whole = true;
    if (p < end && *p == '.') {
        const char *fraction = ++p;
        p = digits(p, end);
        whole = false;
        if (p == fraction)
            return json_read_fail(r, "no digit after the decimal point");
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        const char *exponent = p;
        p = digits(p, end);
        whole = false;
        if (p == exponent)
            return json_read_fail(r, "no digit in the exponent");
    }
    if (p - r->at > JSON_READ_NUMBER_MAX)
        return json_read_fail(r, "number too long");
    if (!whole || wide || (negative && value > UINT64_C(1) << 63))
        return number_double(r, p, ret_number);
    r->at = p;
    if (negative && value > 0)
        *ret_number =
            (struct json_number){.kind = JSON_I64, .i = (int64_t)(0 - value), .d = -(double)value};
    else
        *ret_number = (struct json_number){.kind = JSON_U64, .u = value, .d = (double)value};
    return true;
}

bool json_read_u64(struct json_read *r, uint64_t *ret_value)
{
    struct json_number n;
    const char *at = r->at;
    if (!json_read_number(r, &n))
        return false;
    if (n.kind != JSON_U64) {
        r->at = at;
        return json_read_fail(r, "expected a whole number from 0 to 2^64-1");
    }
    *ret_value = n.u;
    return true;
}

bool json_read_i64(struct json_read *r, int64_t *ret_value)
{
    struct json_number n;
    const char *at = r->at;
    if (!json_read_number(r, &n))
        return false;
    if (n.kind == JSON_DOUBLE || (n.kind == JSON_U64 && n.u > INT64_MAX)) {
        r->at = at;
        return json_read_fail(r, "expected a whole number of 63 bits and a sign");
    }
    *ret_value = n.kind == JSON_I64 ? n.i : (int64_t)n.u;
    return true;
}

/* ---- words ---- */

static bool word_take(struct json_read *r, const char *word, const char *expected)
{
    size_t len = strlen(word);
    if (r->error)
        return false;
    skip_space(r);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
        return json_read_fail(r, expected);
    r->at += len;
    return true;
}

bool json_read_bool(struct json_read *r, bool *ret_value)
{
    bool value = json_read_peek(r) == JSON_TRUE;
    if (!word_take(r, value ? "true" : "false", "expected true or false"))
        return false;
    *ret_value = value;
    return true;
}

bool json_read_null(struct json_read *r)
{
    return word_take(r, "null", "expected null");
}

/* ---- anything ---- */

/* A value that is no container. */
static bool scalar_skip(struct json_read *r)
{
    struct json_text text;
    struct json_number number;
    switch (json_read_peek(r)) {
    case JSON_STRING:
        return json_read_string(r, &text);
    case JSON_NUMBER:
        return json_read_number(r, &number);
    case JSON_TRUE:
        return word_take(r, "true", "expected a value");
    case JSON_FALSE:
        return word_take(r, "false", "expected a value");
    case JSON_NULL:
        return word_take(r, "null", "expected a value");
    default:
        return json_read_fail(r, r->at == r->end ? "ends where a value should be"
                                                 : "expected a value");
    }
}

bool json_read_skip(struct json_read *r)
{
    unsigned base = r->depth;
    for (;;) {
        enum json_type type = json_read_peek(r);
        bool fine = type == JSON_OBJECT  ? json_read_object(r)
                    : type == JSON_ARRAY ? json_read_array(r)
                                         : scalar_skip(r);
        if (!fine)
            return false;
        /* To the next value, out of as many containers as end here. */
        for (;;) {
            if (r->depth == base)
                return true;
            struct json_text key;
            unsigned depth = r->depth;
            bool object = r->objects >> (depth - 1) & 1;
            if (object ? json_read_key(r, &key) : json_read_item(r))
                break;
            if (r->error)
                return false;
        }
    }
}
