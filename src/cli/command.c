/* Finding and running commands. See command.h. */
#include "cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/help.h"
#include "cli/process_word.h"
#include "cli/term.h"
#include "query/query.h"

enum { MESSAGE_MAX = 65536, FRAME_EXTRA_MAX = 65536, PARTS_MAX = 32 };

const struct command *const commands[] = {
    &cmd_top,    &cmd_ps,      &cmd_devices, &cmd_buffers, &cmd_sites,   &cmd_flame,  &cmd_leaks,
    &cmd_heap,   &cmd_explain, &cmd_query,   &cmd_log,     &cmd_history, &cmd_exited, &cmd_run,
    &cmd_attach, &cmd_detach,  &cmd_trace,   &cmd_pin,     &cmd_open,    &cmd_token,  &cmd_cluster,
    &cmd_doctor, &cmd_demo,    &cmd_help,    NULL,
};

static struct sigaction inherited_pipe;

void command_take_signals(void)
{
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, &inherited_pipe);
}

void command_restore_signals(void)
{
    sigaction(SIGPIPE, &inherited_pipe, NULL);
}

const char *command_last_word(const struct command *command)
{
    const char *space = strrchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

const struct command *command_part(const struct command *command, const char *name)
{
    for (size_t i = 0; command->parts && command->parts[i]; i++)
        if (strcmp(command_last_word(command->parts[i]), name) == 0)
            return command->parts[i];
    return NULL;
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; commands[i]; i++) {
        size_t len = strlen(commands[i]->name);
        if (strncmp(commands[i]->name, name, len) != 0)
            continue;
        if (!name[len])
            return commands[i];
        const struct command *part = NULL;
        if (name[len] == ' ' || name[len] == '-')
            part = command_part(commands[i], name + len + 1);
        if (part)
            return part;
    }
    return NULL;
}

/* Visible names in `list`, ended by NULL. */
static void names_of(const struct command *const *list, const char **words, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; list[i] && n + 1 < max; i++)
        if (!list[i]->hidden)
            words[n++] = command_last_word(list[i]);
    words[n] = NULL;
}

/* The subcommand is missing or unknown. */
static int part_misuse(const struct command *command, const char *name)
{
    const char *words[PARTS_MAX + 1];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer all = BUFFER_INIT(MESSAGE_MAX);
    names_of(command->parts, words, PARTS_MAX + 1);
    for (size_t i = 0; words[i]; i++)
        buffer_printf(&all, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
    const char *nearest = name ? options_nearest(name, words) : NULL;
    if (!name)
        return command_misuse(command, "missing subcommand: expected %s", buffer_string(&all));
    if (nearest)
        return command_misuse(command, "unknown subcommand '%s', did you mean '%s'?", name,
                              nearest);
    return command_misuse(command, "unknown subcommand '%s': expected %s", name,
                          buffer_string(&all));
}

int command_unknown(const char *name)
{
    const char *words[sizeof(commands) / sizeof(commands[0])];
    names_of(commands, words, sizeof(words) / sizeof(words[0]));
    const char *nearest = options_nearest(name, words);
    if (nearest)
        return command_misuse(NULL, "there is no command '%s', did you mean '%s'?", name, nearest);
    return command_misuse(NULL, "there is no command '%s'", name);
}

/* Messages quote what the user typed or what a stranger named, hence term_append(). */
static void say(const char *text)
{
    struct term term;
    term_init(&term, STDERR_FILENO, TERM_COLOR_AUTO);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer line = BUFFER_INIT(MESSAGE_MAX);
    buffer_append_str(&line, "memoir: ");
    term_append(&term, &line, text, 0);
    buffer_append_char(&line, '\n');
    fs_write_all(STDERR_FILENO, buffer_string(&line), line.len);
}

int command_fail(const char *fmt, ...)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(MESSAGE_MAX);
    va_list args;
    va_start(args, fmt);
    buffer_vprintf(&text, fmt, args);
    va_end(args);
    say(buffer_string(&text));
    return COMMAND_FAILED;
}

int command_misuse(const struct command *command, const char *fmt, ...)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(MESSAGE_MAX);
    va_list args;
    va_start(args, fmt);
    buffer_vprintf(&text, fmt, args);
    va_end(args);
    buffer_printf(&text, " (see: memoir %s%s--help)", command ? command->name : "",
                  command ? " " : "");
    say(buffer_string(&text));
    return COMMAND_USAGE;
}

