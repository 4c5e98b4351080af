/* The parser of option tables. See options.h. */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "base/units.h"

enum {
    NEAREST_WORD_MAX = 40, /* longer words were not meant to be options */
    NEAREST_WORDS_MAX = 64,
};

static void *field(void *values, size_t offset)
{
    return (char *)values + offset;
}

const char *options_nearest(const char *word, const char *const *words)
{
    return nearest_word(word, words);
}

void options_format(const struct option_spec *spec, struct buffer *out)
{
    if (spec->letter)
        buffer_printf(out, "-%c, ", spec->letter);
    buffer_printf(out, "--%s", spec->name);
    if (!spec->value)
        return;
    if (spec->value_optional)
        buffer_printf(out, "[=%s]", spec->value);
    else
        buffer_printf(out, " %s", spec->value);
}

static const struct option_spec *find_long(const struct option_spec *specs, const char *name,
                                           size_t len)
{
    for (; specs->name; specs++)
        if (strlen(specs->name) == len && memcmp(specs->name, name, len) == 0)
            return specs;
    return NULL;
}

static const struct option_spec *find_letter(const struct option_spec *specs, char letter)
{
    for (; specs->name; specs++)
        if (specs->letter == letter)
            return specs;
    return NULL;
}

static int fail_unknown(const struct option_spec *specs, const char *name, size_t len,
                        struct buffer *error)
{
    const char *words[NEAREST_WORDS_MAX + 1] = {NULL};
    size_t n = 0;
    for (; specs->name && n < NEAREST_WORDS_MAX; specs++)
        if (!specs->hidden)
            words[n++] = specs->name;
    char typed[NEAREST_WORD_MAX + 1] = "";
    if (len <= NEAREST_WORD_MAX)
        memcpy(typed, name, len);
    const char *nearest = options_nearest(typed, words);
    buffer_printf(error, "unknown option '--%.*s'", (int)len, name);
    if (nearest)
        buffer_printf(error, ", did you mean '--%s'?", nearest);
    return -EINVAL;
}

static int parse_number(const char *text, uint64_t *ret_number)
{
    if (!isdigit((unsigned char)*text))
        return -EINVAL; /* strtoull() takes signs and spaces */
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno)
        return -errno;
    if (*end)
        return -EINVAL;
    *ret_number = n;
    return 0;
}

static int parse_duration(const char *text, uint64_t *ret_ns)
{
    uint64_t ns;
    int r = units_parse_duration(text, &ns);
    if (r == -EINVAL) {
        struct buffer seconds = BUFFER_INIT(256);
        buffer_printf(&seconds, "%ss", text);
        r = isdigit((unsigned char)*text) ? units_parse_duration(buffer_string(&seconds), &ns)
                                          : -EINVAL;
        buffer_release(&seconds);
    }
    if (r == 0)
        *ret_ns = ns;
    return r;
}

