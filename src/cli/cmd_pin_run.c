/* memoir pin run: run a program whose large host allocations are pinned when that pays. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/elf_program.h"
#include "base/fs.h"
#include "base/units.h"
#include "cli/pin.h"
#include "cli/run_child.h"
#include "pin/settings.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 }; /* as env(1) and shells have it */

static const struct option_spec options[] = {
    OPTION_HELP,
    {"mode", 'm', OPTION_CHOICE, PIN_AT(mode), "MODE",
     "auto (learn while it runs, the default), use (decide by a saved history alone), profile (pin everything and record), shadow (pin nothing, and tell what auto would have "
     "saved) or off",
     .choices = pin_mode_words},
    {"budget", 'b', OPTION_STRING, PIN_AT(budget), "BYTES",
     "pin at most this much (default: half of what the machine and the cgroup have left); unlimited: pinned memory has no price"},
    {"history", 0, OPTION_STRING, PIN_AT(history), "FILE",
     "begin with what this file has learned, and save to it at the end (use: read it only)"},
    {"threshold", 0, OPTION_STRING, PIN_AT(threshold), "BYTES",
     "serve allocations from this size on (default: 256K)"},
    {"checksum", 0, OPTION_FLAG, PIN_AT(checksum),
     .help =
         "read every copy back and compare it; tells a sum that is the same in two runs that copy the same. Slow; exits with status 1 after a mismatch"},
    {"async", 0, OPTION_FLAG, PIN_AT(async),
     .help =
         "the program waits for its asynchronous copies itself: let those of pinned memory be asynchronous"},
    {"no-stage", 0, OPTION_FLAG, PIN_AT(no_stage),
     .help =
         "let the driver copy memory that is not pinned, also where staging is measured to be faster"},
    {"no-touch", 0, OPTION_FLAG, PIN_AT(no_touch),
     .help = "do not touch fresh memory ahead of a program that fills it in order"},
    {"quiet", 'q', OPTION_FLAG, PIN_AT(quiet), .help = "print no summary"},
    {"dir", 0, OPTION_STRING, PIN_AT(dir), "DIR", "keep books in DIR, which must lie in memory",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

struct run {
    const struct pin_values *values;
    char **argv;
    char library[PATH_MAX];
    char why_not[256]; /* "": it is preloaded */
    bool keep;
};

static void inspect(struct run *run)
{
    char path[PATH_MAX];
    if (!pin_library_find(run->library, sizeof(run->library)))
        snprintf(run->why_not, sizeof(run->why_not),
                 "libmemoir-cuda.so is neither beside memoir nor in its library directory");
    else if (strpbrk(run->library, ": \t\n"))
        snprintf(
            run->why_not, sizeof(run->why_not),
            "the path of libmemoir-cuda.so has a space or a colon, which LD_PRELOAD cannot have");
    else if (elf_program_find(run->argv[0], getenv("PATH"), path, sizeof(path)) == 0) {
        enum elf_program_kind kind = elf_program_inspect(path);
        const char *why = kind == ELF_PROGRAM_NEITHER ? NULL : elf_program_why_not(kind);
        if (why)
            snprintf(run->why_not, sizeof(run->why_not), "%s", why);
    }
}

/* Before all others: they find the next dlsym() and malloc() behind it. */
static void preload(const char *library)
{
    const char *before = getenv("LD_PRELOAD");
    char *both;
    if (before && strstr(before, "libmemoir-cuda.so"))
        return;
    if (asprintf(&both, "%s%s%s", library, before && *before ? ":" : "", before ? before : "") < 0)
        return;
    setenv("LD_PRELOAD", both, 1);
    free(both);
}

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void prepare(void *context, pid_t pid)
{
    const struct run *run = context;
    const struct pin_values *v = run->values;
    if (run->why_not[0])
        return;
    preload(run->library);
    setenv("MEMOIR_PIN", pin_mode_words[v->mode], 1);
    set("MEMOIR_PIN_BUDGET", v->budget);
    set("MEMOIR_PIN_THRESHOLD", v->threshold);
    set("MEMOIR_PIN_HISTORY", v->history);
    set("MEMOIR_PIN_CHECKSUM", v->checksum ? "1" : NULL);
    set("MEMOIR_PIN_ASYNC", v->async ? "1" : NULL);
    set("MEMOIR_PIN_STAGE", v->no_stage ? "0" : NULL);
    set("MEMOIR_PIN_TOUCH", v->no_touch ? "0" : NULL);
    set("MEMOIR_PIN_KEEP", run->keep ? "1" : NULL);
}

static void look(void *context, pid_t pid)
{
}

static void summary(const struct pin_state *s, struct buffer *out)
{
    char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
    bool shadow = s->mode == PIN_SHADOW;
    uint64_t copies = s->copies[0] + s->copies[1];
    buffer_printf(out,
                  "memoir: %" PRIu64 " copies of %" PRIu64
                  " allocations; %s %s pinned at most, of %s live.\n",
                  copies, s->served, shadow ? "auto would have" : "had",
                  units_format_bytes(a, s->registered_peak, UNITS_DECIMAL),
                  units_format_bytes(b, s->live_peak, UNITS_DECIMAL));
    buffer_printf(
        out,
        "memoir: %" PRIu64
        " promotions %s %.1f ms and cost %.1f ms; pageable copies took %.1f ms longer.%s\n",
        s->promotions, shadow ? "would have saved" : "saved", (double)s->saved_ns / 1e6,
        (double)s->cost_ns / 1e6, (double)s->missed_ns / 1e6,
        s->calibrated ? "" : " Costs are assumed: not calibrated.");
    if (shadow)
        buffer_printf(
            out,
            "memoir: by what these copies took, pinning and staging would have saved %.1f "
            "ms in all.\n",
            ((double)s->observed_ns - (double)s->cost_ns) / 1e6);
    if (s->staged_copies)
        buffer_printf(
            out, "memoir: %" PRIu64 " pageable copies (%s) were staged, which saved %.1f ms.\n",
            s->staged_copies, units_format_bytes(a, s->staged_bytes, UNITS_DECIMAL),
            (double)s->staged_saved_ns / 1e6);
    if (s->touched_bytes)
        buffer_printf(out, "memoir: %s of fresh memory were touched ahead of the program.\n",
                      units_format_bytes(a, s->touched_bytes, UNITS_DECIMAL));
    if (s->failures || s->unregister_failed || s->denied || s->evictions)
        buffer_printf(out,
                      "memoir: %" PRIu64 " registrations failed, %" PRIu64
                      " were denied by the budget, %" PRIu64 " evicted.\n",
                      s->failures + s->unregister_failed, s->denied, s->evictions);
    if (s->checked_copies)
        buffer_printf(out,
                      "memoir: checksum %016" PRIx64 " of %" PRIu64 " copies (%s); %" PRIu64
                      " mismatches.\n",
                      s->checksum, s->checked_copies,
                      units_format_bytes(a, s->checked_bytes, UNITS_DECIMAL), s->mismatches);
}

/* An exit code of ours where the program's own was 0. */
static int tell(const struct run *run, pid_t pid)
{
    const struct pin_values *v = run->values;
    MEMOIR_CLEANUP(freep)
    struct pin_state *s = NULL;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(65536);
    int r = pin_state_read(v->dir, pid, geteuid(), &s);
    pin_state_remove(v->dir, pid, geteuid());
    if (r < 0) {
        if (!v->quiet)
            fprintf(stderr, "memoir: '%s' copied no large allocation to or from a device\n",
                    run->argv[0]);
        return COMMAND_OK;
    }
    if (!v->quiet || s->mismatches) {
        summary(s, &out);
        fs_write_all(STDERR_FILENO, buffer_string(&out), out.len);
    }
    return s->mismatches ? COMMAND_FAILED : COMMAND_OK;
}

static int check(const struct run *run)
{
    const struct pin_values *v = run->values;
    uint64_t bytes;
    if (!run->argv[0])
        return command_misuse(&cmd_pin_run, "missing argument: COMMAND");
    if (v->budget && strcmp(v->budget, "unlimited") != 0 && !pin_settings_bytes(v->budget, &bytes))
        return command_misuse(
            &cmd_pin_run,
            "invalid value '%s' for --budget: expected a size such as 4G, or unlimited", v->budget);
    if (v->threshold && !pin_settings_bytes(v->threshold, &bytes))
        return command_misuse(&cmd_pin_run,
                              "invalid value '%s' for --threshold: expected a size such as 1M",
                              v->threshold);
    if (v->mode == PIN_USE && !v->history)
        return command_misuse(&cmd_pin_run, "--mode use needs --history FILE");
    return command_keep_books_in(v->dir);
}

static int run_run(const void *values, const struct operands *operands)
{
    struct run run = {.values = values, .argv = operands->words};
    const struct pin_values *v = values;
    struct run_end end;
    int r = check(&run);
    if (r != COMMAND_OK)
        return r;
    (void)pin_state_sweep(v->dir, geteuid());
    inspect(&run);
    if (run.why_not[0] && !v->quiet)
        command_fail("'%s' runs without pinning: %s", run.argv[0], run.why_not);
    run.keep = !run.why_not[0] && (!v->quiet || v->checksum);
    struct run_child child = {
        .argv = run.argv, .prepare = prepare, .look = look, .fd = -1, .context = &run};
    r = run.keep ? run_wait(&child, &end) : run_exec(&child);
    if (r < 0) {
        command_fail("cannot run '%s': %s", run.argv[0], strerror(-r));
        return r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    }
    int told = tell(&run, end.pid);
    return end.status == 0 ? told : run_end_alike(end.status);
}

static const struct command_example examples[] = {
    {"memoir pin run python3 train.py", "pin what pays, while it runs"},
    {"memoir pin run --mode shadow ./app", "pin nothing, and say what pinning would save"},
    {"memoir pin run --mode profile --history h ./app",
     "then: memoir pin run --mode use --history h ./app"},
    {"memoir pin run --checksum ./test", "prove that every copy moved what it should"},
    {0},
};

static const struct command_section sections[] = {
    {"HOW IT RUNS",
     "libmemoir-cuda.so is preloaded before what LD_PRELOAD had already. It serves allocations from 256 KiB on from memory of its own, on huge pages from 4 MiB on, keeps freed memory "
     "for later allocations, and watches the CUDA driver's copies, whether the program uses the runtime (static or shared) or the driver itself. A program does not notice: copies mean "
     "what they mean for pageable memory, and its output, exit code and signals are its own. Programs that are linked statically or change their user run without it, and one line says so.\n\n"
     "Together with memoir run: memoir run memoir pin run ./app."},
    {"SUMMARY",
     "Printed to standard error at the end: copies, memory that was pinned, time saved, and with --checksum the sum of all copies. Without a summary (--quiet) memoir becomes the program."},
    {0},
};

const struct command cmd_pin_run = {
    .name = "pin run",
    .usage = "pin run [OPTION...] [--] COMMAND [ARGUMENT...]",
    .help = "run a program and pin its memory when that pays",
    .description =
        "Runs a program, unchanged, with its large host allocations served by Memoir. An allocation is pinned when its copies to and from GPUs have cost as much as pinning it, or "
        "when earlier allocations of its call site were worth it; within a budget, and never more than the machine and the cgroup can spare.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = INT_MAX,
    .starts_other = true,
    .values_size = sizeof(pin_defaults),
    .defaults = &pin_defaults,
    .run = run_run,
};
