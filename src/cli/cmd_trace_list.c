/* memoir trace list: traced processes. */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "cli/trace_native.h"
#include "cli/trace_observer.h"
#include "trace/ask.h"

enum {
    ANSWER_MAX = 64 << 20,
    EXIT_LOOKS = 5,
    EXIT_LOOK_MS = 10,
};

enum {
    LIST_PID,
    LIST_PROGRAM,
    LIST_UID,
    LIST_DEVICE,
    LIST_PINNED,
    LIST_MANAGED,
    LIST_REGISTERED,
    LIST_GRAPHS,
    LIST_BLOCKS,
    LIST_TO,
    LIST_TO_BYTES,
    LIST_FROM,
    LIST_FROM_BYTES,
    LIST_GRAPH_COPIES,
    LIST_CALLS,
    LIST_LOST,
    LIST_UNCOUNTED,
    LIST_OFF,
    LIST_STATE,
    LIST_OBSERVER,
};

static const struct column list_columns[] = {
    [LIST_PID] = {"pid", "PID", "the traced process", COLUMN_NUMBER},
    [LIST_PROGRAM] = {"program", "PROGRAM", "name of its program; absent before its first call",
                      COLUMN_TEXT, COLUMN_STRETCH},
    [LIST_UID] = {"uid", NULL, "its user", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [LIST_DEVICE] = {"device", "DEVICE", "live device memory", COLUMN_BYTES},
    [LIST_PINNED] = {"pinned", "PINNED", "live pinned host memory", COLUMN_BYTES},
    [LIST_MANAGED] = {"managed", "MANAGED", "live managed memory", COLUMN_BYTES, COLUMN_HIDE_EMPTY},
    [LIST_REGISTERED] = {"registered", "REGISTERED", "live host memory that was registered",
                         COLUMN_BYTES, COLUMN_HIDE_EMPTY},
    [LIST_GRAPHS] =
        {"recorded", "GRAPHS",
         "memory that CUDA graphs recorded: on the device when they are launched, which is "
         "not observed",
         COLUMN_BYTES, COLUMN_HIDE_EMPTY},
    [LIST_BLOCKS] = {"blocks", "BLOCKS", "live allocations", COLUMN_NUMBER, 0, 2},
    [LIST_TO] = {"to_device_copies", "TO DEV", "copies to the device", COLUMN_NUMBER, 0, 3},
    [LIST_TO_BYTES] = {"to_device", "BYTES TO", "bytes copied to the device", COLUMN_BYTES},
    [LIST_FROM] = {"from_device_copies", "FROM DEV", "copies from the device", COLUMN_NUMBER, 0, 3},
    [LIST_FROM_BYTES] = {"from_device", "BYTES FROM", "bytes copied from the device", COLUMN_BYTES},
    [LIST_GRAPH_COPIES] = {"recorded_copies", NULL,
                           "copies that CUDA graphs recorded; those of launches are not observed",
                           COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [LIST_CALLS] = {"calls", NULL, "calls of probed functions", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [LIST_LOST] = {"lost_events", "LOST",
                   "events that histories lack because the ring buffer was full; totals have them",
                   COLUMN_NUMBER},
    [LIST_UNCOUNTED] = {"uncounted", "UNCOUNTED",
                        "bytes of allocations past the quota of the table: in no total",
                        COLUMN_BYTES, COLUMN_HIDE_EMPTY},
    [LIST_OFF] = {"off", NULL, "its tracing is switched off: no figure of it is kept", COLUMN_YES,
                  COLUMN_EXPORT_ONLY},
    [LIST_STATE] = {"state", "STATE", "off: its tracing is switched off", COLUMN_TEXT,
                    COLUMN_SCREEN_ONLY | COLUMN_HIDE_EMPTY},
    [LIST_OBSERVER] = {"observer", "OBSERVER", "who traces it: memoird, or an observer of its own",
                       COLUMN_TEXT, 0, 4},
    {0},
};

static const struct command_fields list_fields[] = {{"Fields of a process", list_columns}, {0}};

static const struct option_spec list_options[] = {
    OPTION_HELP,
    TRACE_OPTION_SOCKET,
    TRACE_OPTION_TABLE,
    {0},
};

struct listing {
    struct table *table;
    size_t refused;
    bool memoird; /* memoird, or its observer, has answered */
};

static void set_field(struct table *table, size_t column, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        table_set_number(table, column, (uint64_t)json_integer_value(value));
}

static void list_row(struct table *table, const json_t *process, const char *observer)
{
    static const struct {
        const char *name;
        size_t column;
    } spaces[] = {{"dram", LIST_DEVICE},
                  {"pinned", LIST_PINNED},
                  {"managed", LIST_MANAGED},
                  {"registered", LIST_REGISTERED}};
    const json_t *copies = json_object_get(process, "copies"),
                 *lost = json_object_get(process, "lost");
    const json_t *to = json_object_get(copies, "to_device"),
                 *from = json_object_get(copies, "from_device");
    const char *program = json_string_value(json_object_get(process, "program"));
    table_row(table);
    set_field(table, LIST_PID, process, "pid");
    if (program)
        table_set_text(table, LIST_PROGRAM, program);
    set_field(table, LIST_UID, process, "uid");
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        const json_t *space = json_object_get(json_object_get(process, "spaces"), spaces[i].name);
        if (space)
            set_field(table, spaces[i].column, space, "bytes");
        else if (i < 2) /* the others are shown only where there is some */
            table_set_number(table, spaces[i].column, 0);
    }
    const json_t *graphs = json_object_get(process, "graphs");
    if (json_integer_value(json_object_get(graphs, "recorded")) > 0)
        set_field(table, LIST_GRAPHS, graphs, "recorded");
    set_field(table, LIST_GRAPH_COPIES, graphs, "recorded_copies");
    set_field(table, LIST_BLOCKS, process, "blocks");
    set_field(table, LIST_TO, to, "copies");
    set_field(table, LIST_TO_BYTES, to, "bytes");
    set_field(table, LIST_FROM, from, "copies");
    set_field(table, LIST_FROM_BYTES, from, "bytes");
    set_field(table, LIST_CALLS, process, "calls");
    set_field(table, LIST_LOST, lost, "events");
    if (json_integer_value(json_object_get(lost, "events")) > 0)
        table_set_style(table, LIST_LOST, STYLE_WARN);
    if (json_integer_value(json_object_get(lost, "bytes")) > 0)
        set_field(table, LIST_UNCOUNTED, lost, "bytes");
    bool off = json_is_true(json_object_get(process, "off"));
    table_set_number(table, LIST_OFF, off);
    if (off) {
        table_set_text(table, LIST_STATE, "off");
        table_set_style(table, LIST_STATE, STYLE_WARN);
    }
    table_set_text(table, LIST_OBSERVER, observer);
}

/* After a connection that ended without an answer: has the observer exited, or does it refuse this user? The kernel may
 * close the connections of a process that was killed shortly before its listening socket, hence several looks. */
static bool observer_exited(const char *socket)
{
    for (int look = 0; look < EXIT_LOOKS; look++) {
        MEMOIR_CLEANUP(closep)
        int fd = trace_ask_open(socket);
        if (fd == -ECONNREFUSED || fd == -ENOENT)
            return true;
        poll(NULL, 0, EXIT_LOOK_MS);
    }
    return false;
}

static void list_from(void *context, const char *socket, pid_t pid)
{
    struct listing *l = context;
    char why[TRACE_ASK_WHY_MAX];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(ANSWER_MAX);
    MEMOIR_CLEANUP(closep)
    int fd = trace_ask_open(socket);
    int r = fd < 0 ? fd : trace_ask(fd, "list", &out, why);
    if (r == -ECONNREFUSED || r == -ENOENT)
        return; /* left by one that was killed */
    if ((r == -ECONNRESET || r == -EPIPE) && observer_exited(socket))
        return;
    json_t *root = r < 0 ? NULL : json_loadb(out.data ? out.data : "", out.len, 0, NULL);
    const json_t *processes = json_object_get(root, "processes"), *process;
    size_t i;
    if (!root)
        l->refused++;
    else if (!pid)
        l->memoird = true;
    json_array_foreach(processes, i, process) list_row(l->table, process, pid ? "own" : "memoird");
    json_decref(root);
}

/* memoird itself answers users who may not ask its observer, and where its observer has another socket. */
static void list_from_memoird(struct listing *l, const char *socket)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(ANSWER_MAX);
    if (trace_native_list(socket, &out) < 0)
        return;
    json_t *root = json_loadb(out.data, out.len, 0, NULL);
    const json_t *processes = json_object_get(root, "traced"), *process;
    size_t i;
    l->memoird = json_is_array(processes);
    json_array_foreach(processes, i, process) list_row(l->table, process, "memoird");
    json_decref(root);
}

static int list_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    struct table_layout layout = {.header = !v->no_header};
    struct term term;
    MEMOIR_CLEANUP(table_release)
    struct table table;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TRACE_OUTPUT_MAX);
    struct listing l = {.table = &table};
    if (v->json && v->csv)
        return command_misuse(&cmd_trace_list, "--json and --csv exclude each other");
    table_init(&table, list_columns);
    if (v->socket)
        list_from(&l, v->socket, 0);
    else
        trace_observer_each(list_from, &l);
    if (!l.memoird)
        list_from_memoird(&l, v->socket);
    if (l.refused && !table.n_rows && !l.memoird)
        return command_fail("an observer runs, but does not answer%s",
                            geteuid() == 0 ? "" : ": only root may ask it");
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    int r = table.error;
    if (r == 0 && v->json)
        r = trace_print_rows(&table, "memoir.trace.list/2", "processes", &out);
    else if (r == 0 && v->csv)
        r = table_print_csv(&table, &layout, &out);
    else if (r == 0 && table.n_rows)
        r = table_print(&table, &layout, &term, &out);
    else if (r == 0)
        fputs(
            "No process is traced. 'memoir trace run COMMAND' traces a program from its start, 'memoir trace attach PID' one that "
            "runs.\n",
            stderr);
    return r < 0 ? r : command_output(&out);
}

static const struct command_example list_examples[] = {
    {"sudo memoir trace list", "which processes are traced, and what they hold"},
    {0},
};

const struct command cmd_trace_list = {
    .name = "trace list",
    .usage = "trace list [OPTION...]",
    .help = "traced processes, what they hold and what they copied",
    .description =
        "Lists the processes that are traced, with live bytes of each kind of memory, copies each way and losses. The figures are the "
        "kernel's own counters: exact also where events were lost. Root asks the observers; memoird shows other users their own "
        "processes.",
    .options = list_options,
    .examples = list_examples,
    .fields = list_fields,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = list_run,
};
