/* memoir demo: simulated programs to look at, with a walk-through in plain words. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/demo_family.h"
#include "cli/ps.h"
#include "ledger/ledger.h"

enum {
    STEP_S = 4, /* between the acts of the opening */
    DEAD_S = 5, /* a killed client stays dead so long */
    RETIRE_PATIENCE_MS = 500,
    EARLY_DEATHS_MAX = 3, /* then something is wrong with it */
    TEXT_MAX = 1 << 20,
};

struct demo_values {
    struct command_common common;
    const char *dir;
    uint64_t duration_ns;
    uint64_t kill_ns;
    uint64_t clients;
    bool quiet;
    int color;
};

static const struct demo_values defaults = {
    .duration_ns = 120 * NS_PER_S,
    .kill_ns = 20 * NS_PER_S,
    .clients = FAMILY_ROLES,
};

#define AT(field) offsetof(struct demo_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"duration", 'd', OPTION_DURATION, AT(duration_ns), "SECONDS",
     "end after this time; 0 runs until Ctrl-C (default: 2 minutes)"},
    {"clients", 'n', OPTION_NUMBER, AT(clients), "N",
     "how many programs, the four kinds in turn (default: 4)"},
    {"kill-after", 'k', OPTION_DURATION, AT(kill_ns), "SECONDS",
     "kill each victim when it is this old (default: 20)"},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), .help = "start all at once and say nothing"},
    {"color", 0, OPTION_CHOICE, AT(color), "WHEN", "use colours: auto, always or never",
     .choices = term_color_words},
    {"dir", 0, OPTION_STRING, AT(dir), "DIR", "keep the books in DIR, which must lie in memory",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

static const struct command_example examples[] = {
    {"memoir demo", "the walk-through; type what it says in another terminal"},
    {"memoir demo --duration 0 --quiet &", "something to look at in the background"},
    {"memoir demo --clients 40", "a crowd"},
    {0},
};

struct demo {
    const struct demo_values *values;
    struct family family;
    struct term term;
    unsigned width;
    unsigned step;                       /* of the story, for people */
    uint64_t start_ns, end_ns;           /* end_ns 0: never */
    uint64_t due_ns[FAMILY_CLIENTS_MAX]; /* start, or kill, this client at that time */
    bool killed[FAMILY_CLIENTS_MAX];     /* by us, so nobody is surprised */
    bool introduced[FAMILY_CLIENTS_MAX];
    bool death_told;
    uint64_t summary_ns; /* when to show the table */
};

/* ---- words ---- */

/* A numbered step, or without a number what follows it, wrapped and indented. */
static void tell(struct demo *d, bool numbered, const char *fmt, ...)
{
    if (d->values->quiet)
        return;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TEXT_MAX);
    va_list args;
    va_start(args, fmt);
    buffer_vprintf(&text, fmt, args);
    va_end(args);
    term_wrap(&out, buffer_string(&text), 4, d->width);
    if (numbered)
        printf("\n%s%2u%s  %s", term_style(&d->term, STYLE_TITLE), ++d->step,
               term_plain(&d->term, STYLE_TITLE), buffer_string(&out) + 4);
    else
        fputs(buffer_string(&out), stdout);
    fflush(stdout);
}

/* What to type in another terminal. */
static void suggest(struct demo *d, const char *command, bool with_dir)
{
    if (d->values->quiet)
        return;
    printf("      %s$ %s", term_style(&d->term, STYLE_GOOD), command);
    if (d->values->dir && with_dir)
        printf(" --dir %s", d->values->dir);
    printf("%s\n", term_plain(&d->term, STYLE_GOOD));
    fflush(stdout);
}

static void show_table(struct demo *d)
{
    if (d->values->quiet)
        return;
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    MEMOIR_CLEANUP(ps_view_release)
    struct ps_view view = {0};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TEXT_MAX);
    struct ps_style style = {.header = true};
    if (ledger_scan(d->values->dir, &ledger) < 0 ||
        ps_view_live(ledger, &(struct ps_filter){0}, &view) < 0 ||
        ps_print(&view, &style, &d->term, &out) < 0)
        return;
    fputs(buffer_string(&out), stdout);
    fflush(stdout);
}

static void introduce(struct demo *d)
{
    char duration[UNITS_TEXT_MAX];
    if (d->values->quiet)
        return;
    printf("%sMemoir demo%s: %u simulated programs on two simulated accelerators.\n",
           term_style(&d->term, STYLE_TITLE), term_plain(&d->term, STYLE_TITLE), d->family.n);
    if (d->end_ns)
        printf("No memory is really held. Ends by itself after %s; Ctrl-C ends it now.\n",
               units_format_duration(duration, d->values->duration_ns));
    else
        printf("No memory is really held. Ctrl-C ends it.\n");
    printf("Type the green lines in another terminal.\n");
}

/* ---- events ---- */

