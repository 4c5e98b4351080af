/* Completions for bash, zsh and fish from the command tables. See help.h. */
#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "cli/command.h"
#include "cli/help.h"
#include "query/query.h"
#include "query/vocabulary.h"

/* Prints the PIDs that a shell may offer; works in all three. */
#define PIDS "memoir ps --csv --no-header 2>/dev/null | cut -d, -f1"

static const struct option_spec *visible(const struct option_spec *spec)
{
    while (spec->name && spec->hidden)
        spec++;
    return spec;
}

/* for (const struct option_spec *o …) over options that are not hidden */
#define EACH_OPTION(o, specs) \
    for (const struct option_spec *o = visible(specs); o->name; o = visible(o + 1))

static void words_of(struct buffer *out, const char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        buffer_printf(out, "%s%s", i ? " " : "", words[i]);
}

/* A string inside single quotes of any shell of the three. */
static void quoted(struct buffer *out, const char *text)
{
    buffer_append_char(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            buffer_append_str(out, "'\\''");
        else
            buffer_append_char(out, *text);
    }
    buffer_append_char(out, '\'');
}

/* Lists of columns are completed from the words of the vocabulary that tables have. */
static bool takes_columns(const struct option_spec *o)
{
    return o->value && !o->choices && strcmp(o->value, "COLUMNS") == 0;
}

static void columns_of(struct buffer *out)
{
    size_t n;
    const struct query_word *words = query_words(&n);
    const char *space = "";
    for (size_t i = 0; i < n; i++) {
        if (words[i].document)
            continue;
        buffer_printf(out, "%s%s", space, words[i].name);
        space = " ";
    }
}

static void tables_of(struct buffer *out)
{
    const char *space = "";
    for (const struct query_table *const *t = query_tables(); *t; t++, space = " ")
        buffer_printf(out, "%s%s", space, (*t)->name);
}

/* ---- bash ---- */

static void bash_value(struct buffer *out, const struct option_spec *o)
{
    static const char *const offers[] = {
        [COMPLETE_NOTHING] = NULL,
        [COMPLETE_DIRECTORY] = "compgen -d -- \"$cur\"",
        [COMPLETE_USER] = "compgen -u -- \"$cur\"",
        [COMPLETE_PID] = "compgen -W \"$(" PIDS ")\" -- \"$cur\"",
    };
    if (!o->value || o->value_optional)
        return;
    buffer_printf(out, "        --%s", o->name);
    if (o->letter)
        buffer_printf(out, "|-%c", o->letter);
    if (takes_columns(o)) {
        buffer_append_str(out, ")\n            _memoir_columns\n            return ;;\n");
        return;
    }
    buffer_append_str(out, ")\n            COMPREPLY=(");
    if (o->choices) {
        buffer_append_str(out, "$(compgen -W '");
        words_of(out, o->choices);
        buffer_append_str(out, "' -- \"$cur\")");
    } else if (offers[o->completion]) {
        buffer_printf(out, "$(%s)", offers[o->completion]);
    }
    buffer_append_str(out, ")\n            return ;;\n");
}

static void bash_command(struct buffer *out, const struct command *command);

/* The second word names a subcommand; what follows it is completed as for any command. */
static void bash_parts(struct buffer *out, const struct command *command)
{
    buffer_append_str(out,
                      "        if [ \"$COMP_CWORD\" -eq 2 ]; then\n            words='--help ");
    for (size_t i = 0; command->parts[i]; i++)
        buffer_printf(out, "%s ", command_last_word(command->parts[i]));
    buffer_append_str(out, "'\n        else\n        case \"${COMP_WORDS[2]}\" in\n");
    for (size_t i = 0; command->parts[i]; i++)
        bash_command(out, command->parts[i]);
    buffer_append_str(out, "        esac\n        fi ;;\n");
}

