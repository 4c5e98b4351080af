/* memoir cluster: its nodes, and how to join one. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/table.h"

enum { OUTPUT_MAX = 64 << 20 };

const struct cluster_values cluster_defaults = {.listen = "0.0.0.0:4222"};

#define AT(field) offsetof(struct cluster_values, field)

void cluster_decrefp(json_t **json)
{
    json_decref(*json);
}

/* ---- status ---- */

enum {
    COLUMN_NODE,
    COLUMN_ID,
    COLUMN_STATE,
    COLUMN_SINCE,
    COLUMN_VERSION,
    COLUMN_HEARD,
    COLUMN_ANSWERED,
    COLUMN_TOOK,
    COLUMN_MISSED,
    COLUMN_CLOCK
};

static const struct column columns[] = {
    {"node", "NODE", "name of the node, with the first digits of its ID where two have the same",
     COLUMN_TEXT},
    {"id", "ID", "its ID, for cluster-trust", COLUMN_TEXT, 0, 3},
    {"state", "STATE", "alive, unreachable or left", COLUMN_TEXT},
    {"state_age", "FOR", "for how long it has been so", COLUMN_AGE, 0, 1},
    {"version", "VERSION", "of its memoird", COLUMN_TEXT},
    {"heard_age", "HEARD", "since its last heartbeat", COLUMN_AGE, COLUMN_FINE, 1},
    {"answered_age", "ANSWERED", "since its last answer; absent: none yet", COLUMN_AGE,
     COLUMN_FINE},
    {"answer_took", "TOOK", "how long that answer took", COLUMN_AGE, COLUMN_FINE, 2},
    {"unanswered", "MISSED", "questions without an answer in time", COLUMN_NUMBER, 0, 2},
    {"clock", "CLOCK", "how far its clock is off, from a second on", COLUMN_TEXT,
     COLUMN_HIDE_EMPTY},
    {0},
};
static const struct command_fields status_fields[] = {{"FIELDS OF A NODE", columns}, {0}};

static void set_age(struct table *table, size_t column, const json_t *member, const char *key,
                    double ns)
{
    const json_t *value = json_object_get(member, key);
    if (json_is_number(value) && json_number_value(value) >= 0)
        table_set_number(table, column, (uint64_t)(json_number_value(value) * ns));
}

static void set_text(struct table *table, size_t column, const json_t *member, const char *key)
{
    const char *text = json_string_value(json_object_get(member, key));
    if (text)
        table_set_text(table, column, text);
}

static void row_of(struct table *table, const json_t *member)
{
    double offset = json_number_value(json_object_get(member, "clock_offset"));
    const char *state = json_string_value(json_object_get(member, "state"));
    char text[32];
    table_row(table);
    set_text(table, COLUMN_NODE, member, "node");
    set_text(table, COLUMN_ID, member, "id");
    set_text(table, COLUMN_STATE, member, "state");
    if (state && strcmp(state, "unreachable") == 0)
        table_set_style(table, COLUMN_STATE, STYLE_BAD);
    set_age(table, COLUMN_SINCE, member, "state_age", 1e9);
    set_text(table, COLUMN_VERSION, member, "version");
    if (!json_is_true(json_object_get(member, "self")))
        set_age(table, COLUMN_HEARD, member, "heard_age", 1e9);
    set_age(table, COLUMN_ANSWERED, member, "answered_age", 1e9);
    set_age(table, COLUMN_TOOK, member, "answer_took", 1e9);
    table_set_number(table, COLUMN_MISSED,
                     (uint64_t)json_integer_value(json_object_get(member, "unanswered")));
    snprintf(text, sizeof(text), "%+.1f s", offset);
    if (offset >= 1 || offset <= -1)
        table_set_text(table, COLUMN_CLOCK, text);
}

int cluster_request(const char *socket, const char *question, json_t **ret_cluster)
{
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *answer = NULL;
    int r = elsewhere_request(socket, question, &answer);
    if (r != COMMAND_OK)
        return r;
    *ret_cluster = json_incref(json_object_get(answer, "cluster"));
    return COMMAND_OK;
}

static int status_print(const json_t *cluster, const struct cluster_values *v)
{
    struct term term;
    size_t i;
    const json_t *member;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(table_release)
    struct table table;
    table_init(&table, columns);
    json_array_foreach(json_object_get(cluster, "members"), i, member) row_of(&table, member);
    MEMOIR_CLEANUP(freep)
    size_t *order = NULL;
    int r = table_sort(&table, &(struct table_sort){.column = COLUMN_NODE}, &order);
    struct table_layout layout = {.header = true, .order = order};
    if (r >= 0)
        r = v->csv ? table_print_csv(&table, &layout, &out)
                   : table_print(&table, &layout, &term, &out);
    return r < 0 ? r : command_output(&out);
}