static bool is_victim(const struct family_client *c)
{
    return c->role == &family_roles[FAMILY_ROLE_VICTIM];
}

static void plan_kill(struct demo *d, unsigned i)
{
    d->due_ns[i] = is_victim(&d->family.clients[i]) ? clock_monotonic_ns() + d->values->kill_ns : 0;
}

static int start(struct demo *d, unsigned i)
{
    struct family_client *c = &d->family.clients[i];
    int r = family_start(&d->family, i);
    if (r < 0)
        return r;
    d->killed[i] = false;
    plan_kill(d, i);
    if (d->introduced[i]) {
        tell(d, false, "%s starts anew as PID %d.", c->role->name, (int)c->pid);
        return 0;
    }
    d->introduced[i] = true;
    if (i >= FAMILY_ROLES)
        return 0; /* one of a kind is enough to explain */
    tell(d, true, "%s (PID %d) %s", c->role->name, (int)c->pid, c->role->story);
    char line[128];
    snprintf(line, sizeof(line), c->role->look, (int)c->pid);
    suggest(d, line, true);
    return 0;
}

/* How long after its death a process is gone from the books: UINT64_MAX when it stays. */
static uint64_t time_to_vanish(struct demo *d, pid_t pid, uint64_t died_ns)
{
    for (int waited = 0; waited < RETIRE_PATIENCE_MS; waited++) {
        MEMOIR_CLEANUP(ledger_freep)
        struct ledger *ledger = NULL;
        if (ledger_scan(d->values->dir, &ledger) == 0 && !ledger_process_find(ledger, pid))
            return clock_monotonic_ns() - died_ns;
        nanosleep(&(struct timespec){0, (long)NS_PER_MS}, NULL);
    }
    return UINT64_MAX;
}

/* The first time with an explanation. */
static void tell_death(struct demo *d, pid_t pid, uint64_t vanished_ns, bool explain)
{
    char text[UNITS_TEXT_MAX];
    bool vanished = vanished_ns != UINT64_MAX;
    if (vanished)
        units_format_duration(text, vanished_ns);
    if (!explain && vanished)
        tell(d, false, "kill -9 %d: gone from the books %s later.", (int)pid, text);
    else if (!explain)
        tell(d, false, "kill -9 %d: its last book stays, as \"exited\".", (int)pid);
    else if (vanished)
        tell(
            d, true,
            "kill -9 %d: the victim is dead, and its buffers, circular buffers and kernels were gone "
            "from the books %s later. The daemon remembers what it held:",
            (int)pid, text);
    else
        tell(
            d, true,
            "kill -9 %d: the victim is dead. No daemon watches, so its last book stays readable, and "
            "its row says \"exited\"; with memoird running it would be gone within milliseconds.",
            (int)pid);
    if (explain)
        suggest(d, vanished ? "memoir ps --exited --blocks" : "memoir ps", !vanished);
}

static void kill_victim(struct demo *d, unsigned i)
{
    struct family_client *c = &d->family.clients[i];
    pid_t pid = c->pid;
    uint64_t now_ns = clock_monotonic_ns();
    d->killed[i] = true;
    d->due_ns[i] = now_ns + DEAD_S * NS_PER_S;
    kill(pid, SIGKILL);
    if (d->values->quiet)
        return;
    uint64_t vanished_ns = time_to_vanish(d, pid, now_ns);
    tell_death(d, pid, vanished_ns, !d->death_told);
    d->death_told = true;
}

