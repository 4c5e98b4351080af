/* memoir trace: what happens to the memory of CUDA programs. This file has the command itself and the subcommands that begin and
 * end tracing. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/process_word.h"
#include "cli/trace.h"
#include "cli/trace_observer.h"
#include "ledger/proc.h"
#include "trace/ask.h"

/* ---- attach ---- */

static const struct option_spec attach_options[] = {
    OPTION_HELP,
    TRACE_OPTION_SOCKET,
    TRACE_OPTION_DIR,
    {"quiet", 'q', OPTION_FLAG, TRACE_AT(quiet), .help = "print nothing on success"},
    {0},
};

/* Ask an observer that is there. -ENOENT or -ECONNREFUSED: there is none. */
static int ask_trace(const char *socket, pid_t pid, char why[static TRACE_ASK_WHY_MAX])
{
    char request[32];
    MEMOIR_CLEANUP(closep)
    int fd = trace_ask_open(socket);
    if (fd < 0)
        return fd;
    snprintf(request, sizeof(request), "trace %d", (int)pid);
    return trace_ask(fd, request, NULL, why);
}

/* The LD_LIBRARY_PATH of a running process plays no part: its maps tell which libraries it has. */
static int attach(const struct trace_values *v, pid_t pid)
{
    char why[TRACE_OBSERVER_WHY_MAX] = "", refused[TRACE_ASK_WHY_MAX] = "", own[108];
    struct trace_observer observer;
    trace_observer_socket(pid, own);
    int r = ask_trace(v->socket ? v->socket : TRACE_ASK_SOCKET, pid, refused);
    if (r == -EREMOTEIO)
        return command_fail("cannot trace process %d: %s", (int)pid, refused);
    if (r == 0)
        return COMMAND_OK;
    if (v->socket)
        return command_fail("no observer at '%s': %s", v->socket, strerror(-r));
    if (ask_trace(own, pid, refused) == 0) {
        fprintf(stderr, "Process %d is traced already.\n", (int)pid);
        return COMMAND_OK;
    }
    r = trace_observer_start(&observer, pid, true, NULL, v->dir, why);
    return r < 0 ? command_fail("cannot trace process %d: %s", (int)pid, why) : COMMAND_OK;
}

static int pid_operand(const struct command *command, const struct operands *operands,
                       pid_t *ret_pid)
{
    uint64_t pid;
    if (operands->n < 1)
        return command_misuse(command, "missing argument: PID");
    if (!process_word_pid(operands->words[0], &pid))
        return command_misuse(command, "'%s' is not a valid PID", operands->words[0]);
    *ret_pid = (pid_t)pid;
    return COMMAND_OK;
}

static int attach_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    struct proc_stat stat;
    pid_t pid = 0;
    int r = pid_operand(&cmd_trace_attach, operands, &pid);
    if (r != COMMAND_OK)
        return r;
    if (proc_stat_read(pid, &stat) < 0) {
        command_fail("no process %d", (int)pid);
        return COMMAND_NOTHING;
    }
    r = attach(v, pid);
    if (r == COMMAND_OK && !v->quiet)
        printf("Tracing process %d. What it allocated before is not known.\n"
               "Next: memoir trace hot %d, memoir trace list, memoir trace stop %d\n",
               (int)pid, (int)pid, (int)pid);
    return r;
}

static const struct command_example attach_examples[] = {
    {"sudo memoir trace attach 4242", "trace process 4242 until it ends or is stopped"},
    {0},
};

const struct command cmd_trace_attach = {
    .name = "trace attach",
    .usage = "trace attach [OPTION...] PID",
    .help = "begin to trace a running process",
    .description =
        "Attaches probes to the CUDA driver's library as the process has it mapped, and returns. The process is not stopped "
        "and not changed. Where memoird's observer runs, it traces the process; else an observer of its own is started, which "
        "ends one hour after the process, or with memoir trace stop.",
    .options = attach_options,
    .examples = attach_examples,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = attach_run,
};

/* ---- stop ---- */

static const struct option_spec stop_options[] = {
    OPTION_HELP,
    {"quiet", 'q', OPTION_FLAG, TRACE_AT(quiet), .help = "print nothing on success"},
    {0},
};

struct stopping {
    bool quiet;
    size_t stopped, failed;
    size_t stale; /* sockets of observers that were killed */
};