int command_check_dir(const char *dir)
{
    struct stat info;
    errno = 0;
    if (!dir || (stat(dir, &info) == 0 && S_ISDIR(info.st_mode)))
        return COMMAND_OK;
    return command_fail("cannot look for books in '%s': %s", dir,
                        strerror(errno ? errno : ENOTDIR));
}

int command_keep_books_in(const char *dir)
{
    char path[PATH_MAX]; /* MEMOIR_DIR is absolute */
    int r = command_check_dir(dir);
    if (!dir || r != COMMAND_OK)
        return r;
    if (!realpath(dir, path))
        return -errno;
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fs_is_tmpfs(fd) == 0)
        return command_fail(
            "books must lie in memory, and '%s' does not: try a directory in /dev/shm", dir);
    return setenv("MEMOIR_DIR", path, 1) < 0 ? -errno : COMMAND_OK;
}

int command_output(const struct buffer *text)
{
    if (text->error)
        return command_fail("cannot print: %s", strerror(-text->error));
    int r = fs_write_all(STDOUT_FILENO, buffer_string(text), text->len);
    if (r == -EPIPE)
        return COMMAND_FAILED; /* the reader closed the pipe */
    if (r < 0)
        return command_fail("cannot write the output: %s", strerror(-r));
    return COMMAND_OK;
}

int command_frame(const struct term *term, const struct buffer *frame)
{
    if (!term->tty)
        return command_output(frame);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer screen = BUFFER_INIT(frame->limit + FRAME_EXTRA_MAX);
    buffer_append_str(&screen, "\033[H");
    const char *line = buffer_string(frame);
    for (unsigned row = 1; *line && (!term->height || row < term->height); row++) {
        size_t len = strcspn(line, "\n");
        buffer_append(&screen, line, len);
        buffer_append_str(&screen, "\033[K\n");
        line += len + (line[len] == '\n');
    }
    buffer_append_str(&screen, "\033[J");
    return command_output(&screen);
}

int command_run(const struct command *command, int argc, char **argv)
{
    if (command->parts && argc > 1 && argv[1][0] != '-') {
        const struct command *part = command_part(command, argv[1]);
        return part ? command_run(part, argc - 1, argv + 1) : part_misuse(command, argv[1]);
    }
    MEMOIR_CLEANUP(freep)
    void *values = malloc(command->values_size);
    if (!values)
        return command_fail("%s", strerror(ENOMEM));
    memcpy(values, command->defaults, command->values_size);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer error = BUFFER_INIT(MESSAGE_MAX);
    struct operands operands;
    int r = command->starts_other
                ? options_parse_head(command->options, argc, argv, values, &operands, &error)
                : options_parse(command->options, argc, argv, values, &operands, &error);
    if (r < 0)
        return command_misuse(command, "%s", buffer_string(&error));
    if (((struct command_common *)values)->help)
        return help_command(command);
    if (command->parts)
        return part_misuse(command, operands.n ? operands.words[0] : NULL);
    if (operands.n > command->operands_max)
        return command_misuse(command, "unexpected argument '%s' for '%s'",
                              operands.words[command->operands_max], command->name);
    const struct elsewhere_values *other = &((struct command_common *)values)->elsewhere;
    if (other->token_file && !other->node)
        return command_misuse(command, "--node-token goes with --node");
    if (other->node && other->cluster)
        return command_misuse(command, "--cluster and --node exclude each other");
    const struct past_values *past = &((struct command_common *)values)->past;
    bool as_query = command->elsewhere && (elsewhere_wanted(other) ||
                                           (past_wanted(past) && !command->elsewhere->own_past));
    r = as_query ? elsewhere_run(command, values, &operands) : command->run(values, &operands);
    if (r < 0)
        return command_fail("%s: %s", command->name, strerror(-r));
    return r;
}

int command_pid_operand(const struct command *command, const struct operands *operands,
                        uint64_t *pid)
{
    if (!operands->n)
        return COMMAND_OK;
    if (*pid)
        return command_misuse(command, "unexpected argument '%s' beside --pid", operands->words[0]);
    if (!process_word_pid(operands->words[0], pid))
        return command_misuse(command, "'%s' is not a valid PID", operands->words[0]);
    return COMMAND_OK;
}

void command_json_begin(struct json *json, struct buffer *out, const char *schema)
{
    char now_text[QUERY_TIME_TEXT_MAX];
    query_time_text(now_text, clock_real_ns());
    json_init(json, out);
    json_object_begin(json);
    json_field_string(json, "schema", schema);
    json_field_string(json, "time", now_text);
}
