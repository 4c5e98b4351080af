/* Taking targets apart. See target.h. */
#include "http/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decode in place up to `end`. The new end, or NULL with what is wrong. */
static char *decode(char *at, const char *end, bool plus_is_space, const char **ret_error)
{
    char *to = at;
    while (at < end) {
        unsigned char c = (unsigned char)*at++;
        if (c == '%') {
            int high = at < end ? hex_digit(*at) : -1;
            int low = high >= 0 && at + 1 < end ? hex_digit(at[1]) : -1;
            if (low < 0) {
                *ret_error = "a percent sign that two hexadecimal digits do not follow";
                return NULL;
            }
            c = (unsigned char)(high << 4 | low);
            at += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (c < 0x20 || c == 0x7f) {
            *ret_error = "a control character";
            return NULL;
        }
        *to++ = (char)c;
    }
    *to = '\0';
    return to;
}

static bool path_is_plain(const char *path)
{
    for (const char *part = path; *part == '/'; part += strcspn(part, "/")) {
        part++;
        size_t len = strcspn(part, "/");
        if ((len == 1 && part[0] == '.') || (len == 2 && part[0] == '.' && part[1] == '.'))
            return false;
    }
    return !strchr(path, '\\');
}

static int pair_add(struct target *target, char *at, char *end, const char **ret_error)
{
    if (at == end)
        return 0; /* "a=1&&b=2" */
    if (target->n_pairs == TARGET_PAIRS_MAX) {
        *ret_error = "too many arguments";
        return -E2BIG;
    }
    struct target_pair *pair = &target->pairs[target->n_pairs];
    char *equals = memchr(at, '=', (size_t)(end - at));
    pair->name = at;
    pair->value = equals ? equals + 1 : NULL;
    /* The value first: decoding the name puts its terminator where the equals sign is, or before. */
    if (equals && !decode(equals + 1, end, true, ret_error))
        return -EINVAL;
    if (!decode(at, equals ? equals : end, true, ret_error))
        return -EINVAL;
    target->n_pairs++;
    return 0;
}

static int split(struct target *target, const char **ret_error)
{
    char *question = strchr(target->text, '?');
    char *path_end = question ? question : target->text + strlen(target->text);
    if (target->text[0] != '/') {
        *ret_error = "a target that does not begin with a slash";
        return -EINVAL;
    }
    char *rest = question ? question + 1 : NULL;
    /* The arguments end where the text does: decoding one writes its terminator over the '&' behind it. */
    while (rest) {
        char *end = strchr(rest, '&');
        char *stop = end ? end : rest + strlen(rest);
        int r = pair_add(target, rest, stop, ret_error);
        if (r < 0)
            return r;
        rest = end ? end + 1 : NULL;
    }
    if (!decode(target->text, path_end, false, ret_error))
        return -EINVAL;
    target->path = target->text;
    if (!path_is_plain(target->path)) {
        *ret_error = "a path with dots or backslashes for parts";
        return -EINVAL;
    }
    return 0;
}

int target_parse(const char *raw, struct target *ret_target, const char **ret_error)
{
    struct target target = {0};
    size_t len = strlen(raw);
    if (len > HTTP_TARGET_MAX) {
        *ret_error = "a path with arguments that is too long";
        return -E2BIG;
    }
    target.text = strdup(raw);
    if (!target.text) {
        *ret_error = "out of memory";
        return -ENOMEM;
    }
    int r = split(&target, ret_error);
    if (r < 0) {
        free(target.text);
        return r;
    }
    *ret_target = target;
    return 0;
}

void target_release(struct target *target)
{
    free(target->text);
    *target = (struct target){0};
}
