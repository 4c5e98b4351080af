/* help.h: help for people, manuals and completions, all made from the command tables. */
#ifndef MEMOIR_CLI_HELP_H
#define MEMOIR_CLI_HELP_H

#include "cli/options.h"

struct buffer;
struct command;

/* What `memoir` itself takes, before any command. */
extern const struct option_spec help_global_options[];

/* Do what the options say that stand in place of a command; returns enum command_exit. */
int global_run(int argc, char **argv);

/* Print to stdout; return enum command_exit. */
int help_command(const struct command *command);
int help_overview(void);

/* What `memoir` ends with, as a paragraph for each code; shared by help and manual. */
struct help_exit {
    int code;
    const char *text; /* NULL ends */
};
extern const struct help_exit help_exits[];

/* A page in man's own language; `name` is "memoir" or a command. -ENOENT if there is no such page. */
int manual_page(const char *name, struct buffer *out);

/* A script for "bash", "zsh" or "fish"; -ENOENT for other shells. */
int completion_script(const char *shell, struct buffer *out);

#endif
