/* memoir cluster tracking, tracing and scan: act on a process of another node. That node decides, and writes a line to its audit. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/elsewhere.h"
#include "cli/table.h"

enum { OUTPUT_MAX = 64 << 20, TARGET_MAX = 96 };

#define AT(field) offsetof(struct cluster_values, field)

/* ---- the call ---- */

/* The document that the node answers with, for json_decref(). Says what is wrong. */
static int document_of(const json_t *answer, json_t **ret_document)
{
    const json_t *call = json_object_get(answer, "call");
    if (!json_is_object(call)) {
        const json_t *missing = json_object_get(json_object_get(answer, "cluster"), "missing");
        const char *why = json_string_value(json_object_get(json_array_get(missing, 0), "why"));
        return command_fail("the node does not answer: %s", why ? why : "it is gone");
    }
    const char *body = json_string_value(json_object_get(call, "body"));
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *document = body ? json_loads(body, 0, NULL) : NULL;
    if (json_integer_value(json_object_get(call, "status")) >= 400) {
        const char *detail = json_string_value(json_object_get(document, "detail"));
        return command_fail("%s", detail ? detail : "the node refused it");
    }
    if (!json_is_object(document))
        return command_fail("the node's answer was invalid: is it of another version?");
    *ret_document = json_incref(document);
    return COMMAND_OK;
}

static int pid_read(const struct command *command, const char *word, unsigned long *ret_pid)
{
    char *end;
    errno = 0;
    unsigned long pid = strtoul(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end || errno || pid == 0 || pid > INT32_MAX)
        return command_misuse(command, "'%s' is not a valid PID", word);
    *ret_pid = pid;
    return COMMAND_OK;
}

/* Words of another node, which may want to steer the terminal. */
static void words_print(const char *words)
{
    struct term term;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    term_init(&term, STDOUT_FILENO, TERM_COLOR_AUTO);
    term_append(&term, &out, words ? words : "", 0);
    fputs(buffer_string(&out), stdout);
}

/* POST /processes/PID/WHAT on a node. */
static int control(const struct command *command, const struct cluster_values *v,
                   const struct operands *operands, const char *what, const char *body,
                   json_t **ret_document)
{
    char target[TARGET_MAX];
    unsigned long pid = 0;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer question = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *answer = NULL;
    int r = pid_read(command, operands->words[1], &pid);
    if (r != COMMAND_OK)
        return r;
    snprintf(target, sizeof(target), "/api/v1/processes/%lu/%s", pid, what);
    r = cluster_call_question(operands->words[0], target, body, v->token_file, &question);
    if (r == COMMAND_OK)
        r = elsewhere_request(v->socket, buffer_string(&question), &answer);
    if (question.data)
        explicit_bzero(question.data, question.len); /* it may have a token */
    return r == COMMAND_OK ? document_of(answer, ret_document) : r;
}

static int document_print(const json_t *document)
{
    MEMOIR_CLEANUP(freep)
    char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (!text)
        return -ENOMEM;
    return puts(text) < 0 ? -EIO : COMMAND_OK;
}

static const struct option_spec options[] = {
    OPTION_HELP,
    OPTION_JSON,
    {"node-token", 0, OPTION_STRING, AT(token_file), "FILE",
     "FILE has a token of that node with the role control"},
    OPTION_CLUSTER_SOCKET,
    {0},
};

/* ---- switches ---- */

static int switch_run(const struct command *command, const char *what, const void *values,
                      const struct operands *operands)
{
    const struct cluster_values *v = values;
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *document = NULL;
    if (operands->n != 3 || (strcmp(operands->words[2], "on") && strcmp(operands->words[2], "off")))
        return command_misuse(command, "expected NODE PID on|off");
    bool on = strcmp(operands->words[2], "on") == 0;
    int r = control(command, v, operands, what, on ? "{\"on\":true}" : "{\"on\":false}", &document);
    if (r != COMMAND_OK || v->json)
        return r != COMMAND_OK ? r : document_print(document);
    const char *state = json_string_value(json_object_get(document, "state"));
    if (state && strcmp(state, "none") == 0) {
        puts("the process is not tracked any more");
        return COMMAND_OK;
    }
    printf("%s is ", what);
    words_print(state ? state : "switched");
    putchar('\n');
    return COMMAND_OK;
}

static int tracking_run(const void *values, const struct operands *operands)
{
    return switch_run(&cmd_cluster_tracking, "tracking", values, operands);
}

static int tracing_run(const void *values, const struct operands *operands)
{
    return switch_run(&cmd_cluster_tracing, "tracing", values, operands);
}

static const struct command_example tracking_examples[] = {
    {"memoir cluster tracking web 4242 on",
     "count the allocations of process 4242 on the node web"},
    {0},
};
const struct command cmd_cluster_tracking = {
    .name = "cluster tracking",
    .usage = "cluster tracking NODE PID on|off [OPTION...]",
    .help = "switch the tracking of a process on another node",
    .description =
        "Switches the tracking of a process on another node; one that does not run under memoir run is attached. That node decides: it needs a token of its "
        "own with the role control, or a signature of a node whose key its cluster-trust names, and a process of that user. It writes "
        "a line to its audit.",
    .options = options,
    .examples = tracking_examples,
    .operands_max = 3,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = tracking_run,
};