static void bash_command(struct buffer *out, const struct command *command)
{
    buffer_printf(out, "    %s)\n", command_last_word(command));
    if (command->parts) {
        bash_parts(out, command);
        return;
    }
    buffer_append_str(out, "        case \"$prev\" in\n");
    EACH_OPTION(o, command->options)
    bash_value(out, o);
    buffer_append_str(out, "        esac\n");
    if (command->starts_other)
        buffer_append_str(
            out, "        case \"$cur\" in -*) ;; ?*)\n"
                 "            COMPREPLY=($(compgen -c -- \"$cur\"; compgen -f -- \"$cur\"))\n"
                 "            return ;;\n        esac\n");
    if (command->takes_processes)
        buffer_printf(out,
                      "        case \"$cur\" in -*) ;; *)\n"
                      "            COMPREPLY=($(compgen -W \"$(" PIDS ")\" -- \"$cur\"%s))\n"
                      "            return ;;\n        esac\n",
                      command->takes_files ? "; compgen -f -- \"$cur\"" : "");
    buffer_append_str(out, "        words='");
    EACH_OPTION(o, command->options)
    buffer_printf(out, "--%s ", o->name);
    if (command == &cmd_help)
        for (size_t i = 0; commands[i]; i++)
            if (!commands[i]->hidden)
                buffer_printf(out, "%s ", commands[i]->name);
    if (command == &cmd_query)
        tables_of(out);
    buffer_append_str(out, "' ;;\n");
}

static void bash_script(struct buffer *out)
{
    buffer_append_str(out, "# bash completion for memoir; generated from its command tables\n"
                           "_memoir_columns() # the last of a list: \"-rss,pro\"\n{\n"
                           "    local last=\"${cur##*,}\" columns='");
    columns_of(out);
    buffer_append_str(out, "'\n"
                           "    last=\"${last#[-+]}\"\n"
                           "    COMPREPLY=($(compgen -P \"${cur%\"$last\"}\" -W \"$columns\" -- "
                           "\"$last\"))\n}\n"
                           "_memoir()\n{\n"
                           "    local cur=\"${COMP_WORDS[COMP_CWORD]}\" words=''\n"
                           "    local prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
                           "    COMPREPLY=()\n"
                           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='");
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            buffer_printf(out, "%s ", commands[i]->name);
    EACH_OPTION(o, help_global_options)
    buffer_printf(out, "--%s ", o->name);
    buffer_append_str(out, "'\n    else\n    case \"${COMP_WORDS[1]}\" in\n");
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            bash_command(out, commands[i]);
    buffer_append_str(out, "    esac\n    fi\n"
                           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                           "}\n"
                           "complete -F _memoir memoir\n");
}

/* ---- zsh ---- */

/* _arguments gives brackets and colons a meaning. */
static void zsh_text(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            buffer_append_char(out, '\\');
        if (*text == '\'')
            buffer_append_str(out, "'\\''");
        else
            buffer_append_char(out, *text);
    }
}

static void zsh_option(struct buffer *out, const struct option_spec *o)
{
    static const char *const offers[] = {
        [COMPLETE_NOTHING] = " ",
        [COMPLETE_DIRECTORY] = "_files -/",
        [COMPLETE_USER] = "_users",
        [COMPLETE_PID] = "($(" PIDS "))",
    };
    buffer_append_str(out, "            '");
    if (o->letter)
        buffer_printf(out, "(-%c --%s)'{-%c,--%s}'", o->letter, o->name, o->letter, o->name);
    else
        buffer_printf(out, "--%s", o->name);
    if (o->value && o->value_optional)
        buffer_append_str(out, "=-");
    else if (o->value && !o->letter)
        buffer_append_char(out, '=');
    buffer_append_char(out, '[');
    zsh_text(out, o->help);
    buffer_append_char(out, ']');
    if (o->value) {
        buffer_append_str(out, o->value_optional ? "::" : ":");
        zsh_text(out, o->value);
        buffer_append_char(out, ':');
        if (o->choices) {
            buffer_append_char(out, '(');
            words_of(out, o->choices);
            buffer_append_char(out, ')');
        } else if (takes_columns(o)) {
            buffer_append_str(out, "_sequence compadd - $columns");
        } else {
            buffer_append_str(out, offers[o->completion]);
        }
    }
    buffer_append_char(out, '\'');
}

