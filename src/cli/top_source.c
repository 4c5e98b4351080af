/* Where the figures of top come from. See top.h. */
#include <errno.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "cli/top.h"
#include "ledger/follow.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "query/query.h"

#define FIND_NS (2 * NS_PER_S) /* new books are found as late as this */

/* The process table keeps a descriptor for each process: as many as we may have. */
void top_allow_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int top_source_open(struct top_source *source, const char *dir)
{
    top_allow_files();
    int r = host_new(&(struct host_options){.user_names = true}, &source->host);
    if (r == 0)
        r = follow_new(dir, &source->follow);
    return r < 0 ? r : top_rows_query(&source->query);
}

void top_source_release(struct top_source *source)
{
    top_rows_release(&source->rows);
    query_free(source->query);
    follow_free(source->follow);
    host_free(source->host);
    *source = (struct top_source){0};
}

/* Figures of known books come from memory that is shared; to find new ones directories, and as root all processes,
 * have to be looked through. */
static int books_look(struct top_source *source)
{
    uint64_t now_ns = clock_monotonic_ns();
    if (source->found_ns && now_ns - source->found_ns < FIND_NS) {
        ledger_refresh(follow_ledger(source->follow));
        return 0;
    }
    source->found_ns = now_ns;
    return follow_look(source->follow, false);
}

struct query_world top_source_world(const struct top_source *source)
{
    return (struct query_world){
        .host = source->host, .ledger = follow_ledger(source->follow), .sees_all = true};
}

int top_source_look(struct top_source *source, uint64_t cpu_ns)
{
    int r = host_refresh(source->host);
    if (r < 0)
        return r;
    host_refine(source->host, cpu_ns);
    r = books_look(source);
    if (r < 0)
        return r;
    struct query_world world = top_source_world(source);
    return top_rows_take(&source->rows, source->query, &world);
}
