/* Views of other nodes: what each command asks them is a question that the query core understands. */
#include "cli/elsewhere.h"

#include <string.h>

#include "check.h"
#include "cli/command.h"
#include "history/past.h"
#include "profile/tables.h"
#include "query/query.h"

static void every_view_of_other_nodes_is_a_valid_question(void **unused)
{
    size_t n = 0;
    for (const struct command *const *c = commands; *c; c++) {
        const struct elsewhere *e = (*c)->elsewhere;
        struct query *query = NULL;
        struct query_error error;
        if (!e)
            continue;
        n++;
        int r = query_new(&(struct query_spec){.table = e->table, .show = e->show, .sort = e->sort},
                          &query, &error);
        if (r < 0)
            fail_msg("memoir %s --cluster: %s", (*c)->name, error.text);
        query_free(query);
        assert_true(!e->show || strncmp(e->show, "node", 4) == 0); /* whose row it is comes first */
    }
    assert_true(n >= 6);
}

int main(void)
{
    assert_int_equal(profile_tables_register(), 0);
    assert_int_equal(past_tables_register(), 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_view_of_other_nodes_is_a_valid_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
