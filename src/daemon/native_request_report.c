/* Reports in a line of the native protocol: compact ones, which come by the million, and those in words. */
#include <stdlib.h>
#include <string.h>

#include "daemon/native_request_internal.h"
#include "daemon/native_words.h"

/* ---- values ---- */

static bool take_id(struct parse *p, uint64_t *ret_id)
{
    struct json_text text;
    if (json_read_peek(&p->r) != JSON_STRING)
        return json_read_u64(&p->r, ret_id);
    if (!json_read_string(&p->r, &text))
        return false;
    return native_id_parse(&text, ret_id) ||
           parse_fail(p, "expected an id: a number, or \"0x\" and up to 16 hex digits");
}

static bool take_space(struct parse *p, uint8_t *ret_space)
{
    struct json_text text;
    uint64_t number;
    if (json_read_peek(&p->r) == JSON_STRING) {
        if (!json_read_string(&p->r, &text))
            return false;
        if (p->space && text.len == p->space_text.len &&
            memcmp(text.data, p->space_text.data, text.len) == 0) {
            *ret_space = p->space;
            return true;
        }
        number = native_space(&text);
        p->space_text = text;
        p->space = (uint8_t)number;
    } else if (!json_read_u64(&p->r, &number)) {
        return false;
    }
    if (number > MEMOIR_SPACE_MAX || !native_space_name((uint32_t)number))
        return parse_fail(
            p, "unknown space: use dram, l1, l1_small, trace, cb, kernel, system, heap, mapped, "
               "pinned, managed, shared or chain");
    *ret_space = (uint8_t)number;
    return true;
}

bool parse_device(struct parse *p, int16_t *ret_device)
{
    uint64_t number;
    if (json_read_peek(&p->r) == JSON_NULL) {
        *ret_device = -1;
        return json_read_null(&p->r);
    }
    if (!json_read_u64(&p->r, &number))
        return false;
    if (number >= NATIVE_DEVICES_MAX)
        return parse_fail(p, "a device's number is 0 to 255");
    *ret_device = (int16_t)number;
    return true;
}

static bool take_bytes(struct parse *p, uint64_t *ret_bytes)
{
    if (!json_read_u64(&p->r, ret_bytes))
        return false;
    return *ret_bytes >> 48 == 0 || parse_fail(p, "2^48 bytes or more");
}

static bool take_tag(struct parse *p, struct json_text *ret_tag)
{
    if (json_read_peek(&p->r) == JSON_NULL)
        return json_read_null(&p->r);
    return json_read_string(&p->r, ret_tag);
}

/* ---- compact ---- */

static struct native_report *report_next(struct parse *p)
{
    struct native_parser *parser = p->parser;
    if (p->n_reports == parser->capacity) {
        size_t capacity = parser->capacity ? 2 * parser->capacity : 64;
        void *more = realloc(parser->reports, capacity * sizeof(*parser->reports));
        if (!more) {
            p->out_of_memory = true;
            parse_fail(p, "out of memory");
            return NULL;
        }
        parser->reports = more;
        parser->capacity = capacity;
    }
    struct native_report *report = &parser->reports[p->n_reports++];
    *report = (struct native_report){.at.device = -1, .from.device = -1};
    return report;
}

/* A device's memory needs a device, the host's takes none. */
static bool place_check(struct parse *p, struct native_place *place)
{
    if (place->space < MEMOIR_SPACE_DRAM)
        place->device = -1;
    else if (place->device < 0)
        return parse_fail(p, "this space is a device's: name its number, not null");
    return true;
}

/* The next item of a report; there must be one. */
static bool next(struct parse *p)
{
    return json_read_item(&p->r) || parse_fail(p, "the report lacks items");
}

static bool take_place_items(struct parse *p, struct native_place *place)
{
    return next(p) && parse_device(p, &place->device) && next(p) && take_space(p, &place->space) &&
           next(p) && take_id(p, &place->id) && place_check(p, place);
}

static bool take_tag_item(struct parse *p, struct json_text *ret_tag)
{
    if (!json_read_item(&p->r))
        return !p->r.error;
    if (!take_tag(p, ret_tag))
        return false;
    return !json_read_item(&p->r) ? !p->r.error : parse_fail(p, "the report has too many items");
}

static bool take_end(struct parse *p)
{
    return !json_read_item(&p->r) ? !p->r.error : parse_fail(p, "the report has too many items");
}

