/* From words to profiles. See profile_source.h. */
#include "cli/profile_source.h"
#include "cli/absent.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/process_word.h"
#include "ledger/ledger.h"
#include "profile/headline.h"
#include "profile/profile.h"
#include "profile/snapshot.h"
#include "site/symbols.h"

enum {
    ANSWER_TIMEOUT_MS = 5000,
    RESULTS_BYTES_MAX = 256 << 20,
    PROGRESS_AFTER_MS = 300, /* what is done sooner needs none */
    PROGRESS_EACH_MS = 100,
};

void profile_source_init(struct profile_source *source, const char *dir, bool names)
{
    struct symbolizer_options options = {.timeout_ms = ANSWER_TIMEOUT_MS,
                                         .results_bytes_max = RESULTS_BYTES_MAX};
    *source = (struct profile_source){.dir = dir};
    /* Where the helper cannot start there are no names, and the figures stand all the same. */
    if (names && symbolizer_new(&options, &source->symbolizer) < 0)
        source->symbolizer = NULL;
}

void profile_source_release(struct profile_source *source)
{
    symbolizer_free(source->symbolizer);
    source->symbolizer = NULL;
}

/* ---- which processes ---- */

static bool is_number(const char *word)
{
    return *word && !word[strspn(word, "0123456789")];
}

static bool runs(const struct ledger *ledger, const char *name)
{
    size_t n;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    for (size_t i = 0; i < n; i++)
        if (process_word_calls(name, processes[i]))
            return true;
    return false;
}

static int no_process(const char *word)
{
    if (is_number(word))
        return absent_process(strtoull(word, NULL, 10),
                              "nothing counts its memory by call site; 'memoir attach' begins "
                              "that while it runs, 'memoir run COMMAND' from the start");
    command_fail("there is neither a file '%s' nor a program of this name that keeps a book; "
                 "memoir ps lists those that do, and 'memoir run %s' starts one that does",
                 word, word);
    return COMMAND_NOTHING;
}

static int no_sites(const struct profile_source *source, const struct ledger_process *p)
{
    bool tracked = false;
    for (size_t i = 0; i < p->n_books; i++)
        tracked |= book_source_counts_heap(p->books[i]->identity->source);
    if (source->losses.peaks_unknown)
        command_fail("what %s (PID %d) held at its peak is not known by call site: other threads "
                     "freed too much while that was written down",
                     p->name, (int)p->book_pid);
    else if (source->losses.books_unread)
        command_fail("the book of %s (PID %d) cannot be read; memoir doctor tells why", p->name,
                     (int)p->book_pid);
    else if (tracked || p->n_accounts == 0)
        command_fail("%s (PID %d) has reported no memory yet", p->name, (int)p->book_pid);
    else
        command_fail(
            "%s (PID %d) reports its memory without call sites (MEMOIR_STACKS=off, or over a "
            "socket); 'memoir run COMMAND' counts every call by the line that made it",
            p->name, (int)p->book_pid);
    return COMMAND_NOTHING;
}

static int gather(struct profile_source *source, const struct ledger *ledger, const char *word,
                  struct profile *to)
{
    size_t n, living = 0, found = 0;
    const struct ledger_process *last = NULL;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    source->losses = (struct gather_losses){0};
    if (is_number(word)) {
        unsigned long pid = strtoul(word, NULL, 10);
        last = pid && pid <= INT32_MAX ? ledger_process_find(ledger, (pid_t)pid) : NULL;
        if (!last)
            return no_process(word);
        int r = profile_gather(to, last, &source->losses);
        return r < 0 ? r : to->n_sites ? COMMAND_OK : no_sites(source, last);
    }
    for (size_t i = 0; i < n; i++)
        living += process_word_calls(word, processes[i]) && ledger_process_holds(processes[i]);
    for (size_t i = 0; i < n; i++) {
        if (!process_word_calls(word, processes[i]) ||
            (living && !ledger_process_holds(processes[i])))
            continue;
        int r = profile_gather(to, processes[i], &source->losses);
        if (r < 0)
            return r;
        last = processes[i];
        found++;
    }
    if (!found)
        return no_process(word);
    return to->n_sites ? COMMAND_OK : no_sites(source, last);
}

