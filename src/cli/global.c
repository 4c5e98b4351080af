/* What `memoir` takes before any command: help, version, and what packaging needs. */
#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/help.h"

enum { GENERATED_MAX = 4 << 20 };

struct global_values {
    struct command_common common;
    bool version;
    const char *generate;
};

const struct option_spec help_global_options[] = {
    OPTION_HELP,
    {.name = "version",
     .letter = 'V',
     .type = OPTION_FLAG,
     .offset = offsetof(struct global_values, version),
     .help = "show the version and exit"},
    {.name = "generate",
     .type = OPTION_STRING,
     .offset = offsetof(struct global_values, generate),
     .value = "WHAT",
     .help = "print \"man NAME\" or \"completion SHELL\", for packaging",
     .hidden = true},
    {0},
};

static int print_version(void)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(256);
    buffer_printf(&out, "memoir %s\n", MEMOIR_VERSION);
    return command_output(&out);
}

/* memoir --generate man NAME, memoir --generate completion SHELL */
static int generate(const char *what, const struct operands *operands)
{
    static const struct {
        const char *what;
        int (*make)(const char *name, struct buffer *out);
    } makers[] = {{"man", manual_page}, {"completion", completion_script}};

    if (operands->n != 1)
        return command_misuse(NULL, "--generate takes two words: man NAME or completion SHELL");
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        if (strcmp(makers[i].what, what) != 0)
            continue;
        MEMOIR_CLEANUP(buffer_release)
        struct buffer out = BUFFER_INIT(GENERATED_MAX);
        int r = makers[i].make(operands->words[0], &out);
        if (r == -ENOENT)
            return command_misuse(NULL, "there is no %s for '%s'", what, operands->words[0]);
        return command_output(&out);
    }
    return command_misuse(NULL, "'%s' cannot be generated; man and completion can", what);
}

int global_run(int argc, char **argv)
{
    struct global_values values = {0};
    struct operands operands;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer error = BUFFER_INIT(4096);
    if (options_parse(help_global_options, argc, argv, &values, &operands, &error) < 0)
        return command_misuse(NULL, "%s; options of a command follow its name",
                              buffer_string(&error));
    if (values.common.help)
        return help_overview();
    if (values.version)
        return print_version();
    if (values.generate)
        return generate(values.generate, &operands);
    return command_misuse(NULL, "which command?");
}
