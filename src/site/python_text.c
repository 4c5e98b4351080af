/* Strings of CPython as UTF-8. */
#include "site/python_text.h"

enum { STATE_COMPACT = 1u << 5 };

bool python_text_shape(const struct python_layout *layout, uint32_t state, size_t length,
                       struct python_text *ret_text, size_t *ret_start)
{
    ret_text->width = state >> PYTHON_TEXT_KIND_SHIFT & PYTHON_TEXT_KIND_MASK;
    ret_text->length = length;
    *ret_start = state & PYTHON_TEXT_ASCII ? layout->text_ascii : layout->text_wide;
    return (state & STATE_COMPACT) &&
           (ret_text->width == 1 || ret_text->width == 2 || ret_text->width == 4) &&
           length < SIZE_MAX / 8;
}

static uint32_t text_char(const struct python_text *text, size_t i)
{
    const volatile uint8_t *at = (const volatile uint8_t *)(text->chars + i * text->width);
    uint32_t c = at[0];
    if (text->width >= 2)
        c |= (uint32_t)at[1] << 8;
    if (text->width == 4)
        c |= (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    return c;
}

/* Names of files may hold half of a pair, for bytes that are no UTF-8. */
static bool is_character(uint32_t c)
{
    return c != 0 && c < 0x110000 && (c < 0xd800 || c > 0xdfff);
}

static size_t utf8_bytes(uint32_t c)
{
    return !is_character(c) || c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static size_t utf8_put(char *out, uint32_t c)
{
    size_t n = utf8_bytes(c);
    if (n == 1) {
        out[0] = is_character(c) ? (char)c : '?';
        return n;
    }
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf0 << (4 - n)) | c);
    return n;
}

bool python_text_copy(const struct python_text *text, char *out, size_t size, bool from_end)
{
    size_t room = size - 1, first = 0, end = text->length, bytes = 0;
    if (from_end) {
        for (first = end; first > 0; first--) {
            bytes += utf8_bytes(text_char(text, first - 1));
            if (bytes > room)
                break;
        }
    }
    size_t n = 0, i = first;
    for (; i < end; i++) {
        uint32_t c = text_char(text, i);
        if (utf8_bytes(c) > room - n)
            break;
        n += utf8_put(out + n, c);
    }
    out[n] = '\0';
    return first > 0 || i < end;
}
