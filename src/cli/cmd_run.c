/* memoir run: start a program whose memory is accounted. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/elf_program.h"
#include "base/fs.h"
#include "base/sanitizer.h"
#include "base/units.h"
#include "book/place.h"
#include "cli/command.h"
#include "cli/lost.h"
#include "cli/run_assert.h"
#include "cli/run_book.h"
#include "cli/run_child.h"
#include "cli/run_image.h"
#include "cli/run_python.h"
#include "cli/run_summary.h"
#include "cli/term.h"
#include "explain/outside.h"
#include "ledger/ledger.h"

#define TRACKER   "libmemoir-track.so"
#define ALLOCATOR "libmemoir-malloc.so"
#define NO_PLACE  "there is no place for its book"

enum {
    SUMMARY_MAX = 64 << 20,
    LOST_TOP = 20,             /* rows of a scan */
    EXIT_NOT_EXECUTABLE = 126, /* as env(1) and shells have it */
    EXIT_NOT_FOUND = 127,
};

enum stacks { STACKS_SAMPLED, STACKS_ALL, STACKS_OFF };
static const char *const stacks_words[] = {"sampled", "all", "off", NULL};

struct run_values {
    struct command_common common;
    bool track, malloc;
    int stacks;
    const char *sample;
    bool map, suspended;
    bool summary, quiet;
    bool scan;
    uint64_t lost_code;
    struct option_strings assertions;
    bool keep_pymalloc;
    uint64_t needs_ns;
    const char *json;
    const char *dir;
    int color;
};

static const struct run_values defaults = {.stacks = STACKS_SAMPLED};

