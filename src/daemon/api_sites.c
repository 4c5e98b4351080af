/* Call sites, stacks and profiles of a process over HTTP: the figures of `memoir sites` and `memoir flame`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "daemon/api_internal.h"
#include "daemon/daemon.h"
#include "ledger/ledger.h"
#include "profile/export.h"
#include "profile/gather.h"
#include "profile/headline.h"
#include "profile/names.h"
#include "profile/profile.h"
#include "profile/tree.h"
#include "profile/tree_json.h"
#include "profile/words.h"
#include "query/query.h"

/* What was asked for; read on the loop's thread, since the arguments are the call's. */
struct wish {
    enum rows_by by;
    enum rows_measure measure;
    uint32_t space;
    size_t top;
    bool stacks, inverted, at_peak;
    enum { PPROF, FOLDED, SPEEDSCOPE } format;
};

static void wish_release(struct job *job)
{
    free(job->more);
}

/* Three routes share all this, and each has some of the parameters. */
static bool takes(const struct http_call *call, const char *name)
{
    for (const struct http_param *p = http_route(call)->params; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return true;
    return false;
}

static int word_of(const struct http_call *call, const char *name, const char *const *words,
                   int otherwise)
{
    const char *word = takes(call, name) ? http_argument(call, name) : NULL;
    for (int i = 0; word && words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return otherwise;
}

static void start(struct http_call *call, struct daemon *daemon, void (*run)(struct job *job))
{
    static const char *const measures[] = {"live", "allocated", "blocks", NULL};
    static const char *const formats[] = {"pprof", "folded", "speedscope", NULL};
    struct ledger_process *process = api_own_process(call, daemon);
    uint64_t limit = 0;
    struct wish wish = {.by = (enum rows_by)word_of(call, "by", rows_by_words, ROWS_BY_CALLER)};
    if (!process || !api_space(call, &wish.space))
        return;
    wish.measure = (enum rows_measure)word_of(call, "sort", measures, ROWS_LIVE);
    wish.format = (unsigned)word_of(call, "format", formats, PPROF);
    if (takes(call, "limit"))
        (void)http_number(call, "limit", &limit);
    wish.top = limit ? (size_t)limit : SIZE_MAX;
    wish.stacks = takes(call, "stacks") && http_yes(call, "stacks", false);
    wish.at_peak = takes(call, "at_peak") && http_yes(call, "at_peak", false);
    wish.inverted = takes(call, "inverted") && http_yes(call, "inverted", false);
    if (wish.stacks && wish.by == ROWS_BY_CALLER)
        wish.by = ROWS_BY_STACK;
    struct wish *more = malloc(sizeof(*more));
    if (!more) {
        api_failed(call, "there is no room for the question", -ENOMEM);
        return;
    }
    *more = wish;
    api_job(call, daemon->api, process, run, wish_release, more);
}

/* ---- on the worker ---- */

/* NULL, and the call has its problem. */
static struct profile *gather(struct job *job, struct gather_losses *losses)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_process *process;
    MEMOIR_CLEANUP(profile_freep)
    struct profile *profile = profile_new();
    if (profile)
        profile->at_peak = ((const struct wish *)job->more)->at_peak;
    int r = profile ? part_open(&job->part, &ledger, &process) : -ENOMEM;
    if (r == 0)
        r = profile_gather(profile, process, losses);
    if (r == -ESRCH)
        http_problem(job->call, 404, "no-process", "the process has ended");
    else if (r < 0)
        api_failed(job->call, "the call sites could not be read", r);
    if (r == 0 && profile->n_sites == 0 && losses->books_unread) {
        http_problem(job->call, 500, "failed",
                     "the process's book cannot be read; memoir doctor tells why");
        r = -ENOENT;
    }
    return r < 0 ? NULL : MEMOIR_TAKE(profile);
}

static void name_shown(struct profile *profile, struct symbolizer *symbols, const struct rows *rows,
                       const struct wish *wish)
{
    for (size_t i = 0; i < rows->n && i < wish->top; i++) {
        const struct row *row = &rows->list[i];
        size_t n = !row->frames ? 0 : wish->by == ROWS_BY_STACK ? row->n_frames : 1;
        const uint32_t *frames = n && row->inside ? row->frames - 1 : row->frames;
        n += n && row->inside; /* what the line calls, too */
        for (size_t k = 0; k < n; k++)
            profile_name(profile, symbols, frames[k]);
    }
}

/* Names that grouping needs come before, those that are shown only after it. */
static int sites_rows(struct job *job, struct profile *profile, const struct wish *wish,
                      struct rows *rows)
{
    struct symbolizer *symbols = api_symbols(job, &job->part);
    struct rows_filter filter = {.by = wish->by, .space = wish->space};
    int r = wish->by < ROWS_BY_SPACE ? headlines_find_all(profile, symbols, api_goes_on, job) : 0;
    if (r == 0 && (wish->by == ROWS_BY_FUNCTION || wish->by == ROWS_BY_FILE))
        r = profile_name_all(profile, symbols, PROFILE_NAMES_INNERMOST, api_goes_on, job);
    if (r < 0)
        return r;
    profile_keys(profile, NULL);
    r = rows_add(rows, profile, &filter, false);
    if (r < 0)
        return r;
    rows_sort(rows, wish->measure, false);
    if (wish->by <= ROWS_BY_STACK && rows->n > 1000 && wish->top > 1000)
        r = profile_name_all(profile, symbols,
                             wish->by == ROWS_BY_STACK ? PROFILE_NAMES_ALL
                                                       : PROFILE_NAMES_INNERMOST,
                             api_goes_on, job);
    if (r >= 0)
        name_shown(profile, symbols, rows, wish);
    return r;
}

static void losses_json(const struct gather_losses *losses, struct json *json)
{
    json_field_u64(json, "books", losses->books);
    json_field_u64(json, "books_unread", losses->books_unread);
    json_field_u64(json, "sites_full", losses->sites_full);
}

static void run_sites(struct job *job)
{
    const struct wish *wish = job->more;
    struct gather_losses losses = {0};
    MEMOIR_CLEANUP(profile_freep)
    struct profile *profile = gather(job, &losses);
    MEMOIR_CLEANUP(rows_release)
    struct rows rows = {0};
    if (!profile)
        return;
    int r = sites_rows(job, profile, wish, &rows);
    if (r < 0) {
        api_failed(job->call, "the call sites could not be named", r);
        return;
    }
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.sites/1");
    words_json_rows(profile, &rows,
                    &(struct words_json){.by = wish->by,
                                         .measure = wish->measure,
                                         .top = wish->top,
                                         .stacks = wish->stacks,
                                         .filtered = wish->space != 0},
                    json);
    losses_json(&losses, json);
    json_object_end(json);
}

static void run_flame(struct job *job)
{
    const struct wish *wish = job->more;
    struct gather_losses losses = {0};
    MEMOIR_CLEANUP(profile_freep)
    struct profile *profile = gather(job, &losses);
    MEMOIR_CLEANUP(tree_release)
    struct tree tree = {0};
    if (!profile)
        return;
    int r = profile_name_all(profile, api_symbols(job, &job->part), PROFILE_NAMES_ALL, api_goes_on,
                             job);
    struct tree_options options = {.space = wish->space, .inverted = wish->inverted};
    if (r == 0)
        r = tree_take(profile, &options, &tree);
    if (r < 0) {
        api_failed(job->call, "the stacks could not be put together", r);
        return;
    }
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.flame/1");
    json_field_i64(json, "pid", profile->pid ? profile->pid : job->part.pid);
    json_field_string(json, "program", profile_text(profile, profile->program));
    json_field_bool(json, "at_peak", profile->at_peak);
    r = tree_json(&tree, json);
    losses_json(&losses, json);
    json_object_end(json);
    if (r < 0)
        api_failed(job->call, "the stacks could not be put together", r);
}

static void run_profile(struct job *job)
{
    static const struct {
        int (*write)(struct profile *, const struct export_options *, struct buffer *);
        const char *type, *name;
    } formats[] = {
        [PPROF] = {export_pprof, "application/octet-stream", "pb.gz"},
        [FOLDED] = {export_folded, "text/plain; charset=utf-8", "folded.txt"},
        [SPEEDSCOPE] = {export_speedscope, "application/json", "speedscope.json"},
    };
    const struct wish *wish = job->more;
    struct gather_losses losses = {0};
    MEMOIR_CLEANUP(profile_freep)
    struct profile *profile = gather(job, &losses);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(HTTP_ANSWER_MAX);
    char name[64];
    if (!profile)
        return;
    int r = profile_name_all(profile, api_symbols(job, &job->part), PROFILE_NAMES_ALL, api_goes_on,
                             job);
    struct export_options options = {.measure = wish->measure, .space = wish->space};
    if (r == 0)
        r = formats[wish->format].write(profile, &options, &out);
    if (r < 0) {
        api_failed(job->call, "the profile could not be written", r);
        return;
    }
    snprintf(name, sizeof(name), "memoir-%d.%s", (int)job->part.pid, formats[wish->format].name);
    http_body(job->call, formats[wish->format].type, name, &out);
}

/* ---- routes ---- */

void api_answer_sites(struct http_call *call, void *context)
{
    start(call, context, run_sites);
}

void api_answer_flame(struct http_call *call, void *context)
{
    start(call, context, run_flame);
}

void api_answer_profile(struct http_call *call, void *context)
{
    start(call, context, run_profile);
}
