/* verify.c: part of a libmemoir-track for tests, built with RECALL_VERIFY. Whenever a stack was told from what was known of
 * earlier ones, it is taken once more by the tables alone, at the same moment, and must be the same. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "track/recall.h"
#include "track/sample.h"
#include "track/track.h"

enum { MAX = TRAIL_FRAMES_MAX + 32 };

struct scratch {
    uintptr_t pcs[MAX], sps[MAX], frames[MAX];
    struct script_thread script;
};
static __thread struct scratch *scratch __attribute__((tls_model("initial-exec")));
static uint64_t compared[2]; /* by recall_site(), and by recall_quickly() */

static void tell(const char *text)
{
    const char *path = getenv("RECALL_VERIFY_OUT");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && write(fd, text, strlen(text)) < 0)
        abort();
    close(fd);
}

static size_t frames_take(struct track_thread *t, const struct unwind_state *from,
                          uint32_t *ret_cut)
{
    struct scratch *s = scratch;
    struct tracker *tracker = t->tracker;
    struct unwind_trace trace;
    uintptr_t start, end;
    size_t n = unwind_stack_places(NULL, from, s->pcs, s->sps, MAX, &trace), own = 0;
    sample_own_code(&start, &end);
    while (own < n && s->pcs[own] > start && s->pcs[own] <= end)
        own++;
    n -= own;
    memmove(s->pcs, s->pcs + own, n * sizeof(s->pcs[0]));
    memmove(s->sps, s->sps + own, n * sizeof(s->sps[0]));
    if (!python_ready(&tracker->python)) {
        memcpy(s->frames, s->pcs, n * sizeof(s->pcs[0]));
    } else if (n <= SCRIPT_NATIVE_MAX) {
        memset(s->script.cache, 0, sizeof(s->script.cache));
        memcpy(s->script.pcs, s->pcs, n * sizeof(s->pcs[0]));
        memcpy(s->script.sps, s->sps, n * sizeof(s->sps[0]));
        n = script_join(&tracker->writer, &t->book, &s->script, &tracker->python, n, s->frames,
                        BOOK_SITE_FRAMES_MAX, &trace);
    }
    *ret_cut = trace.flags & UNWIND_CUT ? BOOK_SITE_CUT : 0;
    return n;
}

void recall_verify(struct track_thread *t, uint32_t site, const struct unwind_state *from,
                   uint32_t flags, bool quickly)
{
    if (quickly && !track_enter(t))
        return;
    if (!scratch)
        scratch = book_private_new(sizeof(*scratch));
    struct tracker *tracker = t->tracker;
    uint32_t cut;
    size_t n = frames_take(t, from, &cut);
    uint32_t right = book_site_add(&tracker->writer, &t->book, tracker->account, scratch->frames, n,
                                   flags | cut);
    if (quickly)
        track_leave(t);
    fetch_add_relaxed(&compared[quickly], 1);
    if (right == site)
        return;
    char line[128];
    snprintf(line, sizeof(line), "WRONG site %u, right is %u, %zu frames, %s\n", site, right, n,
             quickly ? "quickly" : "walked");
    tell(line);
    abort();
}

__attribute__((destructor)) static void verify_end(void)
{
    char line[128];
    snprintf(line, sizeof(line), "compared %llu %llu\n", (unsigned long long)compared[0],
             (unsigned long long)compared[1]);
    tell(line);
}
