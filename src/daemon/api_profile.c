/* The profile of a process over HTTP, as a download for other tools. */
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
#include "profile/names.h"
#include "profile/profile.h"

/* What was asked for; read on the loop's thread, since the arguments are the call's. */
struct wish {
    enum rows_measure measure;
    uint32_t space;
    bool at_peak;
    enum { PPROF, FOLDED, SPEEDSCOPE } format;
};

static void wish_release(struct job *job)
{
    free(job->more);
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

/* ---- on the loop ---- */

static int word_of(const struct http_call *call, const char *name, const char *const *words,
                   int otherwise)
{
    const char *word = http_argument(call, name);
    for (int i = 0; word && words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return otherwise;
}

void api_answer_profile(struct http_call *call, void *context)
{
    static const char *const measures[] = {"live", "allocated", "blocks", NULL};
    static const char *const formats[] = {"pprof", "folded", "speedscope", NULL};
    struct daemon *daemon = context;
    struct ledger_process *process = api_own_process(call, daemon);
    struct wish wish = {0};
    if (!process || !api_space(call, &wish.space))
        return;
    wish.measure = (enum rows_measure)word_of(call, "sort", measures, ROWS_LIVE);
    wish.format = (unsigned)word_of(call, "format", formats, PPROF);
    wish.at_peak = http_yes(call, "at_peak", false);
    struct wish *more = malloc(sizeof(*more));
    if (!more) {
        api_failed(call, "there is no room for the question", -ENOMEM);
        return;
    }
    *more = wish;
    api_job(call, daemon->api, process, run_profile, wish_release, more);
}