static void stop_one(void *context, const char *socket, pid_t pid)
{
    struct stopping *s = context;
    if (pid == 0)
        return; /* memoird's own observer is memoird's */
    int r = trace_observer_stop(socket);
    if (r == -ENOENT || r == -ECONNREFUSED) {
        s->stale += unlink(socket) == 0; /* its observer was killed */
        return;
    }
    if (r < 0) {
        command_fail("cannot stop tracing process %d: %s", (int)pid, strerror(-r));
        s->failed++;
        return;
    }
    s->stopped++;
    if (!s->quiet)
        printf("Stopped tracing process %d.\n", (int)pid);
}

static int stop_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    struct stopping s = {.quiet = v->quiet};
    if (operands->n == 1) {
        char socket[108];
        pid_t pid = 0;
        int r = pid_operand(&cmd_trace_stop, operands, &pid);
        if (r != COMMAND_OK)
            return r;
        trace_observer_socket(pid, socket);
        stop_one(&s, socket, pid);
        if (s.stale) {
            fflush(stdout);
            r = trace_observer_orphans();
            return r == 0 ? COMMAND_OK : COMMAND_FAILED;
        }
        if (s.failed == 0 && s.stopped == 0) {
            command_fail("no observer of its own traces process %d%s", (int)pid,
                         access(TRACE_ASK_SOCKET, F_OK) == 0
                             ? "; memoird's observer traces all processes"
                             : "");
            return COMMAND_NOTHING;
        }
        return s.failed ? COMMAND_FAILED : COMMAND_OK;
    }
    if (geteuid() != 0)
        return command_fail("tracing belongs to root: try sudo");
    trace_observer_each(stop_one, &s);
    fflush(stdout);
    int r = trace_observer_orphans();
    if (r == -ENOENT)
        return command_fail("memoir-observe is not installed: this build of Memoir has no BPF");
    return r != 0 || s.failed ? COMMAND_FAILED : COMMAND_OK;
}

static const struct command_example stop_examples[] = {
    {"sudo memoir trace stop 4242", "remove the probes of process 4242"},
    {"sudo memoir trace stop",
     "end all observers that trace run and attach started, and remove probes whose observer was killed"},
    {0},
};

const struct command cmd_trace_stop = {
    .name = "trace stop",
    .usage = "trace stop [OPTION...] [PID]",
    .help = "end tracing and remove probes",
    .description =
        "Ends the observer that trace attach started for the process; its history is gone then, so dump it before. Without a "
        "PID, ends all such observers and removes probes that an observer left which was killed. memoird's own observer is not "
        "touched.",
    .options = stop_options,
    .examples = stop_examples,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = stop_run,
};

/* ---- the command ---- */

static const struct command_common defaults = {0};
static const struct option_spec options[] = {OPTION_HELP, {0}};

static const struct command *const parts[] = {
    &cmd_trace_run,     &cmd_trace_attach,
    &cmd_trace_stop,    &cmd_trace_list,
    &cmd_trace_hot,     &cmd_trace_cold,
    &cmd_trace_history, &cmd_trace_waste,
    &cmd_trace_owners,  &cmd_trace_oom,
    &cmd_trace_dump,    &cmd_trace_load,
    &cmd_trace_diff,    NULL,
};

static const struct command_example examples[] = {
    {"sudo memoir trace run python3 train.py",
     "trace a program from its start; a summary follows at the end"},
    {"sudo memoir trace hot 4242",
     "which buffers of process 4242 cross the bus most, from which line"},
    {"sudo memoir trace waste 4242", "copies that need not be, and what pinning would save"},
    {0},
};

static int trace_run(const void *values, const struct operands *operands)
{
    return COMMAND_USAGE; /* command_run() never gets here */
}

const struct command cmd_trace = {
    .name = "trace",
    .usage = "trace SUBCOMMAND [OPTION...]",
    .help = "every CUDA allocation and copy of a program, with its history",
    .description =
        "Traces programs that use CUDA, unchanged, while they run: every allocation of device, pinned, managed and registered memory and every "
        "copy, with the line of code that made the call and with what the operating system did to the buffer. Probes in the kernel "
        "(eBPF) watch the driver's library; kernel launches are never probed.\n\n"
        "Tracing needs root. PID is a traced process; FILE is a dump that run -o or dump wrote.",
    .options = options,
    .examples = examples,
    .parts = parts,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = trace_run,
};