#define AT(field) offsetof(struct run_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"malloc", 'M', OPTION_FLAG, AT(malloc),
     .help =
         "run it with memoir's allocator, which accounts every call inside (the default, but for programs that "
         "bring an allocator)"},
    {"track", 't', OPTION_FLAG, AT(track),
     .help =
         "let the program keep the allocator that it has, and account every call in front of it"},
    {"stacks", 's', OPTION_CHOICE, AT(stacks), "WHICH",
     "whole call stacks of a sample of all bytes, of all calls, or of none: sampled (the default), all or off. Every "
     "call is accounted by its caller in any case",
     .choices = stacks_words},
    {"sample", 0, OPTION_STRING, AT(sample), "BYTES",
     "one stack for so many bytes on average (default: the tracker's own, 1M)"},
    {"mmap", 'm', OPTION_FLAG, AT(map), .help = "account mmap and munmap as well (with --track)"},
    {"suspended", 0, OPTION_FLAG, AT(suspended),
     .help =
         "count nothing until tracking is switched on from outside, by memoird's page or its HTTP API: next to no cost "
         "until then"},
    {"summary", 0, OPTION_FLAG, AT(summary),
     .help =
         "say on standard error at the end what the program used and still held (the default on a terminal)"},
    {"scan", 0, OPTION_FLAG, AT(scan),
     .help =
         "at the end, say which blocks nothing points to any more, and which lines asked for them"},
    {"lost-code", 0, OPTION_NUMBER, AT(lost_code), "N",
     "with --scan: end with this code, if the program ended with 0 and blocks are lost, or the scan came to no result"},
    {"assert", 'a', OPTION_STRINGS, AT(assertions), "CONDITION",
     "at the end, check a figure: 'peak<200MB', 'lost=0'; may be repeated. Where one does not hold, say which and why, and "
     "exit with status 1 unless the program itself failed"},
    {"keep-pymalloc", 0, OPTION_FLAG, AT(keep_pymalloc),
     .help =
         "let CPython keep its own allocator for small objects, whose blocks are not accounted then"},
    {"quiet", 'q', OPTION_FLAG, AT(quiet),
     .help = "say nothing, neither that a program cannot be tracked nor a summary"},
    {"json", 'j', OPTION_STRING, AT(json), "FILE", "write the summary as JSON to FILE"},
    OPTION_COLOR,
    {"needs", 0, OPTION_DURATION, AT(needs_ns), "TIME", "the least that a verdict needs",
     .hidden = true},
    {"dir", 0, OPTION_STRING, AT(dir), "DIR", "keep the books in DIR, which must lie in memory",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

static const struct command_example examples[] = {
    {"memoir run ./server", "every allocation from the first; look with memoir ps, sites, leaks"},
    {"memoir run --summary -- make -j8",
     "figures of make at the end; its children are tracked, too"},
    {"memoir run --stacks all python3 train.py", "the whole stack of every allocation"},
    {"memoir run --scan --lost-code 9 ./test", "in a test: fails where memory is lost"},
    {"memoir run --assert 'peak<200MB' --assert 'lost=0' ./test",
     "in CI: fails where memory is lost or the heap was larger"},
    {"memoir run --json out.json ./test", "for programs: what it held at the end, by call site"},
    {0},
};

static const struct command_section sections[] = {
    {"WHAT IS TRACKED",
     "The library " ALLOCATOR
     " takes the place of the C library's allocator by LD_PRELOAD, before what was in that variable already. "
     "With --track the program keeps the allocator that it has, whichever that is, and " TRACKER
     " stands in front of it. So it is without being asked for where the program is linked with another "
     "allocator, or LD_PRELOAD names one: it may call more of it than malloc and free. Children inherit the "
     "library and are tracked, each with a book of its own; the summary is about the program itself.\n\n"
     "Programs that are linked statically (most of those made by Go), that change their user at the start (set-uid, "
     "set-gid, file capabilities), 32-bit ones, those made with -fsanitize, and those of another C library run as "
     "they would without memoir, and one line on standard error says why. Children that are made with -fsanitize run as they would "
     "without, too: they, and what they start, are not tracked."},
    {"HOW IT RUNS",
     "Without a summary (--quiet, or standard error is no terminal and neither --summary nor --json is given) memoir "
     "becomes the program: same PID, nothing in between. Else it waits for it in the same process group: signals sent to "
     "memoir are handed on, the terminal's reach both, a program that is stopped from the terminal stops memoir, and at the "
     "end memoir ends by the same signal or with the same code. A program that cannot be found gives 127, one that "
     "cannot be executed 126."},
    {"SCAN",
     "--scan looks at the program's memory when it has done its last instruction, after its destructors: every pointer from "
     "its registers, stacks and data is followed, and what none leads to is lost (see memoir-leaks(1)). Until then the "
     "program is traced, so that neither a debugger nor strace can be used on it. The program's children are tracked, and "
     "not scanned."},
    {"ASSERTIONS",
     "NAME OPERATOR VALUE, the operator <, <=, >, >=, = or !=, values as in memoir query (200MB, 10s). Names: peak (most bytes in use on "
     "the heap at once), live and blocks (bytes and blocks in use at the end), allocated and allocations (in all), rss (most bytes "
     "resident at once), lost and lost_blocks (what nothing points to at the end, indirectly lost blocks included; scans as --scan "
     "does), duration. One that cannot be checked, because the program was not tracked or not scanned, does not hold."},
    {"PYTHON",
     "CPython serves small objects from arenas of its own, which malloc does not see. So a CPython, found by the name of the executable or "
     "of a script's interpreter, runs with PYTHONMALLOC=malloc, and one line says so. --keep-pymalloc leaves it as it is, and so does a "
     "PYTHONMALLOC or PYTHONDEVMODE that is set already, or -E or -I among Python's options."},
    {"JSON",
     "One object: \"schema\" (\"memoir.run/3\"), \"time\", \"program\", \"pid\", \"status\" or \"signal\", "
     "\"duration\" (seconds), \"peak_rss\", \"tracked\" (of the program that ended; null: not known), \"why_not\", \"image\" (path of the program whose figures these are), \"last_image\" (what it executed later without leaving figures, else null), \"heap\", \"mapped\" and \"chain\" (user chains: their bytes lie "
     "in memory of other kinds; each has \"peak\" with \"peak_error\", \"bytes\" and \"blocks\" that live, \"allocated\", \"allocated_blocks\", \"freed\", \"freed_blocks\" and \"reallocs\"; null when there are none), \"losses\", \"sites\", those that "
     "hold most at the end first, each with its \"space\" (heap, mapped or chain), and \"scan\" (of --scan, else null; \"memoir.lost/2\"). \"columns\" has the unit of each figure. What could not be read is null, never 0."},
    {"ENVIRONMENT",
     "What the options say is passed on in MEMOIR_STACKS, MEMOIR_SAMPLE_BYTES, MEMOIR_TRACK_MMAP, MEMOIR_SUSPENDED and MEMOIR_DIR; without "
     "memoir run, LD_PRELOAD=" ALLOCATOR
     " with account=1 in MEMOIR_MALLOC does the same, or LD_PRELOAD=" TRACKER
     " alone. Further settings in MEMOIR_MALLOC stay (memoir-malloc's, such as limit=1G)."},
    {0},
};

struct run {
    const struct run_values *values;
    char **argv;
    char library[PATH_MAX]; /* "": there is none */
    bool allocator;         /* it is the one that is an allocator itself */
    char sample[32];        /* "": as the tracker likes */
    const char *why_not;    /* why it cannot be tracked */
    bool preload;
    bool python;  /* a CPython that is to use malloc */
    bool keep;    /* its books, until we have read them */
    int lost;     /* what the scan at the end came to: COMMAND_OK only where nothing is lost */
    bool scanned; /* a scan was made */
    struct buffer scan; /* the same as JSON */
    struct run_books books;
    struct run_assertion assertions[OPTION_STRINGS_MAX];
    struct outside growth; /* of its RSS; pid 0: not watched */
    struct run_image image;
    bool scans; /* at the end: asked for, or by an assertion */
};

/* ---- what it takes ---- */

/* In the build tree, in an installed one wherever that was moved to, on the system. */
static bool library_find(struct run *run)
{
    static const char *const tracker_places[] = {"/../track/", "/../" MEMOIR_LIBDIR "/",
                                                 "/../lib/"};
    static const char *const malloc_places[] = {"/../malloc/", "/../" MEMOIR_LIBDIR "/",
                                                "/../lib/"};
    const char *const *places = run->allocator ? malloc_places : tracker_places;
    char self[PATH_MAX / 2], path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return false;
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(tracker_places) / sizeof(tracker_places[0]); i++) {
        snprintf(path, sizeof(path), "%s%s%s", self, places[i],
                 run->allocator ? ALLOCATOR : TRACKER);
        if (realpath(path, run->library))
            return true;
    }
    run->library[0] = '\0';
    return false;
}