/* A child ended. 0, or -EPIPE when it cannot be kept alive. */
static int bury(struct demo *d, unsigned i, int status)
{
    struct family_client *c = &d->family.clients[i];
    if (d->killed[i])
        return 0;
    if (c->early_deaths >= EARLY_DEATHS_MAX) {
        command_fail("demo: '%s/%s' ends at once%s", d->family.programs, c->role->name,
                     WIFEXITED(status) && WEXITSTATUS(status) == 127 ? ": it cannot be started"
                                                                     : "");
        return -EPIPE;
    }
    d->due_ns[i] = clock_monotonic_ns() + DEAD_S * NS_PER_S;
    d->killed[i] = true;
    if (WIFSIGNALED(status))
        tell(d, false, "%s was killed by signal %d (%s); it will start anew.", c->role->name,
             WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        tell(d, false, "%s ended; it will start anew.", c->role->name);
    return 0;
}

static int reap(struct demo *d)
{
    int status, i;
    while ((i = family_reap(&d->family, &status)) >= 0) {
        int r = bury(d, (unsigned)i, status);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Everything that is due. */
static int act(struct demo *d, uint64_t now_ns)
{
    for (unsigned i = 0; i < d->family.n; i++) {
        struct family_client *c = &d->family.clients[i];
        if (!d->due_ns[i] || d->due_ns[i] > now_ns)
            continue;
        if (c->pid) {
            kill_victim(d, i);
            continue;
        }
        int r = start(d, i);
        if (r < 0)
            return r;
    }
    if (d->summary_ns && d->summary_ns <= now_ns) {
        d->summary_ns = 0;
        tell(d, true, "This is what memoir ps shows now:\n");
        show_table(d);
    }
    return 0;
}

static uint64_t next_event_ns(const struct demo *d)
{
    uint64_t next = d->end_ns ? d->end_ns : UINT64_MAX;
    if (d->summary_ns && d->summary_ns < next)
        next = d->summary_ns;
    for (unsigned i = 0; i < d->family.n; i++)
        if (d->due_ns[i] && d->due_ns[i] < next)
            next = d->due_ns[i];
    return next;
}

static void schedule(struct demo *d)
{
    uint64_t step_ns = d->values->quiet ? 0 : STEP_S * NS_PER_S;
    d->start_ns = clock_monotonic_ns();
    d->end_ns = d->values->duration_ns ? d->start_ns + d->values->duration_ns : 0;
    for (unsigned i = 0; i < d->family.n; i++)
        d->due_ns[i] = d->start_ns + (i < FAMILY_ROLES ? i : 0) * step_ns;
    d->summary_ns = d->values->quiet ? 0 : d->start_ns + FAMILY_ROLES * step_ns;
}

/* Until the end or a signal. Signals are blocked and taken here, so nothing happens in between. */
static int play(struct demo *d, const sigset_t *signals)
{
    for (;;) {
        uint64_t now_ns = clock_monotonic_ns();
        if (d->end_ns && now_ns >= d->end_ns)
            return COMMAND_OK;
        int r = act(d, now_ns);
        if (r == 0)
            r = reap(d);
        if (r < 0)
            return r == -EPIPE ? COMMAND_FAILED : r;
        uint64_t next_ns = next_event_ns(d);
        uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
        if (wait_ns > 3600 * NS_PER_S)
            wait_ns = 3600 * NS_PER_S;
        struct timespec timeout = {(time_t)(wait_ns / NS_PER_S), (long)(wait_ns % NS_PER_S)};
        int number = sigtimedwait(signals, NULL, &timeout);
        if (number > 0 && number != SIGCHLD)
            return COMMAND_OK;
    }
}

/* With no daemon the books of those that we killed would stay for a while, as they should after a
 * real death; a demo leaves nothing behind. */
static void tidy(const struct demo *d)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    if (ledger_scan(d->values->dir, &ledger) < 0)
        return;
    size_t n;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    for (size_t i = 0; i < n; i++) {
        const struct ledger_process *p = processes[i];
        if (p->state != LEDGER_EXITED || p->parent_pid != getpid() || p->foreign_ns)
            continue;
        for (size_t b = 0; b < p->n_books; b++)
            if (p->books[b]->name[0])
                unlinkat(p->books[b]->dirfd, p->books[b]->name, 0);
    }
}

static int run(const void *values, const struct operands *operands)
{
    struct demo d = {.values = values};
    if (d.values->clients == 0 || d.values->clients > FAMILY_CLIENTS_MAX)
        return command_misuse(&cmd_demo, "--clients goes from 1 to %d", FAMILY_CLIENTS_MAX);
    if (d.values->kill_ns < NS_PER_S)
        return command_misuse(&cmd_demo, "--kill-after is a second at least");
    if (command_check_dir(d.values->dir) != COMMAND_OK)
        return COMMAND_FAILED;
    if (d.values->dir && setenv("MEMOIR_DIR", d.values->dir, 1) < 0)
        return -errno;
    term_init(&d.term, STDOUT_FILENO, (enum term_color)d.values->color);
    d.width = d.term.width && d.term.width < 100 ? d.term.width : 100;
    int r = family_init(&d.family, (unsigned)d.values->clients);
    if (r < 0)
        return command_fail("demo: its programs (%s, ...) are not where this one is, nor in "
                            "../libexec/memoir/demo: %s",
                            family_roles[0].name, strerror(-r));
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    schedule(&d);
    introduce(&d);
    r = play(&d, &signals);
    family_end(&d.family);
    tidy(&d);
    if (r == COMMAND_OK)
        tell(&d, true, "The end: all programs of the demo are gone.");
    return r;
}

const struct command cmd_demo = {
    .name = "demo",
    .usage = "demo [OPTION...]",
    .help = "simulated programs to look at, one of which leaks and one of which gets killed",
    .description =
        "Runs several small programs that report allocations on two simulated accelerators, and says "
        "step by step what happens and what to type in another terminal to see it: a training job, an "
        "inference server whose cache fills and empties, a service that leaks, and a victim that is "
        "killed again and again so that one can watch the clean-up.\n\n"
        "The reports are real, the memory is not: nothing is allocated on any device. All programs "
        "end when the demo ends, however it ends.",
    .options = options,
    .examples = examples,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
