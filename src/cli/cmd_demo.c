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
#include "cli/demo_story.h"
#include "ledger/ledger.h"

enum {
    STEP_MS = 4000, /* between the acts of the opening */
    STEP_FAST_MS = 400,
    KILL_S = 20, /* age at which a victim is killed */
    KILL_FAST_S = 2,
    DURATION_S = 120,
    DURATION_FAST_S = 8,
    DEAD_S = 5,           /* a killed client stays dead so long */
    EARLY_DEATHS_MAX = 3, /* then something is wrong with it */
};

struct demo_values {
    struct command_common common;
    const char *dir;
    uint64_t duration_ns;
    uint64_t kill_ns; /* 0: the usual age */
    uint64_t clients;
    bool fast, quiet;
    int color;
};

static const struct demo_values defaults = {
    .duration_ns = UINT64_MAX, /* the usual time */
    .clients = FAMILY_ROLES,
};

#define AT(field) offsetof(struct demo_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"duration", 'd', OPTION_DURATION, AT(duration_ns), "TIME",
     "end after this time; 0 runs until Ctrl-C (default: 2 minutes)"},
    {"clients", 'n', OPTION_NUMBER, AT(clients), "N",
     "how many programs, the four kinds in turn (default: 4)"},
    {"kill-after", 'k', OPTION_DURATION, AT(kill_ns), "TIME",
     "kill each victim when it is this old (default: 20)"},
    {"fast", 'f', OPTION_FLAG, AT(fast),
     .help = "short version: 8 seconds, and a victim dies at 2"},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), .help = "start all at once and say nothing"},
    OPTION_COLOR,
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
    struct story story;
    uint64_t step_ns, kill_ns;           /* between the acts of the opening; age of a victim */
    uint64_t start_ns, end_ns;           /* end_ns 0: never */
    uint64_t due_ns[FAMILY_CLIENTS_MAX]; /* start, or kill, this client at that time */
    bool killed[FAMILY_CLIENTS_MAX];     /* by us: expected */
    bool introduced[FAMILY_CLIENTS_MAX];
    bool death_told;
    size_t scene;                 /* the next one of scenes[] */
    uint64_t scene_ns;            /* when; 0: there is none */
    uint64_t leak_ns, leak_bytes; /* what the leaking one held, and when */
};

static void introduce(struct demo *d)
{
    char duration[UNITS_TEXT_MAX];
    const struct term *term = &d->story.term;
    if (d->values->quiet)
        return;
    printf("%sMemoir demo%s: %u simulated programs on two simulated accelerators.\n",
           term_style(term, STYLE_TITLE), term_plain(term, STYLE_TITLE), d->family.n);
    if (d->end_ns)
        printf("No memory is really held. Ends by itself after %s; Ctrl-C ends it now.\n",
               units_format_duration(duration, d->end_ns - d->start_ns));
    else
        printf("No memory is really held. Ctrl-C ends it.\n");
    printf("Type the %s lines in another terminal. To see all of it live, begin with:\n",
           term->color ? "green" : "$");
    story_suggest(&d->story, "memoir devices --watch", true);
}

/* ---- events ---- */

static bool is_victim(const struct family_client *c)
{
    return c->role == &family_roles[FAMILY_ROLE_VICTIM];
}

static void plan_kill(struct demo *d, unsigned i)
{
    d->due_ns[i] = is_victim(&d->family.clients[i]) ? clock_monotonic_ns() + d->kill_ns : 0;
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
        story_say(&d->story, "%s starts anew as PID %d.", c->role->name, (int)c->pid);
        return 0;
    }
    d->introduced[i] = true;
    if (i >= FAMILY_ROLES)
        return 0; /* one of a kind is enough to explain */
    story_step(&d->story, "%s (PID %d) %s", c->role->name, (int)c->pid, c->role->story);
    char line[128];
    snprintf(line, sizeof(line), c->role->look, (int)c->pid);
    story_suggest(&d->story, line, true);
    return 0;
}

/* The first time with an explanation. */
static void tell_death(struct demo *d, pid_t pid, const struct story_figures *before,
                       const struct story_death *death)
{
    char text[UNITS_TEXT_MAX] = "a while";
    struct story *story = &d->story;
    if (death->vanished_ns != UINT64_MAX)
        units_format_duration(text, death->vanished_ns);
    if (d->death_told) {
        story_say(story, "kill -9 %d: its memory no longer counted %s later.", (int)pid, text);
        return;
    }
    d->death_told = true;
    story_step(
        story,
        "kill -9 %d: the victim had no chance to free anything. %s later its buffers, circular "
        "buffers and kernels were gone from the totals:",
        (int)pid, text);
    int device = family_roles[FAMILY_ROLE_VICTIM].device;
    story_compare(story, device, before, &death->after);
    if (death->retired) {
        story_say(story, "The daemon remembers what it held, and how it died:");
        story_suggest(story, "memoir ps --exited --blocks", false);
    } else {
        story_say(story,
                  "No daemon runs, so its last book is still there to be read, as \"exited\"; "
                  "memoird would retire it and remember how it died:");
        story_suggest(story, "memoir ps", true);
    }
}