static void zsh_commands(struct buffer *out, const struct command *const *list)
{
    for (size_t i = 0; list[i]; i++) {
        if (list[i]->hidden)
            continue;
        buffer_printf(out, "        '%s:", command_last_word(list[i]));
        zsh_text(out, list[i]->help);
        buffer_append_str(out, "'\n");
    }
}

static void zsh_command(struct buffer *out, const struct command *command);

static void zsh_parts(struct buffer *out, const struct command *command)
{
    buffer_append_str(out, "        list=(\n");
    zsh_commands(out, command->parts);
    buffer_append_str(out, "        )\n"
                           "        if (( CURRENT == 2 )); then\n"
                           "            _describe subcommand list\n"
                           "            return\n"
                           "        fi\n"
                           "        name=$words[2]\n"
                           "        shift words\n"
                           "        (( CURRENT-- ))\n"
                           "        case $name in\n");
    for (size_t i = 0; command->parts[i]; i++)
        zsh_command(out, command->parts[i]);
    buffer_append_str(out, "        esac ;;\n");
}

static void zsh_command(struct buffer *out, const struct command *command)
{
    buffer_printf(out, "    %s)\n", command_last_word(command));
    if (command->parts) {
        zsh_parts(out, command);
        return;
    }
    buffer_append_str(out, "        _arguments -s");
    EACH_OPTION(o, command->options)
    {
        buffer_append_str(out, " \\\n");
        zsh_option(out, o);
    }
    if (command == &cmd_help)
        buffer_append_str(out, " \\\n            '1:command:(${list%%:*})'");
    if (command == &cmd_query) {
        buffer_append_str(out, " \\\n            '1:table:(");
        tables_of(out);
        buffer_append_str(out, ")'");
    }
    if (command->takes_processes)
        buffer_append_str(out, command->takes_files
                                   ? " \\\n            '*:process or file:{compadd -- $(" PIDS
                                     "); _files}'"
                                   : " \\\n            '*:process:($(" PIDS "))'");
    if (command->starts_other)
        buffer_append_str(out, " \\\n            '*::program:_normal'");
    buffer_append_str(out, " ;;\n");
}

static void zsh_script(struct buffer *out)
{
    buffer_append_str(out, "#compdef memoir\n"
                           "# zsh completion for memoir; generated from its command tables\n"
                           "_memoir() {\n    local -a list columns\n    columns=(");
    columns_of(out);
    buffer_append_str(out, ")\n    list=(\n");
    zsh_commands(out, commands);
    buffer_append_str(out, "    )\n"
                           "    if (( CURRENT == 2 )); then\n"
                           "        _describe command list\n"
                           "        return\n"
                           "    fi\n"
                           "    local name=$words[2]\n"
                           "    shift words\n"
                           "    (( CURRENT-- ))\n"
                           "    case $name in\n");
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            zsh_command(out, commands[i]);
    buffer_append_str(out, "    esac\n}\n_memoir \"$@\"\n");
}

/* ---- fish ---- */

/* The condition that the line is about this command. */
static void fish_condition(struct buffer *out, const struct command *command)
{
    const char *space = command ? strchr(command->name, ' ') : NULL;
    if (!command) {
        buffer_append_str(out, "__fish_use_subcommand");
        return;
    }
    if (space)
        buffer_printf(out, "__fish_seen_subcommand_from %.*s; and ", (int)(space - command->name),
                      command->name);
    buffer_printf(out, "__fish_seen_subcommand_from %s", command_last_word(command));
    for (size_t i = 0; !space && commands[i]; i++) /* "run" is also the last word of "trace run" */
        if (command_part(commands[i], command->name))
            buffer_printf(out, "; and not __fish_seen_subcommand_from %s", commands[i]->name);
}

