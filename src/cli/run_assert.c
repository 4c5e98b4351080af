/* See run_assert.h. */
#include "cli/run_assert.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/units.h"
#include "query/plan.h"

static const struct {
    const char *name;
    enum query_kind kind;
} facts_table[RUN_FACTS] = {
    [RUN_PEAK] = {"peak", QUERY_BYTES},
    [RUN_LIVE] = {"live", QUERY_BYTES},
    [RUN_BLOCKS] = {"blocks", QUERY_NUMBER},
    [RUN_ALLOCATED] = {"allocated", QUERY_BYTES},
    [RUN_ALLOCATIONS] = {"allocations", QUERY_NUMBER},
    [RUN_RSS] = {"rss", QUERY_BYTES},
    [RUN_LOST] = {"lost", QUERY_BYTES},
    [RUN_LOST_BLOCKS] = {"lost_blocks", QUERY_NUMBER},
    [RUN_DURATION] = {"duration", QUERY_AGE},
};

const char run_assertion_names[] =
    "peak, live, blocks, allocated, allocations, rss, lost, lost_blocks, duration";

static const char *const operators[] = {"<=", ">=", "!=", "==", "<", ">", "="};

static int name_take(const char **at, enum run_fact *ret)
{
    size_t n = strspn(*at, "abcdefghijklmnopqrstuvwxyz_");
    for (int i = 0; i < RUN_FACTS; i++)
        if (strlen(facts_table[i].name) == n && strncmp(*at, facts_table[i].name, n) == 0) {
            *ret = i;
            *at += n + strspn(*at + n, " ");
            return 0;
        }
    return -EINVAL;
}

static int operator_take(const char **at, char ret[static 3])
{
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        size_t n = strlen(operators[i]);
        if (strncmp(*at, operators[i], n) != 0)
            continue;
        snprintf(ret, 3, "%s", strcmp(operators[i], "==") == 0 ? "=" : operators[i]);
        *at += n + strspn(*at + n, " ");
        return 0;
    }
    return -EINVAL;
}

int run_assertion_parse(const char *text, struct run_assertion *ret, struct buffer *error)
{
    const char *at = text + strspn(text, " ");
    *ret = (struct run_assertion){.text = text};
    if (name_take(&at, &ret->fact) < 0) {
        buffer_printf(error, "invalid assertion '%s': expected one of %s", text,
                      run_assertion_names);
        return -EINVAL;
    }
    if (operator_take(&at, ret->operator) < 0) {
        buffer_printf(error, "invalid assertion '%s': expected <, <=, >, >=, = or != after '%s'",
                      text, facts_table[ret->fact].name);
        return -EINVAL;
    }
    enum query_kind kind = facts_table[ret->fact].kind;
    if (literal_parse(kind, at, &ret->value) < 0) {
        buffer_printf(error, "invalid value '%s' in assertion '%s': expected %s", at, text,
                      literal_example(kind));
        return -EINVAL;
    }
    return 0;
}

static bool holds(const struct run_assertion *a, uint64_t value)
{
    switch (a->operator[0]) {
    case '<':
        return a->operator[1] ? value <= a->value : value<a->value;
    case '>':
        return a->operator[1] ? value >= a->value : value> a->value;
    case '!':
        return value != a->value;
    default:
        return value == a->value;
    }
}

static const char *value_text(char text[static UNITS_TEXT_MAX], enum query_kind kind,
                              uint64_t value)
{
    return kind == QUERY_BYTES ? units_format_bytes(text, value, UNITS_DECIMAL)
           : kind == QUERY_AGE ? units_format_duration(text, value)
                               : units_format_count(text, value);
}

bool run_assertion_check(const struct run_assertion *a, const struct run_facts *facts,
                         struct buffer *out)
{
    char text[UNITS_TEXT_MAX];
    if (facts->known[a->fact] && holds(a, facts->values[a->fact]))
        return true;
    buffer_printf(out, "assertion '%s' failed: %s is ", a->text, facts_table[a->fact].name);
    if (!facts->known[a->fact])
        buffer_append_str(out, "not known");
    else
        buffer_append_str(out, value_text(text, facts_table[a->fact].kind, facts->values[a->fact]));
    if (facts->sites[a->fact][0])
        buffer_printf(out, "; %s", facts->sites[a->fact]);
    return false;
}
