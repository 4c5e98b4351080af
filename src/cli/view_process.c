/* See view_process.h. */
#include "cli/view_process.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/absent.h"
#include "cli/command.h"
#include "cli/process_word.h"
#include "cli/view.h"
#include "cli/world.h"
#include "ledger/ledger.h"
#include "query/query.h"
#include "query/view.h"

enum { WHERE_MAX = 4096 };

int view_process(const struct command *command, const char *name,
                 const struct view_options *options, const char *word, const char *dir,
                 uint64_t limit)
{
    uint64_t pid = 0;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX);
    if (process_word_pid(word, &pid))
        view_test(&where, "pid=%" PRIu64, pid);
    else
        query_where_text(&where, "program", "=", word);
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    MEMOIR_CLEANUP(world_release)
    struct world world = {0};
    const struct view_layout layout = {.limit = limit};
    int r =
        view_query(command, query_view_find(name), options, buffer_string(&where), &layout, &query);
    if (r == 0)
        r = query_result_new(query, 0, &result);
    if (r == 0)
        r = world_ask(&world, &(struct world_options){.dir = dir, .selective = true}, query,
                      result);
    if (r != 0)
        return r;
    if (pid && !ledger_process_find(world.ledger, (pid_t)pid))
        return absent_process(pid, "nothing counts its memory by call site; memoir run starts one "
                                   "that does");
    view_mention(query, result);
    r = view_print(query, result, options);
    return r == COMMAND_OK && query_result_rows(result) == 0 ? COMMAND_NOTHING : r;
}
