/* text.h: put short strings together without stdio. The buffer is always terminated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *at, *end;
    bool cut; /* something did not fit */
};

static inline struct text text_begin(char *buffer, size_t size)
{
    buffer[0] = '\0';
    return (struct text){buffer, buffer + size - 1, false};
}

static inline void text_add(struct text *text, const char *string)
{
    for (; *string; string++) {
        if (text->at == text->end) {
            text->cut = true;
            break;
        }
        *text->at++ = *string;
    }
    *text->at = '\0';
}

static inline void text_add_number(struct text *text, uint64_t number)
{
    char digits[24];
    char *at = digits + sizeof(digits) - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    text_add(text, at);
}

static inline void text_add_hex(struct text *text, uint64_t number)
{
    char digits[17];
    for (int i = 0; i < 16; i++)
        digits[i] = "0123456789abcdef"[number >> (60 - 4 * i) & 15];
    digits[16] = '\0';
    text_add(text, digits);
}

/* Copy at most size - 1 bytes and terminate; NULL counts as "". */
static inline void text_copy(char *buffer, size_t size, const char *string)
{
    struct text text = text_begin(buffer, size);
    text_add(&text, string ? string : "");
}
