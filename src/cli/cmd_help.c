/* memoir help [COMMAND] */
#include "cli/command.h"
#include "cli/help.h"

static int run(const void *values, const struct operands *operands)
{
    if (operands->n == 0)
        return help_overview();
    const struct command *command = command_find(operands->words[0]);
    if (command && operands->n == 2) {
        const struct command *part = command_part(command, operands->words[1]);
        if (!part)
            return command_misuse(&cmd_help, "'%s' has no subcommand '%s'", command->name,
                                  operands->words[1]);
        command = part;
    }
    if (command)
        return help_command(command);
    return command_unknown(operands->words[0]);
}

static const struct command_common defaults = {0};

static const struct option_spec options[] = {OPTION_HELP, {0}};

static const struct command_example examples[] = {
    {"memoir help ps", "explain the command ps"},
    {0},
};

const struct command cmd_help = {
    .name = "help",
    .usage = "help [COMMAND [SUBCOMMAND]]",
    .help = "explain a command",
    .description = "Shows what a command does, its options and examples; without a COMMAND, lists "
                   "the commands. \"memoir COMMAND --help\" does the same.",
    .options = options,
    .examples = examples,
    .operands_max = 2,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
