/* memoir cluster programs: what each program holds on all nodes, and which node is the outlier. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/version.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/elsewhere.h"
#include "cli/table.h"
#include "cli/view.h"
#include "query/query.h"
#include "query/spread.h"
#include "query/view.h"

enum { OUTPUT_MAX = 64 << 20, QUESTION_MAX = 16 << 10 };

#define AT(field) offsetof(struct cluster_values, field)

static const char *const measures[] = {"rss", "pss", "heap", "pinned", "device", NULL};

/* ---- tables ---- */

enum {
    COLUMN_PROGRAM,
    COLUMN_NODE,
    COLUMN_VALUE,
    COLUMN_GROWTH,
    COLUMN_STEADY,
    COLUMN_NODES,
    COLUMN_PROCESSES,
    COLUMN_OUTLIER
};

static const struct column columns[] = {
    {"program", "PROGRAM", "name of the program", COLUMN_TEXT},
    {"node", "NODE", "with a PROGRAM: the node", COLUMN_TEXT, COLUMN_HIDE_EMPTY},
    {"bytes", "BYTES", "of the measure (--measure), on all nodes or on this one", COLUMN_BYTES},
    {"growth", "GROWTH", "by how much its resident memory grew a second over the last 10 seconds",
     COLUMN_RATE_BYTES, 0, 1},
    {"growth_steady", "STEADY",
     "with a PROGRAM: the least of it in any third of the last 30 seconds", COLUMN_RATE_BYTES,
     COLUMN_HIDE_EMPTY, 1},
    {"nodes", "NODES", "nodes that it runs on", COLUMN_NUMBER, COLUMN_HIDE_EMPTY, 2},
    {"processes", "PROCESSES", "its processes", COLUMN_NUMBER, 0, 2},
    {"outlier", "OUTLIER", "nodes that differ from most others, and in what", COLUMN_TEXT,
     COLUMN_STRETCH},
    {0},
};
static const struct command_fields fields[] = {{"FIELDS OF A PROGRAM", columns}, {0}};

static void program_row(struct table *table, const struct spread_program *p)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer odd = BUFFER_INIT(OUTPUT_MAX);
    char why[SPREAD_WHY_MAX];
    table_row(table);
    table_set_text(table, COLUMN_PROGRAM, p->program);
    table_set_number(table, COLUMN_VALUE, p->total);
    if (p->has_growth)
        table_set_change(table, COLUMN_GROWTH, (int64_t)p->growth);
    table_set_number(table, COLUMN_NODES, p->n);
    table_set_number(table, COLUMN_PROCESSES, p->processes);
    for (size_t i = 0; i < p->n_odd; i++)
        buffer_printf(&odd, "%s%s %s", i ? "; " : "", p->nodes[i].node,
                      spread_why(&p->nodes[i], why));
    if (odd.len) {
        table_set_text(table, COLUMN_OUTLIER, buffer_string(&odd));
        table_set_style(table, COLUMN_OUTLIER, STYLE_WARN);
    }
}

static void node_row(struct table *table, const struct spread_program *p,
                     const struct spread_node *node)
{
    char why[SPREAD_WHY_MAX];
    table_row(table);
    table_set_text(table, COLUMN_PROGRAM, p->program);
    table_set_text(table, COLUMN_NODE, node->node);
    table_set_number(table, COLUMN_VALUE, node->value);
    if (node->has_growth)
        table_set_change(table, COLUMN_GROWTH, (int64_t)node->growth);
    if (node->has_steady)
        table_set_change(table, COLUMN_STEADY, (int64_t)node->steady);
    table_set_number(table, COLUMN_PROCESSES, node->processes);
    if (node->odd != SPREAD_USUAL) {
        table_set_text(table, COLUMN_OUTLIER, spread_why(node, why));
        table_set_style(table, COLUMN_OUTLIER, STYLE_WARN);
    }
}

static int table_show(const struct spread *spread, const struct cluster_values *v, bool by_node)
{
    struct term term;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(table_release)
    struct table table;
    struct table_layout layout = {.header = true};
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    table_init(&table, columns);
    for (size_t i = 0; i < spread->n; i++) {
        const struct spread_program *p = &spread->programs[i];
        for (size_t k = 0; by_node && k < p->n; k++)
            node_row(&table, p, &p->nodes[k]);
        if (!by_node)
            program_row(&table, p);
    }
    int r =
        v->csv ? table_print_csv(&table, &layout, &out) : table_print(&table, &layout, &term, &out);
    return r < 0 ? r : command_output(&out);
}