static int status_run(const void *values, const struct operands *operands)
{
    const struct cluster_values *v = values;
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *cluster = NULL;
    int r = cluster_request(v->socket, "{\"cluster\":\"status\"}", &cluster);
    if (r != COMMAND_OK)
        return r;
    const char *state = json_string_value(json_object_get(cluster, "state"));
    const char *problem = json_string_value(json_object_get(cluster, "problem"));
    const char *server = json_string_value(json_object_get(cluster, "server"));
    if (v->json) {
        MEMOIR_CLEANUP(freep)
        char *text = json_dumps(cluster, JSON_COMPACT | JSON_REAL_PRECISION(15));
        return text ? cluster_print_json(text) : -ENOMEM;
    }
    if (!state || strcmp(state, "none") == 0) {
        command_fail("%s", problem ? problem : "no cluster");
        return COMMAND_NOTHING;
    }
    if (strcmp(state, "connected") != 0)
        fprintf(stderr, "memoir: not connected to the cluster's server: %s\n",
                problem ? problem : state);
    else if (!v->csv)
        fprintf(stderr, "connected to %s\n", server ? server : "the server");
    return status_print(cluster, v);
}

static const struct option_spec status_options[] = {
    OPTION_HELP, OPTION_JSON, OPTION_CSV, OPTION_COLOR, OPTION_CLUSTER_SOCKET, {0},
};
static const struct command_example status_examples[] = {
    {"memoir cluster status", "the nodes with their states, versions and last answers"},
    {"memoir cluster status --json", "the same for programs"},
    {0},
};

static const struct command cmd_cluster_status = {
    .name = "cluster status",
    .usage = "cluster status [OPTION...]",
    .help = "the nodes of the cluster, and whether they answer",
    .description =
        "Lists the nodes that this machine's memoird knows of: from their heartbeats, which come every two seconds. A node that "
        "falls silent is unreachable within five seconds, and is missed by name for an hour; one that stops in order has left. "
        "Exits with status 3 where memoird is in no cluster.",
    .options = status_options,
    .examples = status_examples,
    .fields = status_fields,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = status_run,
};

/* ---- key ---- */

static int key_run(const void *values, const struct operands *operands)
{
    const struct cluster_values *v = values;
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *cluster = NULL;
    int r = cluster_request(v->socket, "{\"cluster\":\"status\"}", &cluster);
    if (r != COMMAND_OK)
        return r;
    const char *id = json_string_value(json_object_get(cluster, "self"));
    const char *key = json_string_value(json_object_get(cluster, "key"));
    const char *problem = json_string_value(json_object_get(cluster, "problem"));
    if (!id || !key) {
        command_fail("%s", problem ? problem : "this node has no key: memoird's log says why");
        return COMMAND_NOTHING;
    }
    printf("%s+%s\n", id, key);
    return COMMAND_OK;
}

static const struct option_spec key_options[] = {OPTION_HELP, OPTION_CLUSTER_SOCKET, {0}};
static const struct command_example key_examples[] = {
    {"memoir cluster key", "the word by which other nodes trust this one"},
    {0},
};
static const struct command cmd_cluster_key = {
    .name = "cluster key",
    .usage = "cluster key [OPTION...]",
    .help = "this node's ID and public key, for cluster-trust of other nodes",
    .description =
        "Prints ID+KEY of this node. A node whose cluster-trust has this word lets this node vouch for its users: it checks that "
        "this node signed what is asked. Exits with status 3 where memoird is in no cluster.",
    .options = key_options,
    .examples = key_examples,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = key_run,
};

/* ---- the command ---- */

static const struct command_common defaults = {0};
static const struct option_spec options[] = {OPTION_HELP, {0}};
static const struct command *const parts[] = {
    &cmd_cluster_status,   &cmd_cluster_programs, &cmd_cluster_init, &cmd_cluster_invite,
    &cmd_cluster_join,     &cmd_cluster_leave,    &cmd_cluster_key,  &cmd_cluster_trust,
    &cmd_cluster_tracking, &cmd_cluster_tracing,  &cmd_cluster_scan, NULL,
};
static const struct command_example examples[] = {
    {"sudo memoir cluster init",
     "start a cluster on this machine; prints the line for the next one"},
    {"sudo memoir cluster join nats://ID:PASSWORD@HOST:4222", "join it from another machine"},
    {"memoir cluster status", "list its nodes"},
    {"memoir query --cluster --by program,node --show rss,count", "ask all of them"},
    {0},
};

static int run(const void *values, const struct operands *operands)
{
    return COMMAND_USAGE; /* command_run() never gets here */
}

const struct command cmd_cluster = {
    .name = "cluster",
    .usage = "cluster SUBCOMMAND [OPTION...]",
    .help = "many machines: the nodes of the cluster, and how to join it",
    .description =
        "The memoirds of several machines answer for each other: any of them tells what a program holds on all nodes, and which "
        "nodes did not answer. They talk over a NATS server: one that you run already (memoird --cluster URL), or a private one "
        "that memoir cluster init starts.",
    .options = options,
    .examples = examples,
    .parts = parts,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
