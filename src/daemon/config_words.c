/* Text work of the configuration. */
#include "daemon/config_words.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
    return text;
}

int config_split_line(char *line, char **ret_name, char **ret_value)
{
    char *text = trim(line);
    if (!*text || *text == '#')
        return 0;
    char *equals = strchr(text, '=');
    if (!equals)
        return -EINVAL;
    *equals = '\0';
    char *name = trim(text), *value = trim(equals + 1);
    if (*value == '"') {
        char *end = strchr(value + 1, '"');
        if (!end)
            return -EINVAL;
        *end = '\0';
        char *rest = trim(end + 1);
        if (*rest && *rest != '#')
            return -EINVAL;
        value++;
    } else {
        /* A comment begins after a space, so that a path may hold a '#'. */
        for (char *at = value; *at; at++)
            if (*at == '#' && (at == value || isspace((unsigned char)at[-1]))) {
                *at = '\0';
                break;
            }
        value = trim(value);
    }
    if (!*name)
        return -EINVAL;
    *ret_name = name;
    *ret_value = value;
    return 1;
}

enum { WORD_MAX = 48 };

/* How many letters to add, drop or change to get from one word to the other. */
static size_t distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la > WORD_MAX || lb > WORD_MAX)
        return WORD_MAX;
    size_t row[WORD_MAX + 1];
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[lb];
}

const char *config_nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 1; /* farther than that is another word */
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, names[i]);
        if (d <= best_distance && (!best || d < best_distance)) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

/* $VARIABLE/TAIL, else $HOME/FALLBACK/TAIL. */
static char *home_path(const char *variable, const char *fallback, const char *tail)
{
    const char *base = getenv(variable), *home = getenv("HOME");
    char *path = NULL;
    int n = -1;
    if (base && base[0] == '/')
        n = asprintf(&path, "%s/%s", base, tail);
    else if (home && home[0] == '/')
        n = asprintf(&path, "%s/%s/%s", home, fallback, tail);
    return n < 0 ? NULL : path;
}

char *config_default_file(void)
{
    if (geteuid() == 0)
        return strdup("/etc/memoir/memoird.conf");
    return home_path("XDG_CONFIG_HOME", ".config", "memoir/memoird.conf");
}

char *config_default_state(void)
{
    if (geteuid() == 0)
        return strdup("/var/lib/memoir");
    return home_path("XDG_STATE_HOME", ".local/state", "memoir");
}