/* Has its user chosen an allocator for it? */
static bool preloads_allocator(void)
{
    const char *preload = getenv("LD_PRELOAD");
    for (size_t i = 0; preload && elf_program_allocators[i]; i++)
        if (strstr(preload, elf_program_allocators[i]))
            return true;
    return false;
}

/* Or a sanitizer, which is for a program that loads what was made with one. */
static bool preloads_sanitizer(void)
{
    const char *at = getenv("LD_PRELOAD");
    while (at && *at) {
        size_t n = strcspn(at, ": ");
        const char *slash = memrchr(at, '/', n);
        if (sanitizer_is_runtime(slash ? slash + 1 : at))
            return true;
        at += n + (at[n] != '\0');
    }
    return false;
}

/* Where the program will be found, and what it is. */
static void inspect(struct run *run)
{
    const struct run_values *v = run->values;
    char path[PATH_MAX];
    bool found = elf_program_find(run->argv[0], getenv("PATH"), path, sizeof(path)) == 0;
    run->preload = true;
    run->allocator = v->malloc || (!v->track && !v->map && !preloads_allocator() &&
                                   !(found && elf_program_has_allocator(path)));
    bool there = library_find(run);
    if (!there && run->allocator && !v->malloc) {
        run->allocator = false; /* installed in part: better tracked than not */
        there = library_find(run);
    }
    if (!there)
        run->why_not = run->allocator
                           ? ALLOCATOR " is neither beside memoir nor in its library directory"
                           : TRACKER " is neither beside memoir nor in its library directory";
    else if (strpbrk(run->library, ": \t\n"))
        run->why_not = "the path of the library to preload has a space or a colon, which "
                       "LD_PRELOAD cannot have";
    else if (preloads_sanitizer())
        run->why_not = "LD_PRELOAD names a sanitizer, which must come before all other libraries: "
                       "run it without";
    if (run->why_not) {
        run->preload = false;
        return;
    }
    struct stat info;
    if (!found || (stat(path, &info) == 0 && !S_ISREG(info.st_mode)))
        return; /* exec will say */
    run->python = !v->keep_pymalloc && !run_python_chosen() && run_python_is(run->argv, path);
    enum elf_program_kind kind = elf_program_inspect(path);
    run->preload = elf_program_takes_preload(kind);
    if (kind != ELF_PROGRAM_NEITHER) /* a text without a first line, which sh will run */
        run->why_not = elf_program_why_not(kind);
}

