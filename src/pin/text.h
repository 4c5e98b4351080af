/* text.h: texts without stdio: for files that the library writes and reads. Bounded; what does not
 * fit is left out, and `cut` says so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct pin_text {
    char *at;
    size_t left;
    bool cut;
};

static inline void pin_text_bytes(struct pin_text *t, const char *bytes, size_t n)
{
    if (n > t->left) {
        t->cut = true;
        return;
    }
    memcpy(t->at, bytes, n);
    t->at += n;
    t->left -= n;
}

static inline void pin_text_string(struct pin_text *t, const char *string)
{
    pin_text_bytes(t, string, strlen(string));
}

static inline void pin_text_number(struct pin_text *t, uint64_t value)
{
    char digits[20];
    size_t n = sizeof(digits);
    do
        digits[--n] = (char)('0' + value % 10);
    while (value /= 10);
    pin_text_bytes(t, digits + n, sizeof(digits) - n);
}

static inline void pin_text_hex(struct pin_text *t, uint64_t value)
{
    char digits[16];
    for (unsigned i = 0; i < 16; i++)
        digits[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
    pin_text_bytes(t, digits, sizeof(digits));
}

/* ---- reading: words separated by single spaces, lines ended by '\n' ---- */

struct pin_words {
    const char *at, *end;
};

/* The next word of the line; false at its end. */
static inline bool pin_word(struct pin_words *w, const char **ret, size_t *ret_n)
{
    const char *start = w->at;
    while (w->at < w->end && *w->at != ' ' && *w->at != '\n')
        w->at++;
    *ret = start;
    *ret_n = (size_t)(w->at - start);
    if (w->at < w->end && *w->at == ' ')
        w->at++;
    return *ret_n > 0;
}

static inline bool pin_word_is(struct pin_words *w, const char *expected)
{
    const char *word;
    size_t n;
    return pin_word(w, &word, &n) && n == strlen(expected) && memcmp(word, expected, n) == 0;
}

static inline bool pin_word_number(struct pin_words *w, unsigned base, uint64_t *ret)
{
    const char *word;
    size_t n;
    uint64_t value = 0;
    if (!pin_word(w, &word, &n) || n > 20)
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = word[i] >= '0' && word[i] <= '9'   ? (unsigned)(word[i] - '0')
                         : word[i] >= 'a' && word[i] <= 'f' ? (unsigned)(word[i] - 'a' + 10)
                                                            : 99;
        if (digit >= base || value > (UINT64_MAX - digit) / base)
            return false;
        value = value * base + digit;
    }
    *ret = value;
    return true;
}

/* On to the next line; false: there is none, or the line has more words. */
static inline bool pin_line_next(struct pin_words *w)
{
    if (w->at >= w->end || *w->at != '\n')
        return false;
    w->at++;
    return true;
}
