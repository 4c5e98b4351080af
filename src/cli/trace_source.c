/* From a word to a history. See trace.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/process_word.h"
#include "cli/term.h"
#include "cli/trace.h"
#include "cli/trace_native.h"
#include "cli/trace_observer.h"
#include "ledger/proc.h"
#include "trace/ask.h"
#include "trace/dump.h"

const struct trace_values trace_defaults = {
    .for_ns = 5 * NS_PER_S,
    .limit = 20,
    .device = UINT64_MAX,
};
const char *const trace_by_words[] = {"count", "bytes", NULL};

/* What the observer's tables say of all its processes. */
static void list_fetch(const char *socket, struct buffer *list)
{
    char why[TRACE_ASK_WHY_MAX];
    MEMOIR_CLEANUP(closep)
    int fd = trace_ask_open(socket);
    if (fd < 0 || trace_ask(fd, "list", list, why) < 0)
        buffer_reset(list);
}

static int fetch_from(const char *socket, pid_t pid, struct buffer *out, struct buffer *list,
                      char *ret_why, size_t why_size)
{
    char request[32], why[TRACE_ASK_WHY_MAX];
    MEMOIR_CLEANUP(closep)
    int fd = trace_ask_open(socket);
    if (fd < 0)
        return fd == -ENOENT || fd == -ECONNREFUSED ? -ESRCH : fd;
    snprintf(request, sizeof(request), "dump %d", (int)pid);
    int r = trace_ask(fd, request, out, why);
    if (r == -EREMOTEIO) {
        snprintf(ret_why, why_size, "%s", why);
        return strstr(why, "no such process") ? -ESRCH : r;
    }
    if (r == 0 && list)
        list_fetch(socket, list);
    return r == -ECONNRESET ? -EACCES : r; /* it closes connections of other users */
}

int trace_source_fetch(const struct trace_values *values, pid_t pid, struct buffer *out,
                       struct buffer *list, char *ret_why, size_t why_size)
{
    char own[108];
    trace_observer_socket(pid, own);
    const char *sockets[] = {values->socket ? values->socket : TRACE_ASK_SOCKET,
                             values->socket ? NULL : own};
    int result = -ESRCH;
    ret_why[0] = '\0';
    for (size_t i = 0; i < 2 && sockets[i]; i++) {
        int r = fetch_from(sockets[i], pid, out, list, ret_why, why_size);
        if (r == 0)
            return 0;
        if (r != -ESRCH)
            result = r;
        buffer_reset(out);
    }
    if (!values->socket || result == -EBADMSG) { /* not an observer: perhaps memoird */
        int r = trace_native_fetch(values->socket, pid, out, ret_why, why_size);
        if (r == 0)
            return 0;
        if (r != -ESRCH)
            result = r;
        buffer_reset(out);
    }
    return result;
}

/* ---- a process that is not traced yet ---- */

static int not_traced(pid_t pid)
{
    command_fail("process %d is not traced: 'memoir trace attach %d' begins that, as root; "
                 "'memoir trace run COMMAND' traces a program from its start",
                 (int)pid, (int)pid);
    return COMMAND_NOTHING;
}

static int fetch_fail(pid_t pid, int error, const char *why)
{
    if (error == -EACCES || error == -EPERM)
        return command_fail("cannot read the trace of process %d: it belongs to another user, or "
                            "it is traced without memoird, and only root may ask its observer",
                            (int)pid);
    return command_fail("cannot read the trace of process %d: %s", (int)pid,
                        *why ? why : strerror(-error));
}

/* Trace it for a while. */
static int fetch_briefly(const struct trace_values *values, pid_t pid, struct buffer *out,
                         struct buffer *list)
{
    char why[TRACE_OBSERVER_WHY_MAX], time[UNITS_TEXT_MAX];
    struct trace_observer observer;
    if (values->socket || geteuid() != 0)
        return not_traced(pid);
    int r = trace_observer_start(&observer, pid, false, NULL, values->dir, why);
    if (r < 0)
        return command_fail("cannot trace process %d: %s", (int)pid, why);
    fprintf(
        stderr,
        "Process %d is not traced yet: tracing it for %s. 'memoir trace attach %d' traces it until it ends.\n",
        (int)pid, units_format_duration(time, values->for_ns), (int)pid);
    poll(NULL, 0, (int)(values->for_ns / NS_PER_MS));
    r = fetch_from(observer.socket, pid, out, list, why, sizeof(why));
    trace_observer_end(&observer);
    if (r == -ESRCH) {
        command_fail("process %d made no call of the CUDA driver in that time", (int)pid);
        return COMMAND_NOTHING;
    }
    return r < 0 ? fetch_fail(pid, r, why) : COMMAND_OK;
}

