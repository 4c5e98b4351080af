/* Tables of words. */
#include "daemon/native_words.h"

#include <string.h>

#include <memoir/memoir.h>

#include "base/utf8.h"
#include "daemon/native_request.h"
#include "ledger/ledger.h"

static const char *const kinds[] = {
    [MEMOIR_DEVICE_OTHER] = "other",
    [MEMOIR_DEVICE_GPU] = "gpu",
    [MEMOIR_DEVICE_NPU] = "npu",
    [MEMOIR_DEVICE_FPGA] = "fpga",
    [MEMOIR_DEVICE_SIMULATED] = "simulated",
};

static const struct {
    const char *name;
    uint32_t bit;
} topics[] = {
    {"processes", NATIVE_PROCESSES}, {"devices", NATIVE_DEVICES}, {"reports", NATIVE_REPORTS}};

uint32_t native_space(const struct json_text *text)
{
    for (uint32_t i = 0; i <= MEMOIR_SPACE_MAX; i++)
        if (ledger_space_words[i] && json_text_is(text, ledger_space_words[i]))
            return i;
    return 0;
}

const char *native_space_name(uint32_t space)
{
    return space <= MEMOIR_SPACE_MAX ? ledger_space_words[space] : NULL;
}

int native_device_kind(const struct json_text *text)
{
    for (int i = 0; i < (int)(sizeof(kinds) / sizeof(*kinds)); i++)
        if (json_text_is(text, kinds[i]))
            return i;
    return -1;
}

const char *native_device_kind_name(uint32_t kind)
{
    return kinds[kind < sizeof(kinds) / sizeof(*kinds) ? kind : MEMOIR_DEVICE_OTHER];
}

uint32_t native_topic(const struct json_text *text)
{
    for (size_t i = 0; i < sizeof(topics) / sizeof(*topics); i++)
        if (json_text_is(text, topics[i].name))
            return topics[i].bit;
    return 0;
}

const char *native_topic_name(uint32_t topic)
{
    for (size_t i = 0; i < sizeof(topics) / sizeof(*topics); i++)
        if (topics[i].bit == topic)
            return topics[i].name;
    return NULL;
}

bool native_id_parse(const struct json_text *text, uint64_t *ret_id)
{
    uint64_t id = 0;
    if (text->len < 3 || text->len > 18 || text->data[0] != '0' || (text->data[1] | 0x20) != 'x')
        return false;
    for (size_t i = 2; i < text->len; i++) {
        char c = text->data[i];
        char letter = (char)(c | 0x20);
        unsigned digit = c >= '0' && c <= '9'             ? (unsigned)(c - '0')
                         : letter >= 'a' && letter <= 'f' ? (unsigned)(letter - 'a') + 10
                                                          : 16;
        if (digit == 16)
            return false;
        id = id << 4 | digit;
    }
    *ret_id = id;
    return true;
}

/* Decoding never makes a text longer, and a character has one of the forms: one to four bytes as they are,
 * two for a short escape, six or twelve for the others. */
static size_t form_len(const char *p, const char *end)
{
    if (*p != '\\')
        return utf8_sequence(p, (size_t)(end - p));
    if (p[1] != 'u')
        return 2;
    bool pair = (p[2] | 0x20) == 'd' && strchr("89abAB", p[3]) != NULL;
    return pair ? 12 : 6;
}

void native_text_cut(const struct json_text *text, char *to, size_t size)
{
    size_t len = 0;
    for (const char *p = text->data, *end = p + text->len; p < end;) {
        struct json_text one = {.data = p, .len = form_len(p, end), .escaped = *p == '\\'};
        char decoded[5];
        int64_t n = json_text_copy(&one, decoded, sizeof(decoded));
        if (n < 0) { /* a NUL, the only thing that is left to be wrong with it */
            decoded[0] = ' ';
            n = 1;
        }
        if ((size_t)n >= size - len)
            break;
        memcpy(to + len, decoded, (size_t)n);
        len += (size_t)n;
        p += one.len;
    }
    to[len] = '\0';
}
