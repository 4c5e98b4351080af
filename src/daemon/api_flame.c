/* Stacks of a process as a tree, over HTTP: the rows of the table `stacks`, folded. */
#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "daemon/api_internal.h"
#include "daemon/api_process_rows.h"
#include "daemon/daemon.h"
#include "ledger/ledger.h"
#include "profile/profile.h"
#include "profile/tree.h"
#include "profile/tree_json.h"
#include "query/query.h"
#include "query/view.h"

static const char show[] = "functions,modules,bytes,blocks,allocated,allocated_blocks,estimated";
enum {
    SHOW_FUNCTIONS,
    SHOW_MODULES,
    SHOW_BYTES,
    SHOW_BLOCKS,
    SHOW_ALLOCATED,
    SHOW_ALLOCATED_BLOCKS,
    SHOW_ESTIMATED
};

struct fold {
    struct tree tree;
    struct profile *names; /* of functions and modules */
    bool inverted;
    struct tree_step steps[TREE_DEPTH_MAX];
};

static void fold_release(struct fold **fold)
{
    if (!*fold)
        return;
    tree_release(&(*fold)->tree);
    profile_free((*fold)->names);
    free(*fold);
}

/* The next entry of a list. */
static profile_string next(struct profile *names, const char **at, const char *end)
{
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    size_t len = (size_t)((stop ? stop : end) - *at);
    profile_string string = profile_add_string_n(names, *at, len);
    *at = stop ? stop + 1 : end;
    return string;
}

/* The two lists have an entry for each call, the outermost first. */
static size_t steps_of(struct fold *fold, const struct query_value *functions,
                       const struct query_value *modules)
{
    size_t n = 0;
    if (!(functions->state & QUERY_KNOWN))
        return 0;
    const char *name = functions->text, *names_end = name + functions->len;
    const char *module = modules->text, *modules_end = module + modules->len;
    while (name < names_end && n < TREE_DEPTH_MAX) {
        profile_string function = next(fold->names, &name, names_end);
        fold->steps[n++] = (struct tree_step){function, next(fold->names, &module, modules_end)};
    }
    for (size_t i = 0; fold->inverted && i < n / 2; i++) {
        struct tree_step step = fold->steps[i];
        fold->steps[i] = fold->steps[n - 1 - i];
        fold->steps[n - 1 - i] = step;
    }
    return n;
}

static int each_stack(const struct query_row *row, const struct query_value *values, void *context)
{
    struct fold *fold = context;
    struct profile_figures figures = {.live_bytes = values[SHOW_BYTES].number,
                                      .live_blocks = values[SHOW_BLOCKS].number,
                                      .alloc_bytes = values[SHOW_ALLOCATED].number,
                                      .alloc_blocks = values[SHOW_ALLOCATED_BLOCKS].number};
    size_t n = steps_of(fold, &values[SHOW_FUNCTIONS], &values[SHOW_MODULES]);
    int r = profile_error(fold->names);
    return r < 0 ? r
                 : tree_add(&fold->tree, fold->steps, n, &figures,
                            values[SHOW_ESTIMATED].number != 0);
}

static int fold_new(bool inverted, struct fold **ret_fold)
{
    struct fold *fold = calloc(1, sizeof(*fold));
    if (!fold)
        return -ENOMEM;
    *ret_fold = fold;
    fold->inverted = inverted;
    fold->names = profile_new();
    return fold->names ? tree_begin(&fold->tree, fold->names) : -ENOMEM;
}

static void run(struct job *job)
{
    const struct process_wish *wish = job->more;
    MEMOIR_CLEANUP(process_asking_release)
    struct process_asking asking;
    MEMOIR_CLEANUP(fold_release)
    struct fold *fold = NULL;
    int r = process_asking_open(job, &asking);
    asking.world.time_max_ns = 0; /* half a tree would be wrong */
    if (r >= 0)
        r = fold_new(wish->inverted, &fold);
    if (r >= 0)
        r = query_each(wish->query, &asking.world, each_stack, fold);
    if (r >= 0)
        r = tree_end(&fold->tree, ROWS_LIVE);
    if (process_asking_failed(job, &asking, r, r >= 0 && fold->tree.n == 1))
        return;
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.flame/1");
    json_field_i64(json, "pid", job->part.pid);
    json_field_string(json, "program", wish->program);
    json_field_bool(json, "at_peak", wish->at_peak);
    r = tree_json(&fold->tree, json);
    json_field_u64(json, "books", asking.profile.books);
    json_field_u64(json, "books_unread", asking.profile.books_unread);
    json_field_u64(json, "sites_full", asking.profile.sites_full);
    json_object_end(json);
    if (r < 0)
        api_failed(job->call, "the stacks could not be put together", r);
}

void api_answer_flame(struct http_call *call, void *context)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(QUERY_TEXT_MAX);
    uint32_t space = 0;
    if (!api_space(call, &space))
        return;
    if (space)
        query_where_text(&where, "space", "=", ledger_space_name(space));
    api_process_rows(call, context,
                     &(struct query_spec){.table = query_view_find("flame")->table,
                                          .where = buffer_string(&where),
                                          .show = show},
                     run);
}