static int json_show(const struct spread *spread, size_t total, const struct cluster_values *v,
                     const struct buffer *summary)
{
    struct json json;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    command_json_begin(&json, &out, "memoir.cluster-programs/1");
    json_field_string(&json, "measure", measures[v->measure]);
    json_field_u64(&json, "programs_total", total);
    json_key(&json, "programs");
    spread_json(spread, SIZE_MAX, SIZE_MAX, &json);
    json_key(&json, "cluster");
    json_raw(&json, summary->data, summary->len);
    json_object_end(&json);
    int r = json_finish(&json);
    if (r == 0)
        r = buffer_append_char(&out, '\n');
    return r < 0 ? r : command_output(&out);
}

/* ---- the command ---- */

/* Only outliers, and not too many. */
static void cut(struct spread *spread, const struct cluster_values *v)
{
    size_t n = 0;
    for (size_t i = 0; i < spread->n && (!v->limit || n < v->limit); i++)
        if (!v->outliers || spread->programs[i].n_odd)
            spread->programs[n++] = spread->programs[i];
    spread->n = n;
}

static int show(const struct cluster_values *v, const struct query *query,
                const struct query_result *result, bool by_node, const struct buffer *summary)
{
    MEMOIR_CLEANUP(spread_freep)
    struct spread *spread = NULL;
    int r = spread_new(result, query, &spread);
    if (r < 0)
        return r;
    size_t total = spread->n;
    cut(spread, v);
    if (v->json)
        return json_show(spread, total, v, summary);
    elsewhere_mention(summary);
    if (spread->n)
        return table_show(spread, v, by_node);
    if (v->outliers)
        fputs("memoir: no node is an outlier\n", stderr);
    else
        fputs("memoir: no node that answered runs it\n", stderr);
    return COMMAND_NOTHING;
}

static int run(const void *values, const struct operands *operands)
{
    const struct cluster_values *v = values;
    struct elsewhere_values all = {.cluster = true, .socket = v->socket};
    struct query_spec spec;
    struct query_error error = {0};
    char wanted[SPREAD_SHOW_MAX];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(QUESTION_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer summary = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    if (operands->n)
        query_where_text(&where, "program", "=", operands->words[0]);
    if (v->where)
        view_test(&where, "(%s)", v->where);
    spread_spec(measures[v->measure], buffer_string(&where), wanted, &spec);
    int r = where.error ? where.error : query_new(&spec, &query, &error);
    if (r == -EINVAL)
        return view_misuse(&cmd_cluster_programs, &error, &spec);
    if (r == 0)
        r = query_result_new(query, 0, &result);
    if (r == 0)
        r = elsewhere_ask(&all, &spec, result, &summary);
    return r == 0 ? show(v, query, result, operands->n > 0, &summary) : r;
}

static const struct option_spec options[] = {
    OPTION_HELP,
    OPTION_JSON,
    OPTION_CSV,
    OPTION_COLOR,
    {"measure", 0, OPTION_CHOICE, AT(measure), "MEASURE",
     "what is compared: rss, pss, heap, pinned or device", .choices = measures},
    {"outliers", 0, OPTION_FLAG, AT(outliers), NULL,
     "only programs with a node that is an outlier"},
    {"where", 0, OPTION_STRING, AT(where), "EXPRESSION", "only processes that match"},
    {"limit", 0, OPTION_NUMBER, AT(limit), "N", "programs at most"},
    OPTION_CLUSTER_SOCKET,
    {0},
};
static const struct command_example examples[] = {
    {"memoir cluster programs", "programs of all nodes, those that grow on one node only first"},
    {"memoir cluster programs --outliers", "which node differs from the others, and in what"},
    {"memoir cluster programs nginx --measure heap", "one program on each of its nodes"},
    {0},
};

const struct command cmd_cluster_programs = {
    .name = "cluster programs",
    .usage = "cluster programs [PROGRAM] [OPTION...]",
    .help = "programs across all nodes, and which node is the outlier",
    .description =
        "Compares what each program holds on the nodes of the cluster. A node is an outlier where the program grows steadily, in each third "
        "of the last 30 seconds, and does not on most other nodes; or where a process of it holds half as much again as in the "
        "median, or half of it. That takes three nodes. Differences below 16 MiB, and growth below 16 KiB a second, "
        "are left alone. Exits with status 3 where there is nothing to show.",
    .options = options,
    .examples = examples,
    .fields = fields,
    .operands_max = 1,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = run,
};