static int check(struct run *run)
{
    const struct run_values *v = run->values;
    uint64_t bytes;
    if (!run->argv[0])
        return command_misuse(&cmd_run, "say which program to run: memoir run ./server");
    if (v->lost_code > 255 || (v->lost_code && !v->scan))
        return command_misuse(&cmd_run, "--lost-code takes 1 to 255, and needs --scan");
    if (v->track && v->malloc)
        return command_misuse(&cmd_run, "--track and --malloc exclude each other");
    if (v->map && v->malloc)
        return command_misuse(&cmd_run, "--mmap needs --track");
    if (v->quiet && v->summary)
        return command_misuse(&cmd_run, "--quiet and --summary exclude each other");
    if (v->sample) {
        if (units_parse_bytes(v->sample, &bytes) < 0 || bytes == 0)
            return command_misuse(&cmd_run, "invalid size '%s' for --sample: try 512K", v->sample);
        snprintf(run->sample, sizeof(run->sample), "%llu", (unsigned long long)bytes);
    }
    MEMOIR_CLEANUP(buffer_release)
    struct buffer error = BUFFER_INIT(1024);
    run->scans = v->scan;
    for (size_t i = 0; i < v->assertions.n; i++) {
        struct run_assertion *assertion = &run->assertions[i];
        if (run_assertion_parse(v->assertions.all[i], assertion, &error) < 0)
            return command_misuse(&cmd_run, "%s", buffer_string(&error));
        run->scans |= assertion->fact == RUN_LOST || assertion->fact == RUN_LOST_BLOCKS;
    }
    return command_keep_books_in(v->dir);
}

/* ---- running ---- */

static void preload(const char *library)
{
    const char *before = getenv("LD_PRELOAD");
    size_t n = strlen(library);
    if (!before || !*before) {
        setenv("LD_PRELOAD", library, 1);
        return;
    }
    if (strncmp(before, library, n) == 0 && (!before[n] || strchr(": ", before[n])))
        return; /* one memoir run inside another */
    char *both;
    /* libmemoir-cuda (memoir pin run) stays in front: it passes on what it does not serve, and must see dlsym() first. */
    size_t head = strcspn(before, ": ");
    bool pinning = memmem(before, head, "libmemoir-cuda.so", strlen("libmemoir-cuda.so")) != NULL;
    int made = pinning ? asprintf(&both, "%.*s:%s%s", (int)head, before, library, before + head)
                       : asprintf(&both, "%s:%s", library, before);
    if (made < 0)
        return;
    setenv("LD_PRELOAD", both, 1);
    free(both);
}

/* Whatever else MEMOIR_MALLOC may say: the last word on a setting counts. A tracker in front of our allocator (one memoir run
 * inside another) counts alone. */
static void account(bool on)
{
    const char *before = getenv("MEMOIR_MALLOC"), *word = on ? "account=1" : "account=0";
    size_t n = before ? strlen(before) : 0, m = strlen(word);
    char *both;
    if (n == 0) {
        if (on)
            setenv("MEMOIR_MALLOC", word, 1);
    } else if ((n < m || strcmp(before + n - m, word) != 0) &&
               asprintf(&both, "%s,%s", before, word) >= 0) {
        setenv("MEMOIR_MALLOC", both, 1);
        free(both);
    }
}