/* ---- files ---- */

static bool is_file(const char *word)
{
    struct stat st;
    return !is_number(word) && (strchr(word, '/') || (stat(word, &st) == 0 && S_ISREG(st.st_mode)));
}

static int loaded(const char *path, int r)
{
    if (r == -EBADMSG)
        return command_fail("'%s' is damaged, or no file that memoir sites --save wrote", path);
    if (r == -EPROTONOSUPPORT)
        return command_fail("'%s' was saved by a later version of memoir", path);
    if (r == -ENOENT) {
        command_fail("there is no file '%s'; memoir sites PID --save FILE writes one", path);
        return COMMAND_NOTHING;
    }
    return r < 0 ? command_fail("cannot read '%s': %s", path, strerror(-r)) : COMMAND_OK;
}

int profile_source_take(struct profile_source *source, const char *word,
                        struct profile **ret_profile)
{
    source->losses = (struct gather_losses){0};
    int file = is_file(word) && !source->at_peak ? snapshot_load(word, ret_profile) : -ENOENT;
    if (file == 0 || (strchr(word, '/') && !source->at_peak))
        return loaded(word, file);
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    MEMOIR_CLEANUP(profile_freep)
    struct profile *profile = profile_new();
    if (!profile)
        return -ENOMEM;
    profile->at_peak = source->at_peak;
    int r = ledger_scan(source->dir, &ledger);
    /* The file may be the program itself: who started train.py may well ask from its folder. */
    if (r == 0 && file != -ENOENT && !runs(ledger, word))
        return loaded(word, file);
    if (r == 0)
        r = gather(source, ledger, word, profile);
    if (r != COMMAND_OK)
        return r;
    *ret_profile = MEMOIR_TAKE(profile);
    return COMMAND_OK;
}

/* ---- names ---- */

struct progress {
    uint64_t begin_ns, told_ns;
};

static bool tell(size_t done, size_t all, void *context)
{
    struct progress *progress = context;
    uint64_t now_ns = clock_monotonic_ns();
    if (done == all && progress->told_ns)
        fputs("\r\033[K", stderr);
    else if (done < all && now_ns - progress->begin_ns >= PROGRESS_AFTER_MS * NS_PER_MS &&
             now_ns - progress->told_ns >= PROGRESS_EACH_MS * NS_PER_MS) {
        fprintf(stderr, "\rlooking up names: %zu of %zu\033[K", done, all);
        progress->told_ns = now_ns;
    }
    fflush(stderr);
    return true;
}

int profile_source_name(struct profile_source *source, struct profile *profile,
                        enum profile_names_which which)
{
    struct progress progress = {.begin_ns = clock_monotonic_ns()};
    bool shown = !source->quiet && isatty(STDERR_FILENO);
    return profile_name_all(profile, source->symbolizer, which, shown ? tell : NULL, &progress);
}

int profile_source_headlines(struct profile_source *source, struct profile *profile)
{
    struct progress progress = {.begin_ns = clock_monotonic_ns()};
    bool shown = !source->quiet && isatty(STDERR_FILENO);
    return headlines_find_all(profile, source->symbolizer, shown ? tell : NULL, &progress);
}

const char *profile_who(const struct profile *profile, char text[static PROFILE_WHO_MAX])
{
    const char *name = profile_text(profile, profile->program);
    if (profile->processes > 1)
        snprintf(text, PROFILE_WHO_MAX, "%" PRIu32 " processes of %.128s", profile->processes,
                 name);
    else if (profile->pid)
        snprintf(text, PROFILE_WHO_MAX, "%.128s (PID %" PRId64 ")", name, profile->pid);
    else
        snprintf(text, PROFILE_WHO_MAX, "%.128s", *name ? name : "a process");
    return text;
}