static void kill_victim(struct demo *d, unsigned i)
{
    struct family_client *c = &d->family.clients[i];
    pid_t pid = c->pid;
    uint64_t now_ns = clock_monotonic_ns();
    d->killed[i] = true;
    d->due_ns[i] = now_ns + DEAD_S * NS_PER_S;
    if (d->values->quiet) {
        kill(pid, SIGKILL);
        return;
    }
    struct story_figures before = story_figures(&d->story, c->role->device);
    now_ns = clock_monotonic_ns();
    kill(pid, SIGKILL);
    struct story_death death = story_vanished(&d->story, pid, c->role->device, now_ns);
    tell_death(d, pid, &before, &death);
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
        story_say(&d->story, "%s was killed by signal %d (%s); it will start anew.", c->role->name,
                  WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        story_say(&d->story, "%s ended; it will start anew.", c->role->name);
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

/* ---- scenes between the starts and the end ---- */

static void scene_devices(struct demo *d)
{
    story_step(&d->story, "All are there. This is what memoir devices shows now:");
    story_devices(&d->story);
    const struct family_client *leaky = &d->family.clients[FAMILY_ROLE_LEAKY];
    if (d->family.n > FAMILY_ROLE_LEAKY && leaky->pid) {
        d->leak_bytes = story_held(&d->story, leaky->pid);
        d->leak_ns = clock_monotonic_ns();
    }
}

static void scene_leak(struct demo *d)
{
    char before[UNITS_TEXT_MAX], now[UNITS_TEXT_MAX], time[UNITS_TEXT_MAX], line[128];
    if (d->family.n <= FAMILY_ROLE_LEAKY || !d->family.clients[FAMILY_ROLE_LEAKY].pid)
        return;
    pid_t pid = d->family.clients[FAMILY_ROLE_LEAKY].pid;
    uint64_t bytes = story_held(&d->story, pid);
    story_step(
        &d->story,
        "The leak: leaky (PID %d) held %s, and %s %s later. Its oldest buffers tell which line "
        "of code never freed them:",
        (int)pid, units_format_bytes(before, d->leak_bytes, UNITS_DECIMAL),
        units_format_bytes(now, bytes, UNITS_DECIMAL),
        units_format_duration(time, clock_monotonic_ns() - d->leak_ns));
    snprintf(line, sizeof(line), "memoir buffers --pid %d --sort age", (int)pid);
    story_suggest(&d->story, line, true);
}

static void scene_more(struct demo *d)
{
    story_step(&d->story, "It goes on like this until the end. There is more to see:");
    story_suggest(&d->story, "memoir log --min 1M", true);
    story_suggest(&d->story, "memoir ps --wide", true);
    story_suggest(&d->story, "memoir devices --json", true);
}

static const struct {
    void (*play)(struct demo *d);
    unsigned pause; /* steps until the next one */
} scenes[] = {{scene_devices, 2}, {scene_leak, 4}, {scene_more, 0}};

static void scene(struct demo *d, uint64_t now_ns)
{
    scenes[d->scene].play(d);
    d->scene_ns = scenes[d->scene].pause ? now_ns + scenes[d->scene].pause * d->step_ns : 0;
    d->scene++;
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
    if (d->scene_ns && d->scene_ns <= now_ns)
        scene(d, now_ns);
    return 0;
}

static uint64_t next_event_ns(const struct demo *d)
{
    uint64_t next = d->end_ns ? d->end_ns : UINT64_MAX;
    if (d->scene_ns && d->scene_ns < next)
        next = d->scene_ns;
    for (unsigned i = 0; i < d->family.n; i++)
        if (d->due_ns[i] && d->due_ns[i] < next)
            next = d->due_ns[i];
    return next;
}

static void schedule(struct demo *d)
{
    const struct demo_values *v = d->values;
    uint64_t duration_ns = v->duration_ns;
    if (duration_ns == UINT64_MAX)
        duration_ns = (v->fast ? DURATION_FAST_S : DURATION_S) * NS_PER_S;
    d->kill_ns = v->kill_ns ? v->kill_ns : (v->fast ? KILL_FAST_S : KILL_S) * NS_PER_S;
    d->step_ns = v->quiet ? 0 : (v->fast ? STEP_FAST_MS : STEP_MS) * NS_PER_MS;
    d->start_ns = clock_monotonic_ns();
    d->end_ns = duration_ns ? d->start_ns + duration_ns : 0;
    for (unsigned i = 0; i < d->family.n; i++)
        d->due_ns[i] = d->start_ns + (i < FAMILY_ROLES ? i : 0) * d->step_ns;
    d->scene_ns = v->quiet ? 0 : d->start_ns + FAMILY_ROLES * d->step_ns;
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
        if (ledger_process_exists(p) || ledger_process_holds(p) || p->parent_pid != getpid() ||
            p->foreign_ns)
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
    if (d.values->kill_ns && d.values->kill_ns < NS_PER_S)
        return command_misuse(&cmd_demo, "--kill-after is a second at least");
    int r = command_keep_books_in(d.values->dir);
    if (r != COMMAND_OK)
        return r;
    d.story = (struct story){.dir = d.values->dir, .quiet = d.values->quiet};
    term_init(&d.story.term, STDOUT_FILENO, (enum term_color)d.values->color);
    d.story.width = d.story.term.width && d.story.term.width < 100 ? d.story.term.width : 100;
    r = family_init(&d.family, (unsigned)d.values->clients);
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
        story_step(&d.story, "The end: all programs of the demo are gone.");
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
