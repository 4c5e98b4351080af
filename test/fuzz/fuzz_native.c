/* Any bytes as lines of the native protocol, applied to a fake book: whatever is taken keeps to the limits
 * that the code behind it relies on, and every error can be written. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/json_read.h"
#include "daemon/native_request.h"
#include "daemon/native_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
    if (!fine)
        abort();
}

static void check_text(const char *text, size_t size)
{
    check(strnlen(text, size) < size);
}

static void check_place(const struct native_place *place)
{
    check(place->space > 0 && place->space <= MEMOIR_SPACE_MAX);
    check(native_space_name(place->space) != NULL);
    check(place->space < MEMOIR_SPACE_DRAM
              ? place->device == -1
              : place->device >= 0 && place->device < NATIVE_DEVICES_MAX);
}

/* What a book would do with it: counts per place, by plain indices. */
static uint64_t book[NATIVE_DEVICES_MAX + 1][MEMOIR_SPACE_MAX + 1];

static void apply(const struct native_report *report)
{
    char tag[NATIVE_TAG_MAX + 1];
    check_place(&report->at);
    check(report->bytes >> 48 == 0);
    book[report->at.device + 1][report->at.space] += report->bytes;
    if (report->op == NATIVE_REALLOC || report->op == NATIVE_TRANSFER) {
        check_place(&report->from);
        book[report->from.device + 1][report->from.space] -= report->bytes;
    }
    if (report->tag.data) {
        native_text_cut(&report->tag, tag, sizeof(tag));
        check_text(tag, sizeof(tag));
    }
}

static void check_request(const struct native_request *q)
{
    check(q->kind != NATIVE_NONE);
    check_text(q->hello.session, sizeof(q->hello.session));
    check_text(q->hello.token, sizeof(q->hello.token));
    check_text(q->hello.host, sizeof(q->hello.host));
    check_text(q->device.name, sizeof(q->device.name));
    check_text(q->query.by, sizeof(q->query.by));
    check_text(q->query.where, sizeof(q->query.where));
    check(q->device.number < NATIVE_DEVICES_MAX);
    check(q->device.n_capacity <= sizeof(q->device.capacity) / sizeof(*q->device.capacity));
    check(q->interval_ms >= NATIVE_INTERVAL_MS_MIN && q->interval_ms <= NATIVE_INTERVAL_MS_MAX);
    for (size_t i = 0; i < q->n_reports; i++)
        apply(&q->reports[i]);
}

static void check_error(const struct native_error *error, const struct native_request *q)
{
    struct buffer out = BUFFER_INIT(1 << 16);
    struct json json;
    struct json_read r;
    json_init(&json, &out);
    native_error_write(error, q, &json);
    check(json_finish(&json) == 0);
    json_read_init(&r, out.data, out.len);
    json_read_skip(&r);
    check(json_read_finish(&r) == 0);
    buffer_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct native_parser parser;
    const char *line = (const char *)data, *end = line + size;
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t len = newline ? (size_t)(newline - line) : (size_t)(end - line);
        struct native_error error;
        if (native_parse(&parser, line, len, &error) == 0)
            check_request(&parser.request);
        else
            check_error(&error, &parser.request);
        line += len + 1;
    }
    return 0;
}