/* The program's environment. */
static void prepare(void *context, pid_t pid)
{
    const struct run *run = context;
    if (!run->preload)
        return;
    preload(run->library);
    account(run->allocator);
    setenv("MEMOIR_STACKS", stacks_words[run->values->stacks], 1);
    if (run->sample[0])
        setenv("MEMOIR_SAMPLE_BYTES", run->sample, 1);
    if (run->values->map)
        setenv("MEMOIR_TRACK_MMAP", "1", 1);
    if (run->values->suspended)
        setenv("MEMOIR_SUSPENDED", "1", 1);
    else
        unsetenv("MEMOIR_SUSPENDED"); /* of one memoir run around this one */
    if (run->python)
        setenv("PYTHONMALLOC", "malloc", 0);
    unsetenv("MEMOIR_KEEP");
    unsetenv(BOOK_KEEP_IN);
    if (run->keep) {
        char text[16];
        snprintf(text, sizeof(text), "%d", (int)pid);
        setenv("MEMOIR_KEEP", text, 1);
        if (run->books.folder_name[0])
            setenv(BOOK_KEEP_IN, run->books.folder_name, 1);
    }
}

static void ready(void *context, pid_t pid)
{
    struct run *run = context;
    run_books_refill(&run->books);
    run_image_look(&run->image, pid, run_books_mapped(&run->books));
}

static void ended(void *context, pid_t pid)
{
    struct run *run = context;
    run_image_ended(&run->image, pid);
}

static void look(void *context, pid_t pid)
{
    struct run *run = context;
    run_books_look(&run->books, pid);
}

/* Its RSS is watched for the summary: what it is made of near its peak, and whether it grows outside malloc. */
static void tick(void *context, pid_t pid)
{
    struct run *run = context;
    uint64_t now_ns = clock_monotonic_ns();
    if (!run->growth.pid) {
        outside_init(&run->growth, pid, now_ns);
        run->growth.next_ns =
            run->growth.explain_ns; /* its start is no growth that slows down later */
        run->growth.needs_ns = run->values->needs_ns;
    }
    (void)outside_look(&run->growth, now_ns);
    run_image_look(&run->image, pid, run_books_mapped(&run->books));
}

/* It is about to end; its memory is still there. */
static void leaving(void *context, pid_t pid)
{
    struct run *run = context;
    char word[16];
    snprintf(word, sizeof(word), "%d", (int)pid);
    run_books_look(&run->books, pid);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(SUMMARY_MAX);
    int r = lost_report(&(struct lost_request){
        .word = word,
        .borrowed = pid,
        .dir = run->values->dir,
        .top = LOST_TOP,
        .check = true,
        .quiet = run->values->quiet,
        .color = run->values->color,
        .terminal = STDERR_FILENO,
        .text = run->values->quiet || !run->values->scan ? NULL : &text,
        .json = run->values->json || run->values->assertions.n ? &run->scan : NULL,
    });
    if (r < 0)
        command_fail("its memory could not be scanned: %s", strerror(-r));
    fs_write_all(STDERR_FILENO, buffer_string(&text), text.len);
    run->lost = r;
    run->scanned = true;
}

/* Who asked for a scan is told why there was none. */
static void tell_unscanned(const struct run *run, const struct run_end *end)
{
    const char *why = run->why_not      ? run->why_not
                      : !run->keep      ? NO_PLACE
                      : end->traced < 0 ? strerror(-end->traced)
                                        : "it ended before its book could be read";
    command_fail("the memory of '%s' was not scanned, so what is lost is not known: %s",
                 run->argv[0], why);
}

static int not_started(const struct run *run, int error)
{
    command_fail("cannot run '%s': %s", run->argv[0], strerror(-error));
    return error == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

static void tell(const struct run *run, const struct run_summary *summary, bool text)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(SUMMARY_MAX);
    int r = 0;
    if (text) {
        struct term term;
        term_init(&term, STDERR_FILENO, (enum term_color)run->values->color);
        run_summary_text(summary, &term, &out);
        fs_write_all(STDERR_FILENO, buffer_string(&out), out.len);
        buffer_reset(&out);
    }
    if (run->values->json) {
        r = run_summary_json(summary, &out);
        if (r == 0)
            r = fs_write_file_atomic(run->values->json, buffer_string(&out), out.len, 0644);
    }
    if (r < 0)
        command_fail("cannot write the summary to '%s': %s", run->values->json, strerror(-r));
}

