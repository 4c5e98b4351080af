/* What the resident memory of the chosen process is made of, on its page: looked at every few seconds, since it costs. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "cli/explain_print.h"
#include "cli/top.h"
#include "explain/explain.h"
#include "explain/sites.h"
#include "ledger/follow.h"
#include "ledger/ledger.h"

enum { LOOK_MS = 500, BAR_COLUMNS_MAX = 76 };
#define EXPLAIN_EVERY_NS (5 * NS_PER_S)

struct top_explained {
    struct explain explain;
    uint64_t taken_ns;
    pid_t pid;
    bool known;
};

/* NULL: it may not be read, or there is no room. */
static const struct explain *explained(struct top *t, pid_t pid)
{
    uint64_t now_ns = clock_monotonic_ns();
    struct top_explained *e = t->explained;
    if (!e)
        e = t->explained = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    if (e->pid != pid || now_ns - e->taken_ns > EXPLAIN_EVERY_NS) {
        e->known = explain_take_apart(pid, getuid(), LOOK_MS, &e->explain) == 0;
        if (e->known && t->source.follow)
            explain_live_by(&e->explain, ledger_process_find(follow_ledger(t->source.follow), pid));
        e->pid = pid;
        e->taken_ns = clock_monotonic_ns();
    }
    return e->known ? &e->explain : NULL;
}

bool top_explain_append(struct top *t, pid_t pid)
{
    const struct explain *e = explained(t, pid);
    if (!e || e->rss_bytes == 0)
        return false;
    unsigned columns = t->term.width > 4 ? t->term.width - 4 : 1;
    buffer_printf(&t->text, "\n%sResident memory by owner%s\n  ", term_style(&t->term, STYLE_TITLE),
                  term_plain(&t->term, STYLE_TITLE));
    explain_print_bar(e, columns < BAR_COLUMNS_MAX ? columns : BAR_COLUMNS_MAX, &t->term, &t->text);
    buffer_append_str(&t->text, "\n");
    struct buffer line = BUFFER_INIT(TOP_TEXT_MAX);
    explain_print_line(e, &t->term, &line);
    term_wrap(&t->text, buffer_string(&line), 2, t->term.width > 20 ? t->term.width - 1 : 20);
    buffer_release(&line);
    buffer_printf(&t->text, "  More: memoir explain %d\n", (int)pid);
    return explain_sum_malloc(e) < e->rss_bytes / 2;
}
