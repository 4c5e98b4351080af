/* Any bytes as a string: the quoted result has no raw control byte, no bare quote, and is UTF-8. */
#include <stdint.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *s, size_t len)
{
    for (size_t i = 1; i + 1 < len;) {
        size_t n = utf8_sequence(s + i, len - i);
        unsigned char c = (unsigned char)s[i];
        if (n == 0 || c < 0x20 || c == '"')
            abort();
        i += c == '\\' ? 2 : n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer b = BUFFER_INIT(size * 6 + 2);
    if (json_quote(&b, (const char *)data, size) < 0)
        abort();
    check(b.data, b.len);
    buffer_release(&b);
    return 0;
}