/* True where all hold. What does not is told, one line each, whatever else is quiet. */
static bool assertions_check(const struct run *run, const struct run_summary *summary)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(SUMMARY_MAX);
    MEMOIR_CLEANUP(freep)
    struct run_facts *facts = calloc(1, sizeof(*facts));
    bool all = true;
    if (run->values->assertions.n == 0)
        return true;
    if (facts)
        run_summary_facts(summary, facts);
    for (size_t i = 0; i < run->values->assertions.n; i++) {
        buffer_reset(&out);
        if (facts && run_assertion_check(&run->assertions[i], facts, &out))
            continue;
        struct term term;
        struct buffer line = BUFFER_INIT(SUMMARY_MAX);
        term_init(&term, STDERR_FILENO, (enum term_color)run->values->color);
        buffer_append_str(&line, "memoir: ");
        term_append(&term, &line, facts ? buffer_string(&out) : "assertions: out of memory", 0);
        buffer_append_char(&line, '\n');
        fs_write_all(STDERR_FILENO, buffer_string(&line), line.len);
        buffer_release(&line);
        all = false;
    }
    return all;
}

static int supervise(struct run *run, const struct run_child *child, bool text)
{
    struct run_end end;
    int r = run_wait(child, &end);
    if (r < 0)
        return not_started(run, r);
    outside_ended(&run->growth);
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    if (run->books.n > 0)
        run_books_ledger(&run->books, &ledger);
    struct run_summary summary = {.program = run->argv[0],
                                  .why_not = run->why_not,
                                  .end = &end,
                                  .ledger = ledger,
                                  .scan = &run->scan,
                                  .image = &run->image,
                                  .growth = &run->growth};
    tell(run, &summary, text);
    bool asserted = assertions_check(run, &summary);
    run_books_remove(&run->books);
    if (run->scans && !run->scanned && !run->values->quiet)
        tell_unscanned(run, &end);
    bool fine = run->scanned && run->lost == COMMAND_OK; /* no result is no good one */
    if (end.status == 0 && !fine && run->values->lost_code)
        return (int)run->values->lost_code;
    if (end.status == 0 && !asserted)
        return COMMAND_FAILED;
    return run_end_alike(end.status);
}

static int run_run(const void *values, const struct operands *operands)
{
    struct run run = {.values = values, .argv = operands->words};
    const struct run_values *v = run.values;
    int r = check(&run);
    if (r != COMMAND_OK)
        return r;
    inspect(&run);
    if (run.why_not && !v->quiet)
        command_fail("'%s' runs without being tracked: %s", run.argv[0], run.why_not);
    if (run.python && run.preload && !v->quiet)
        command_fail("CPython: PYTHONMALLOC=malloc is set, so that its objects are accounted; "
                     "--keep-pymalloc leaves it as it is");
    bool text = v->summary || (!v->quiet && isatty(STDERR_FILENO));
    struct run_child child = {.argv = run.argv,
                              .prepare = prepare,
                              .ready = ready,
                              .ended = ended,
                              .look = look,
                              .fd = -1,
                              .context = &run};
    if (!text && !v->json && !run.scans && v->assertions.n == 0)
        return not_started(&run, run_exec(&child));
    run_books_clear(&run.books);
    int place = run.preload ? run_books_init(&run.books) : -ENOENT;
    if (place == 0) {
        run.keep = true;
        child.fd = run.books.events;
        child.leaving = run.scans ? leaving : NULL;
    } else if (run.preload) {
        run.why_not = NO_PLACE;
        if (!v->quiet)
            command_fail("'%s' is not tracked: %s: %s", run.argv[0], NO_PLACE, strerror(-place));
    }
    buffer_init(&run.scan, SUMMARY_MAX);
    if (text || v->json) {
        child.tick = tick;
        child.tick_ms = (int)(OUTSIDE_INTERVAL_NS / NS_PER_MS);
    }
    r = supervise(&run, &child, text);
    outside_release(&run.growth);
    buffer_release(&run.scan);
    run_books_release(&run.books);
    return r;
}

const struct command cmd_run = {
    .name = "run",
    .usage = "run [OPTION...] [--] COMMAND [ARGUMENT...]",
    .help = "run a program whose allocations are accounted from the first",
    .description =
        "Runs a program, unchanged, with every call of its allocator accounted by the line of code that made it: "
        "malloc and its relatives, and new and delete. memoir ps shows it while it runs, and on a terminal a short summary "
        "follows at the end. The program's output, exit code and signals are what they would be without memoir.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = INT_MAX,
    .starts_other = true,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run_run,
};
