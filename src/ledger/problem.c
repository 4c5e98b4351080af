/* Books that do not count, and why. The first LEDGER_PROBLEMS_MAX are described, all are counted. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/rows.h"

/* DIR/NAME; too long a path loses its beginning, since the end tells more. */
static void path_join(char *ret_path, size_t size, const char *place, const char *name)
{
    const char *separator = *place && *name ? "/" : "";
    size_t len = strlen(place) + strlen(separator) + strlen(name);
    size_t cut = len < size ? 0 : len - size + 4;
    if (cut > strlen(place))
        cut = strlen(place);
    snprintf(ret_path, size, "%s%s%s%s", cut ? "..." : "", place + cut, separator, name);
}

void ledger_problem_add(struct ledger *ledger, enum ledger_problem_kind kind, int error,
                        uint32_t uid, const char *place, const char *name, const char *fmt, ...)
{
    ledger->problem_counts[kind]++;
    if (ledger->n_problems == LEDGER_PROBLEMS_MAX)
        return;
    if (!ledger->problems) {
        ledger->problems = calloc(LEDGER_PROBLEMS_MAX, sizeof(*ledger->problems));
        if (!ledger->problems)
            return;
    }
    struct ledger_problem problem = {.kind = kind, .error = error, .uid = uid};
    path_join(problem.where, sizeof(problem.where), place ? place : "", name ? name : "");
    va_list args;
    va_start(args, fmt);
    vsnprintf(problem.what, sizeof(problem.what), fmt, args);
    va_end(args);
    /* The same file may fail again and again: one line for it is enough. */
    for (size_t i = 0; i < ledger->n_problems; i++)
        if (ledger->problems[i].kind == kind &&
            strcmp(ledger->problems[i].where, problem.where) == 0)
            return;
    ledger->problems[ledger->n_problems++] = problem;
}

const struct ledger_problem *ledger_problems(const struct ledger *ledger, size_t *ret_n)
{
    *ret_n = ledger->n_problems;
    return ledger->problems;
}

uint64_t ledger_problem_count(const struct ledger *ledger, enum ledger_problem_kind kind)
{
    return kind < LEDGER_PROBLEM_KINDS ? ledger->problem_counts[kind] : 0;
}
