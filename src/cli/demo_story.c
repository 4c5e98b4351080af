/* Words and pictures of the demo. See demo_story.h. */
#include "cli/demo_story.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/devices.h"
#include "ledger/ledger.h"

enum {
    TEXT_MAX = 1 << 20,
    INDENT = 4,
    VANISH_PATIENCE_MS = 2000,
    RETIRE_PATIENCE_MS = 200, /* more, for a daemon to retire the book */
};

/* ---- words ---- */

static void say(struct story *s, bool numbered, const char *fmt, va_list args)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TEXT_MAX);
    if (s->quiet)
        return;
    if (numbered)
        buffer_printf(&text, "[Step %u] ", ++s->step);
    buffer_vprintf(&text, fmt, args);
    term_wrap(&out, buffer_string(&text), INDENT, s->width);
    if (!numbered) {
        fputs(buffer_string(&out), stdout);
        fflush(stdout);
        return;
    }
    const char *line = buffer_string(&out) + INDENT;
    const char *end = strchr(line, ']') + 1;
    printf("\n%s%.*s%s%s", term_style(&s->term, STYLE_TITLE), (int)(end - line), line,
           term_plain(&s->term, STYLE_TITLE), end);
    fflush(stdout);
}

void story_step(struct story *story, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(story, true, fmt, args);
    va_end(args);
}

void story_say(struct story *story, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(story, false, fmt, args);
    va_end(args);
}

void story_suggest(struct story *s, const char *command, bool with_dir)
{
    if (s->quiet)
        return;
    printf("      %s$ %s", term_style(&s->term, STYLE_GOOD), command);
    if (s->dir && with_dir)
        printf(" --dir %s", s->dir);
    printf("%s\n", term_plain(&s->term, STYLE_GOOD));
    fflush(stdout);
}

/* ---- pictures ---- */

void story_devices(struct story *s)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {0};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TEXT_MAX);
    if (s->quiet || ledger_scan(s->dir, &ledger) < 0 || devices_view_take(ledger, NULL, &view) < 0)
        return;
    devices_print(&view, &(struct devices_style){.owners = true}, &s->term, &out);
    fputs("\n", stdout);
    fputs(buffer_string(&out), stdout);
    fflush(stdout);
}

static struct story_figures figures_in(struct ledger *ledger, int device)
{
    struct story_figures f = {0};
    char number[16];
    snprintf(number, sizeof(number), "%d", device);
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {0};
    if (devices_view_take(ledger, number, &view) < 0 || view.n == 0)
        return f;
    const struct devices_row *row = &view.rows[0];
    for (size_t i = 0; i < row->n_spaces; i++)
        if (row->spaces[i].space == MEMOIR_SPACE_DRAM)
            f.dram = row->spaces[i].used;
    f.buffers = row->l1_parts[DEVICES_L1_BUFFERS].used;
    f.cbs = row->l1_parts[DEVICES_L1_CBS].used;
    f.kernels = row->l1_parts[DEVICES_L1_KERNELS].used;
    f.known = true;
    return f;
}

struct story_figures story_figures(const struct story *s, int device)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    if (ledger_scan(s->dir, &ledger) < 0)
        return (struct story_figures){0};
    return figures_in(ledger, device);
}

void story_compare(struct story *s, int device, const struct story_figures *before,
                   const struct story_figures *after)
{
    const struct {
        const char *name;
        uint64_t before, after;
    } rows[] = {
        {"DRAM", before->dram, after->dram},
        {"L1 buffers", before->buffers, after->buffers},
        {"L1 circular buffers", before->cbs, after->cbs},
        {"L1 kernels", before->kernels, after->kernels},
    };
    if (s->quiet || !before->known || !after->known)
        return;
    printf("      %sdevice %d                 before     after%s\n",
           term_style(&s->term, STYLE_DIM), device, term_plain(&s->term, STYLE_DIM));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char x[UNITS_TEXT_MAX], y[UNITS_TEXT_MAX];
        printf("      %-20s  %9s %9s\n", rows[i].name,
               units_format_bytes(x, rows[i].before, UNITS_DECIMAL),
               units_format_bytes(y, rows[i].after, UNITS_DECIMAL));
    }
    fflush(stdout);
}

/* ---- questions ---- */

uint64_t story_held(const struct story *s, pid_t pid)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    uint64_t bytes = 0;
    if (ledger_scan(s->dir, &ledger) < 0)
        return 0;
    const struct ledger_process *p = ledger_process_find(ledger, pid);
    for (size_t i = 0; p && i < p->n_accounts; i++)
        if (p->accounts[i].device && p->accounts[i].valid)
            bytes += p->accounts[i].totals.live_bytes;
    return bytes;
}

struct story_death story_vanished(const struct story *s, pid_t pid, int device, uint64_t died_ns)
{
    struct story_death death = {.vanished_ns = UINT64_MAX};
    int left = VANISH_PATIENCE_MS;
    while (left-- > 0 && !death.retired) {
        MEMOIR_CLEANUP(ledger_freep)
        struct ledger *ledger = NULL;
        if (ledger_scan(s->dir, &ledger) == 0) {
            const struct ledger_process *p = ledger_process_find(ledger, pid);
            if (death.vanished_ns == UINT64_MAX && (!p || !ledger_process_holds(p))) {
                death.vanished_ns = clock_monotonic_ns() - died_ns;
                death.after = figures_in(ledger, device); /* others go on: not a moment later */
                left = RETIRE_PATIENCE_MS;
            }
            death.retired = !p;
        }
        nanosleep(&(struct timespec){0, (long)NS_PER_MS}, NULL);
    }
    return death;
}