static int source_of_process(struct trace_source *source, pid_t pid)
{
    char why[TRACE_OBSERVER_WHY_MAX] = "";
    struct trace_history *history = NULL;
    struct proc_stat stat;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer dump = BUFFER_INIT(TRACE_DUMP_FILE_MAX);
    int r = trace_source_fetch(source->values, pid, &dump, source->list, why, sizeof(why));
    if (r == -ESRCH && proc_stat_read(pid, &stat) < 0) {
        command_fail("no process %d", (int)pid);
        return COMMAND_NOTHING;
    }
    if (r == -ESRCH) {
        r = fetch_briefly(source->values, pid, &dump, source->list);
        if (r != COMMAND_OK)
            return r;
    } else if (r < 0) {
        return fetch_fail(pid, r, why);
    }
    r = trace_dump_decode(dump.data, dump.len, &history);
    if (r < 0)
        return command_fail("cannot read the trace of process %d: %s", (int)pid, strerror(-r));
    return trace_source_take(source, source->command, source->values, history, false);
}

static int source_of_file(struct trace_source *source, const char *path)
{
    struct trace_history *history = NULL;
    int r = trace_dump_load(path, &history);
    if (r == -ENOENT) {
        command_fail("there is neither a process nor a file '%s'", path);
        return COMMAND_NOTHING;
    }
    if (r == -EBADMSG)
        return command_fail("'%s' is not a dump of memoir trace, or it is damaged", path);
    if (r == -EPROTONOSUPPORT)
        return command_fail("'%s' was written by a later version of Memoir", path);
    if (r < 0)
        return command_fail("cannot read '%s': %s", path, strerror(-r));
    return trace_source_take(source, source->command, source->values, history, true);
}

/* In sentences for people: the program has chosen the bytes of its name. */
static void who_set(struct trace_source *source)
{
    const struct trace_identity *id = &source->identity;
    struct term term;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer name = BUFFER_INIT(sizeof(source->who));
    term_init(&term, STDOUT_FILENO, TERM_COLOR_AUTO);
    term_append(&term, &name, *id->name ? id->name : "process", TRACE_NAME_MAX);
    snprintf(source->who, sizeof(source->who), "%s (PID %d)", buffer_string(&name), (int)id->pid);
}

int trace_source_take(struct trace_source *source, const struct command *command,
                      const struct trace_values *values, struct trace_history *history, bool loaded)
{
    char host[TRACE_NAME_MAX] = "";
    struct proc_stat stat;
    source->command = command;
    source->values = values;
    source->history = history;
    source->loaded = loaded;
    source->late = trace_history_totals(history).unknown_sides > 0;
    source->identity = trace_history_identity(history);
    const struct trace_identity *id = &source->identity;
    who_set(source);
    if (!source->names)
        source->names = trace_names_new();
    if (!source->names)
        return -ENOMEM;
    gethostname(host, sizeof(host) - 1);
    bool here = !loaded || (*id->host && strcmp(id->host, host) == 0);
    bool runs = here && proc_stat_read(id->pid, &stat) >= 0 && !stat.dead &&
                proc_same_start(stat.start_ticks, id->start_ticks);
    trace_names_set(source->names, trace_history_sites(history), runs ? id->pid : 0, here,
                    id->start_real_ns);
    return COMMAND_OK;
}

int trace_source_open(struct trace_source *source, const struct command *command,
                      const struct trace_values *values, const char *word)
{
    uint64_t pid;
    *source = (struct trace_source){.command = command, .values = values, .list = source->list};
    if (values->json && values->csv)
        return command_misuse(command, "--json and --csv exclude each other");
    source->names = trace_names_new();
    if (!source->names)
        return -ENOMEM;
    if (process_word_pid(word, &pid))
        return source_of_process(source, (pid_t)pid);
    return source_of_file(source, word);
}

int trace_source_operand(struct trace_source *source, const struct command *command,
                         const struct trace_values *values, const struct operands *operands)
{
    *source = (struct trace_source){.list = source->list};
    if (operands->n < 1)
        return command_misuse(command, "missing argument: PID%s",
                              command->takes_files ? " or FILE" : "");
    return trace_source_open(source, command, values, operands->words[0]);
}

void trace_source_release(struct trace_source *source)
{
    trace_names_free(source->names);
    trace_history_free(source->history);
    *source = (struct trace_source){0};
}