static const struct command_example tracing_examples[] = {
    {"memoir cluster tracing gpu1 4242 off",
     "stop recording the CUDA calls of process 4242 on the node gpu1"},
    {0},
};
const struct command cmd_cluster_tracing = {
    .name = "cluster tracing",
    .usage = "cluster tracing NODE PID on|off [OPTION...]",
    .help = "switch the tracing of a process on another node",
    .description =
        "Begins or stops to trace what a process on another node calls of CUDA. Off removes its book, and its probes unless another "
        "traced process uses the same library; the trace so far stays. The "
        "rights are those of memoir cluster tracking.",
    .options = options,
    .examples = tracing_examples,
    .operands_max = 3,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = tracing_run,
};

/* ---- scan ---- */

enum { COLUMN_STATE, COLUMN_LOST_BYTES, COLUMN_BLOCKS, COLUMN_OLDEST, COLUMN_SITE };

static const struct column scan_columns[] = {
    {"state", "STATE", "lost, or indirectly lost: only lost blocks point to it", COLUMN_TEXT},
    {"bytes", "SIZE", "bytes of these blocks, as asked for", COLUMN_BYTES},
    {"blocks", "BLOCKS", "how many they are", COLUMN_NUMBER},
    {"oldest", "OLDEST", "age of the oldest", COLUMN_AGE, 0, 20},
    {"site", "SITE", "the line that asked for them", COLUMN_TEXT, COLUMN_STRETCH | COLUMN_WIDE},
    {0},
};
static const struct command_fields scan_fields[] = {{"FIELDS OF A SITE", scan_columns}, {0}};

static uint64_t number_of(const json_t *object, const char *key)
{
    json_int_t number = json_integer_value(json_object_get(object, key));
    return number > 0 ? (uint64_t)number : 0;
}

static void sum_print(const json_t *document, const char *key, const char *words, bool last)
{
    const json_t *sum = json_object_get(document, key);
    char bytes[UNITS_TEXT_MAX], blocks[UNITS_TEXT_MAX];
    printf("%s %s in %s blocks%s", words,
           units_format_bytes(bytes, number_of(sum, "bytes"), UNITS_DECIMAL),
           units_format_count(blocks, number_of(sum, "blocks")), last ? "" : ", ");
}

static int sites_print(const json_t *sites, const struct cluster_values *v)
{
    struct term term;
    const json_t *site;
    size_t i;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(table_release)
    struct table table;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    table_init(&table, scan_columns);
    json_array_foreach(sites, i, site)
    {
        const char *state = json_string_value(json_object_get(site, "state"));
        const char *name = json_string_value(json_object_get(site, "site"));
        table_row(&table);
        table_set_text(&table, COLUMN_STATE, state ? state : "");
        table_set_number(&table, COLUMN_LOST_BYTES, number_of(site, "bytes"));
        table_set_number(&table, COLUMN_BLOCKS, number_of(site, "blocks"));
        table_set_number(&table, COLUMN_OLDEST, number_of(site, "oldest") * 1000000000);
        if (name)
            table_set_text(&table, COLUMN_SITE, name);
    }
    int r = table_print(&table, &(struct table_layout){.header = true}, &term, &out);
    return r < 0 ? r : command_output(&out);
}

static int lost_run(const void *values, const struct operands *operands)
{
    const struct cluster_values *v = values;
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *document = NULL;
    if (operands->n != 2)
        return command_misuse(&cmd_cluster_scan, "expected NODE PID");
    int r = control(&cmd_cluster_scan, v, operands, "scan", "{}", &document);
    if (r != COMMAND_OK || v->json)
        return r != COMMAND_OK ? r : document_print(document);
    const json_t *sites = json_object_get(document, "sites");
    const char *program = json_string_value(json_object_get(document, "program"));
    words_print(program);
    printf(" (PID %s on %s) was paused for %.0f ms: ", operands->words[1], operands->words[0],
           json_number_value(json_object_get(document, "stood_still")) * 1000);
    sum_print(document, "lost", "lost", false);
    sum_print(document, "indirectly_lost", "indirectly lost", false);
    sum_print(document, "reachable", "reachable", true);
    puts(json_is_true(json_object_get(document, "proof")) ? ""
                                                          : "; not all of its memory was read");
    return json_array_size(sites) ? sites_print(sites, v) : COMMAND_OK;
}

static const struct command_example scan_examples[] = {
    {"memoir cluster scan web 4242",
     "blocks that process 4242 on the node web can no longer reach"},
    {0},
};
const struct command cmd_cluster_scan = {
    .name = "cluster scan",
    .usage = "cluster scan NODE PID [OPTION...]",
    .help = "look for lost heap blocks of a process on another node",
    .description =
        "Stops a tracked process on another node for a moment, looks for heap blocks that it can no longer reach, and shows them by the "
        "line that asked for them. The rights are those of memoir cluster tracking.",
    .options = options,
    .examples = scan_examples,
    .fields = scan_fields,
    .operands_max = 2,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = lost_run,
};