static int parse_choice(const struct option_spec *spec, const char *text, int *ret_index)
{
    for (int i = 0; spec->choices[i]; i++) {
        if (strcmp(spec->choices[i], text) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return -EINVAL;
}

static int strings_add(const char *text, struct option_strings *strings)
{
    if (strings->n == OPTION_STRINGS_MAX)
        return -E2BIG;
    strings->all[strings->n++] = text;
    return 0;
}

static int fail_value(const struct option_spec *spec, const char *text, int r, struct buffer *error)
{
    if (spec->type == OPTION_CHOICE) {
        buffer_printf(error, "invalid value '%s' for --%s; expected ", text, spec->name);
        for (int i = 0; spec->choices[i]; i++)
            buffer_printf(error, "%s%s",
                          i == 0                 ? ""
                          : spec->choices[i + 1] ? ", "
                                                 : " or ",
                          spec->choices[i]);
        const char *nearest = options_nearest(text, spec->choices);
        if (nearest)
            buffer_printf(error, "; did you mean '%s'?", nearest);
    } else if (r == -E2BIG) {
        buffer_printf(error, "--%s can be given %d times at most", spec->name, OPTION_STRINGS_MAX);
    } else if (r == -ERANGE) {
        buffer_printf(error, "'%s' is too large for --%s", text, spec->name);
    } else {
        buffer_printf(error, "invalid %s '%s' for --%s%s",
                      spec->type == OPTION_NUMBER ? "number" : "duration", text, spec->name,
                      spec->type == OPTION_NUMBER ? "" : "; examples: 90, 1.5s, 2m");
    }
    return -EINVAL;
}

static int set_value(const struct option_spec *spec, const char *text, void *values,
                     struct buffer *error)
{
    int r = 0;
    void *to = field(values, spec->offset);
    switch (spec->type) {
    case OPTION_FLAG:
        *(bool *)to = true;
        break;
    case OPTION_STRING:
        *(const char **)to = text;
        break;
    case OPTION_STRINGS:
        r = strings_add(text, to);
        break;
    case OPTION_NUMBER:
        r = parse_number(text, to);
        break;
    case OPTION_DURATION:
        r = parse_duration(text, to);
        break;
    case OPTION_CHOICE:
        r = parse_choice(spec, text, to);
        break;
    }
    return r < 0 ? fail_value(spec, text, r, error) : 0;
}

/* An optional value may stand in the next word only where it cannot be mistaken. */
static bool takes_next(const struct option_spec *spec, const char *next)
{
    return !spec->value_optional || (next && isdigit((unsigned char)*next));
}

/* One option whose value, if any, is `attached` or argv[*i + 1]. */
static int take(const struct option_spec *spec, const char *attached, int argc, char **argv, int *i,
                void *values, struct buffer *error)
{
    if (spec->value_optional)
        *(bool *)field(values, spec->given_offset) = true;
    if (spec->type == OPTION_FLAG) {
        if (attached) {
            buffer_printf(error, "option '--%s' takes no value", spec->name);
            return -EINVAL;
        }
        return set_value(spec, NULL, values, error);
    }
    const char *text = attached;
    if (!text && takes_next(spec, *i + 1 < argc ? argv[*i + 1] : NULL) && *i + 1 < argc)
        text = argv[++*i];
    if (text)
        return set_value(spec, text, values, error);
    if (spec->value_optional)
        return 0;
    buffer_printf(error, "option '--%s' needs a value: --%s %s", spec->name, spec->name,
                  spec->value);
    return -EINVAL;
}

static int take_long(const struct option_spec *specs, int argc, char **argv, int *i, void *values,
                     struct buffer *error)
{
    const char *name = argv[*i] + 2;
    const char *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const struct option_spec *spec = find_long(specs, name, len);
    if (!spec)
        return fail_unknown(specs, name, len, error);
    return take(spec, equals ? equals + 1 : NULL, argc, argv, i, values, error);
}

/* "-j", "-jw", "-skey", "-s key" */
static int take_letters(const struct option_spec *specs, int argc, char **argv, int *i,
                        void *values, struct buffer *error)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct option_spec *spec = find_letter(specs, *p);
        if (!spec) {
            buffer_printf(error, "unknown option '-%c'", *p);
            return -EINVAL;
        }
        bool last = spec->type != OPTION_FLAG;
        const char *attached = last && p[1] ? p + 1 : NULL;
        int r = take(spec, attached, argc, argv, i, values, error);
        if (r < 0 || last)
            return r;
    }
    return 0;
}

static int parse(const struct option_spec *specs, int argc, char **argv, void *values, bool head,
                 struct operands *ret_operands, struct buffer *error)
{
    int n = 0; /* operands, gathered at argv[1 ..] over words already used */
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        int r = 0;
        bool end = strcmp(word, "--") == 0;
        if (end || (head && (word[0] != '-' || !word[1]))) {
            for (i += end; i < argc; i++)
                argv[1 + n++] = argv[i];
            break;
        }
        if (strncmp(word, "--", 2) == 0)
            r = take_long(specs, argc, argv, &i, values, error);
        else if (word[0] == '-' && word[1])
            r = take_letters(specs, argc, argv, &i, values, error);
        else
            argv[1 + n++] = argv[i];
        if (r < 0)
            return r;
    }
    argv[1 + n] = NULL; /* where one was used up, or where it was already */
    *ret_operands = (struct operands){.words = argv + 1, .n = n};
    return 0;
}

int options_parse(const struct option_spec *specs, int argc, char **argv, void *values,
                  struct operands *ret_operands, struct buffer *error)
{
    return parse(specs, argc, argv, values, false, ret_operands, error);
}

int options_parse_head(const struct option_spec *specs, int argc, char **argv, void *values,
                       struct operands *ret_operands, struct buffer *error)
{
    return parse(specs, argc, argv, values, true, ret_operands, error);
}
