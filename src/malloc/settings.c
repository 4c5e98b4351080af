/* settings.c: see settings.h. */
#include "malloc/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside what else runs when a program starts (link.ld). */
#define AT_START __attribute__((section(".text.startup")))
static const char variable[] __attribute__((section(".rodata.startup.settings"))) = "MEMOIR_MALLOC";
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

#define AT(field) .offset = offsetof(struct malloc_settings, field)
const struct setting settings_table[] = {
    {"account", "", "count blocks by call site, in a book", AT(account), .max = 1},
    {"harden", "", "check what the program does with its blocks, by level", AT(harden), .max = 3},
    {"pressure", "none some high critical auto",
     "how short memory is: auto asks memoird, else the kernel", AT(pressure)},
    {"keep", "", "free memory to keep; auto: by policy", AT(keep_bytes), AUTO_BYTES_MAX, true},
    {"limit", "", "memory to ask of the kernel at most; 0: no limit", AT(limit_bytes),
     AUTO_BYTES_MAX, true},
    {"thp", "never dense always", "huge pages: never, for dense macro-blocks, always", AT(thp)},
    {"numa", "off thread follow",
     "memory of the node where a thread began, or of the one where it is", AT(numa)},
    {"sources", "", "that the threads of a node share; 0: more if they wait for each other",
     AT(sources), .max = SPREAD_SET_MAX},
    {"zero_free", "", "overwrite blocks that are freed; without harden, as harden=1", AT(zero_free),
     .max = 1},
    {"quarantine", "", "freed memory that is held back, from harden=2 on", AT(quarantine_bytes),
     AUTO_BYTES_MAX, true},
    {"range", "", "addresses that the heap lies at; 0: any", AT(range_base), .address = true},
    {"range_bytes", "", "addresses of each slot", AT(range_bytes), AUTO_BYTES_MAX, true},
    {"slot", "", "which of the slots is this process's", AT(slot), SLOTS_MAX},
    {"slots", "", "how many there are", AT(slots), SLOTS_MAX},
    {"receive", "", "leave the range free for an image", AT(receive), .max = 1},
};
const size_t settings_count = sizeof(settings_table) / sizeof(settings_table[0]);

static bool word_value(const struct setting *s, const char *text, size_t length, uint64_t *ret)
{
    uint64_t i = 0;
    for (const char *word = s->words; *word; i++) {
        size_t word_length = strcspn(word, " ");
        if (word_length == length && memcmp(word, text, length) == 0) {
            *ret = i;
            return true;
        }
        word += word_length;
        word += *word == ' ';
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
        if (!(s->words[0]  ? word_value
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

AT_START const char *settings_variable(const char *name)
{
    for (char **at = __environ; at && *at; at++) {
        size_t i = 0;
        while (name[i] && (*at)[i] == name[i])
            i++;
        if (!name[i] && (*at)[i] == '=')
            return *at + i + 1;
    }
    return NULL;
}

/* Not beside what every program runs. */
static __attribute__((noinline)) void environment_take(void)
{
    int saved = errno;
    const char *bad = secure_getenv(variable);
    malloc_settings.given = bad;
    while (bad) { /* from there on, again: the same comes of it */
        settings_parse(&malloc_settings, bad, &bad);
        if (!bad)
            break;
        complain(bad);
        bad += strcspn(bad, ",");
    }
    errno = saved;
}

AT_START void settings_read(void)
{
    if (malloc_settings.read || !__environ)
        return;
    malloc_settings.read = true;
    if (settings_variable(variable))
        environment_take();
}
