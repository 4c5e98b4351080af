/* settings.c: see settings.h. */
#include "malloc/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AUTO_BYTES_MAX (UINT64_C(1) << 60)
#define SLOTS_MAX      (UINT64_C(1) << 20)

#define DEFAULTS                                                                             \
    {                                                                                        \
        .pressure = PRESSURE_SET_AUTO, .keep_bytes = SETTING_AUTO, .thp = THP_DENSE,         \
        .numa = NUMA_FOLLOW, .quarantine_bytes = 4 << 20, .range_bytes = UINT64_C(64) << 30, \
        .slots = 256,                                                                        \
    }
struct malloc_settings malloc_settings = DEFAULTS;
static const struct malloc_settings defaults = DEFAULTS;

static const char *const pressure_words[] = {"none", "some", "high", "critical", "auto", NULL};
static const char *const numa_words[] = {"off", "thread", "follow", NULL};
static const char *const thp_words[] = {"never", "dense", "always", NULL};

#define AT(field) offsetof(struct malloc_settings, field)
const struct setting settings_table[] = {
    {"account", AT(account), NULL, 1, false, "count blocks by call site, in a book"},
    {"harden", AT(harden), NULL, 3, false, "check what the program does with its blocks, by level"},
    {"pressure", AT(pressure), pressure_words, 0, false,
     "how short memory is: auto asks memoird, else the kernel"},
    {"keep", AT(keep_bytes), NULL, AUTO_BYTES_MAX, true, "free memory to keep; auto: by policy"},
    {"limit", AT(limit_bytes), NULL, AUTO_BYTES_MAX, true,
     "memory to ask of the kernel at most; 0: no limit"},
    {"thp", AT(thp), thp_words, 0, false, "huge pages: never, for dense macro-blocks, always"},
    {"numa", AT(numa), numa_words, 0, false,
     "memory of the node where a thread began, or of the one where it is"},
    {"zero_free", AT(zero_free), NULL, 1, false,
     "overwrite blocks that are freed; without harden, as harden=1"},
    {"quarantine", AT(quarantine_bytes), NULL, AUTO_BYTES_MAX, true,
     "freed memory that is held back, from harden=2 on"},
    {"range", AT(range_base), NULL, 0, false, "addresses that the heap lies at; 0: any", true},
    {"range_bytes", AT(range_bytes), NULL, AUTO_BYTES_MAX, true, "addresses of each slot"},
    {"slot", AT(slot), NULL, SLOTS_MAX, false, "which of the slots is this process's"},
    {"slots", AT(slots), NULL, SLOTS_MAX, false, "how many there are"},
    {"receive", AT(receive), NULL, 1, false, "leave the range free for an image"},
};
const size_t settings_count = sizeof(settings_table) / sizeof(settings_table[0]);

static bool word_value(const struct setting *s, const char *text, size_t length, uint64_t *ret)
{
    for (size_t i = 0; s->words[i]; i++)
        if (strlen(s->words[i]) == length && memcmp(s->words[i], text, length) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

static bool number_value(const struct setting *s, const char *text, size_t length, uint64_t *ret)
{
    if (s->bytes && length == 4 && memcmp(text, "auto", 4) == 0) {
        memcpy(ret, (const char *)&defaults + s->offset, sizeof(*ret));
        return true;
    }
    uint64_t value = 0;
    size_t i = 0;
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
        if (value > AUTO_BYTES_MAX)
            return false;
    }
    if (i == 0)
        return false;
    if (s->bytes && i == length - 1) {
        static const char units[] = "KMGT";
        const char *unit = strchr(units, text[i] & ~0x20);
        if (!unit || !*unit || value >> (60 - 10 * (unit - units + 1)))
            return false;
        value <<= 10 * (unit - units + 1);
        i++;
    }
    *ret = value;
    return i == length && value <= s->max;
}

/* 0x and hexadecimal digits, or 0. */
static bool address_value(const struct setting *s, const char *text, size_t length, uint64_t *ret)
{
    static const char digits[] = "0123456789abcdef";
    if (length == 4 && memcmp(text, "auto", 4) == 0) {
        *ret = SETTING_AUTO;
        return true;
    }
    *ret = 0;
    if (length == 1)
        return text[0] == '0';
    if (length < 3 || length > 18 || text[0] != '0' || (text[1] | 0x20) != 'x')
        return false;
    for (size_t i = 2; i < length; i++) {
        const char *digit = strchr(digits, text[i] <= '9' ? text[i] : text[i] | 0x20);
        if (!digit || !*digit)
            return false;
        *ret = *ret << 4 | (uint64_t)(digit - digits);
    }
    return *ret != SETTING_AUTO;
}

/* One "name=value" of that length. */
static bool setting_take(struct malloc_settings *to, const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    if (!equals)
        return false;
    size_t name_length = (size_t)(equals - text), value_length = length - name_length - 1;
    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *s = &settings_table[i];
        uint64_t value;
        if (strlen(s->name) != name_length || memcmp(s->name, text, name_length) != 0)
            continue;
        if (!(s->words     ? word_value
              : s->address ? address_value
                           : number_value)(s, equals + 1, value_length, &value))
            return false;
        memcpy((char *)to + s->offset, &value, sizeof(value));
        return true;
    }
    return false;
}

void settings_parse(struct malloc_settings *s, const char *text, const char **ret_bad)
{
    *ret_bad = NULL;
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        if (length > 0 && !setting_take(s, at, length) && !*ret_bad)
            *ret_bad = at;
        at += length;
        at += *at == ',';
    }
}

static void complain(const char *bad)
{
    static const char before[] = "memoir-malloc: MEMOIR_MALLOC: ignoring '", after[] = "'\n";
    char line[256];
    size_t length = strcspn(bad, ","), n = sizeof(before) - 1;
    memcpy(line, before, n);
    length = length < 128 ? length : 128;
    memcpy(line + n, bad, length);
    memcpy(line + n + length, after, sizeof(after) - 1);
    (void)!write(STDERR_FILENO, line, n + length + sizeof(after) - 1);
}

void settings_read(void)
{
    if (malloc_settings.read || !environ)
        return;
    int saved = errno;
    malloc_settings.read = true;
    const char *bad = secure_getenv("MEMOIR_MALLOC");
    while (bad) { /* from there on, again: the same comes of it */
        settings_parse(&malloc_settings, bad, &bad);
        if (!bad)
            break;
        complain(bad);
        bad += strcspn(bad, ",");
    }
    errno = saved;
}