static bool take_report_items(struct parse *p, struct native_report *report)
{
    struct json_text op;
    if (!json_read_array(&p->r) || !next(p) || !json_read_string(&p->r, &op))
        return false;
    switch (op.len == 1 ? op.data[0] : 0) {
    case 'a':
        report->op = NATIVE_ALLOC;
        return take_place_items(p, &report->at) && next(p) && take_bytes(p, &report->bytes) &&
               take_tag_item(p, &report->tag);
    case 'f':
        report->op = NATIVE_FREE;
        return take_place_items(p, &report->at) && take_end(p);
    case 'r':
        report->op = NATIVE_REALLOC;
        if (!take_place_items(p, &report->from) || !next(p) || !take_id(p, &report->at.id) ||
            !next(p) || !take_bytes(p, &report->bytes))
            return false;
        report->at.device = report->from.device;
        report->at.space = report->from.space;
        return take_tag_item(p, &report->tag);
    case 't':
        report->op = NATIVE_TRANSFER;
        return take_place_items(p, &report->from) && take_place_items(p, &report->at) && next(p) &&
               take_bytes(p, &report->bytes) && take_end(p);
    default:
        return parse_fail(p, "expected \"a\", \"f\", \"r\" or \"t\"");
    }
}

bool parse_reports(struct parse *p)
{
    p->in_report = true;
    if (!json_read_array(&p->r))
        return false;
    while (json_read_item(&p->r)) {
        struct native_report *report = report_next(p);
        if (!report || !take_report_items(p, report))
            return false;
    }
    p->in_report = p->r.error;
    return !p->r.error;
}

/* ---- in words ---- */

/* Members of a report in words, as bits, for "is everything there?" */
enum {
    M_DEVICE = 1,
    M_SPACE = 2,
    M_ID = 4,
    M_BYTES = 8,
    M_TAG = 16,
    M_OLD = 32,
    M_FROM = 64,
    M_TO = 128
};

static bool take_place_object(struct parse *p, struct native_place *place);

static bool take_member(struct parse *p, struct native_report *report, struct native_place *place,
                        unsigned bit)
{
    switch (bit) {
    case M_DEVICE:
        return parse_device(p, &place->device);
    case M_SPACE:
        return take_space(p, &place->space);
    case M_ID:
        return take_id(p, &place->id);
    case M_BYTES:
        return take_bytes(p, &report->bytes);
    case M_TAG:
        return take_tag(p, &report->tag);
    case M_OLD:
        return take_id(p, &report->from.id);
    case M_FROM:
        return take_place_object(p, &report->from);
    default:
        return take_place_object(p, &report->at);
    }
}

/* An object with these members and no others; those in `must` must be there. */
static bool take_members(struct parse *p, struct native_report *report, struct native_place *place,
                         unsigned may, unsigned must)
{
    static const struct {
        const char *name;
        unsigned bit;
    } members[] = {{"device", M_DEVICE}, {"space", M_SPACE}, {"id", M_ID},     {"bytes", M_BYTES},
                   {"tag", M_TAG},       {"old", M_OLD},     {"from", M_FROM}, {"to", M_TO}};
    enum { N = sizeof(members) / sizeof(*members) };
    struct json_text key;
    unsigned seen = 0;
    if (!json_read_object(&p->r))
        return false;
    while (json_read_key(&p->r, &key)) {
        size_t i = 0;
        while (i < N && (!(members[i].bit & (may | must)) || !json_text_is(&key, members[i].name)))
            i++;
        if (i == N)
            return parse_fail(p, "unknown member of a report");
        if (seen & members[i].bit)
            return parse_fail(p, "a member is there twice");
        seen |= members[i].bit;
        if (!take_member(p, report, place, members[i].bit))
            return false;
    }
    if (p->r.error)
        return false;
    return (seen & must) == must ||
           parse_fail(p, must & M_BYTES && !(seen & M_BYTES)   ? "the report needs \"bytes\""
                         : must & M_SPACE && !(seen & M_SPACE) ? "the report needs \"space\""
                         : must & M_ID && !(seen & M_ID)       ? "the report needs \"id\""
                         : must & M_OLD && !(seen & M_OLD)
                             ? "the report needs \"old\""
                             : "the report needs \"from\" and \"to\"");
}

static bool take_place_object(struct parse *p, struct native_place *place)
{
    return take_members(p, NULL, place, M_DEVICE | M_ID, M_SPACE) && place_check(p, place);
}

bool parse_report(struct parse *p, enum native_op op)
{
    static const struct {
        unsigned may, must;
    } of[] = {
        [NATIVE_ALLOC] = {M_DEVICE | M_TAG, M_SPACE | M_ID | M_BYTES},
        [NATIVE_FREE] = {M_DEVICE, M_SPACE | M_ID},
        [NATIVE_REALLOC] = {M_DEVICE | M_TAG, M_SPACE | M_ID | M_OLD | M_BYTES},
        [NATIVE_TRANSFER] = {0, M_FROM | M_TO | M_BYTES},
    };
    p->in_report = true;
    struct native_report *report = report_next(p);
    if (!report)
        return false;
    report->op = op;
    if (!take_members(p, report, &report->at, of[op].may, of[op].must))
        return false;
    if (op != NATIVE_TRANSFER && !place_check(p, &report->at))
        return false;
    if (op == NATIVE_REALLOC) {
        report->from.device = report->at.device;
        report->from.space = report->at.space;
    }
    p->in_report = false;
    return true;
}
