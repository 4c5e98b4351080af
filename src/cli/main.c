/* memoir, the command line: picks the command. What the commands are is in command.c. */
#include "book/reader.h"
#include "cli/command.h"
#include "cli/help.h"
#include "explain/table.h"
#include "history/past.h"
#include "nvml/worker.h"
#include "profile/tables.h"
#include "query/query.h"

int main(int argc, char **argv)
{
    if (nvml_worker_is_this(argc, argv))
        return nvml_worker_main();
    (void)profile_tables_register();
    (void)past_tables_register();
    (void)query_table_register(&explain_table);
    command_take_signals();
    book_guard_install();
    if (argc < 2) {
        help_overview();
        return COMMAND_USAGE;
    }
    if (argv[1][0] == '-')
        return global_run(argc, argv);
    const struct command *command = command_find(argv[1]);
    if (!command)
        return command_unknown(argv[1]);
    return command_run(command, argc - 1, argv + 1);
}