static void fish_option(struct buffer *out, const struct command *command,
                        const struct option_spec *o)
{
    static const char *const offers[] = {
        [COMPLETE_NOTHING] = "",
        [COMPLETE_DIRECTORY] = "(__fish_complete_directories)",
        [COMPLETE_USER] = "(__fish_complete_users)",
        [COMPLETE_PID] = "(" PIDS ")",
    };
    buffer_append_str(out, "complete -c memoir -n '");
    fish_condition(out, command);
    buffer_printf(out, "' -l %s", o->name);
    if (o->letter)
        buffer_printf(out, " -s %c", o->letter);
    if (o->value && !o->value_optional) {
        buffer_append_str(out, " -x -a '");
        if (o->choices)
            words_of(out, o->choices);
        else if (takes_columns(o))
            buffer_append_str(out, "(__fish_append , $__memoir_columns)");
        else
            buffer_append_str(out, offers[o->completion]);
        buffer_append_char(out, '\'');
    }
    buffer_append_str(out, " -d ");
    quoted(out, o->help);
    buffer_append_char(out, '\n');
}

static void fish_command(struct buffer *out, const struct command *command,
                         const struct command *whole)
{
    buffer_append_str(out, "complete -c memoir -n '");
    fish_condition(out, whole);
    if (whole) { /* no subcommand yet */
        buffer_append_str(out, "; and not __fish_seen_subcommand_from");
        for (size_t i = 0; whole->parts[i]; i++)
            buffer_printf(out, " %s", command_last_word(whole->parts[i]));
    }
    buffer_printf(out, "' -a %s -d ", command_last_word(command));
    quoted(out, command->help);
    buffer_append_char(out, '\n');
    for (size_t i = 0; command->parts && command->parts[i]; i++)
        fish_command(out, command->parts[i], command);
    if (command->parts)
        return;
    EACH_OPTION(o, command->options)
    fish_option(out, command, o);
    if (command == &cmd_query) {
        buffer_append_str(out, "complete -c memoir -n '");
        fish_condition(out, command);
        buffer_append_str(out, "' -a '");
        tables_of(out);
        buffer_append_str(out, "'\n");
    }
    if (command->takes_processes) {
        buffer_append_str(out, "complete -c memoir -n '");
        fish_condition(out, command);
        buffer_printf(out, "'%s -a '(" PIDS ")'\n", command->takes_files ? " -F" : "");
    }
    if (command->starts_other) {
        buffer_append_str(out, "complete -c memoir -n '");
        fish_condition(out, command);
        buffer_append_str(out, "' -x -a '(__fish_complete_subcommand)'\n");
    }
}

static void fish_script(struct buffer *out)
{
    buffer_append_str(out, "# fish completion for memoir; generated from its command tables\n"
                           "complete -c memoir -f\n"
                           "set -g __memoir_columns ");
    columns_of(out);
    buffer_append_char(out, '\n');
    EACH_OPTION(o, help_global_options)
    fish_option(out, NULL, o);
    for (size_t i = 0; commands[i]; i++) {
        if (commands[i]->hidden)
            continue;
        fish_command(out, commands[i], NULL);
        if (commands[i] != &cmd_help)
            buffer_printf(out, "complete -c memoir -n '__fish_seen_subcommand_from help' -a %s\n",
                          commands[i]->name);
    }
}

int completion_script(const char *shell, struct buffer *out)
{
    static const struct {
        const char *shell;
        void (*make)(struct buffer *out);
    } shells[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
    for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
        if (strcmp(shells[i].shell, shell) == 0) {
            shells[i].make(out);
            return out->error;
        }
    }
    return -ENOENT;
}
