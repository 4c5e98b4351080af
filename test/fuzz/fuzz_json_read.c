/* Any bytes as a document: the reader stays inside them, ends, and what it takes can be decoded and
 * written again to a document that it takes as well. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/json_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void copy_string(struct json *out, const struct json_text *text, char *room, size_t size,
                        bool key)
{
    int64_t len = json_text_copy(text, room, size);
    if (len < 0 && len != -EINVAL)
        abort(); /* decoding never makes it longer */
    if (len >= 0 && !json_text_is(text, room))
        abort();
    if (key)
        json_key(out, len < 0 ? "" : room);
    else
        json_string_n(out, room, len < 0 ? 0 : (size_t)len);
}

static void copy_value(struct json_read *r, struct json *out, char *room, size_t size)
{
    struct json_text text;
    struct json_number number;
    bool b = false;
    switch (json_read_peek(r)) {
    case JSON_OBJECT:
        json_read_object(r);
        if (r->error)
            break;
        json_object_begin(out);
        while (json_read_key(r, &text)) {
            copy_string(out, &text, room, size, true);
            copy_value(r, out, room, size);
        }
        json_object_end(out);
        return;
    case JSON_ARRAY:
        json_read_array(r);
        if (r->error)
            break;
        json_array_begin(out);
        while (json_read_item(r))
            copy_value(r, out, room, size);
        json_array_end(out);
        return;
    case JSON_STRING:
        if (!json_read_string(r, &text))
            break;
        copy_string(out, &text, room, size, false);
        return;
    case JSON_NUMBER:
        if (!json_read_number(r, &number))
            break;
        if (number.kind == JSON_U64)
            json_u64(out, number.u);
        else if (number.kind == JSON_I64)
            json_i64(out, number.i);
        else
            json_double(out, number.d);
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        json_read_bool(r, &b);
        json_bool(out, b);
        return;
    default:
        json_read_null(r);
    }
    json_null(out);
}

static int skip(const char *text, size_t len)
{
    struct json_read r;
    json_read_init(&r, text, len);
    json_read_skip(&r);
    int result = json_read_finish(&r);
    if (json_read_where(&r) > len)
        abort();
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer b = BUFFER_INIT((size + 1) * 32);
    struct json out;
    struct json_read r;
    char *room = malloc(size + 1);
    if (!room)
        return 0;
    json_init(&out, &b);
    json_read_init(&r, (const char *)data, size);
    copy_value(&r, &out, room, size + 1);
    int taken = json_read_finish(&r);
    if (taken != skip((const char *)data, size))
        abort();
    int written = json_finish(&out);
    if (taken == 0 && written == 0 && skip(b.data, b.len) < 0)
        abort();
    buffer_release(&b);
    free(room);
    return 0;
}
