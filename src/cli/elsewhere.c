/* Views of other nodes. See elsewhere.h. */
#include "cli/elsewhere.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/ask.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/query_print.h"
#include "cli/term.h"
#include "cli/view.h"
#include "cli/world.h"
#include "query/query.h"
#include "query/view.h"

enum {
    LINE_MAX_BYTES = 64 << 10,
    ANSWER_MAX = 256 << 20,
    OUTPUT_MAX = 1 << 30,
    QUESTION_MAX = 256 << 10
};

static void decrefp(json_t **json)
{
    json_decref(*json);
}

/* ---- asking ---- */

int elsewhere_request(const char *socket, const char *question, json_t **ret_answer)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(ANSWER_MAX);
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect(socket);
    if (fd < 0)
        return command_fail("cannot ask memoird: %s; other nodes are asked through it",
                            strerror(-fd));
    int r = ask_line(fd, question, &text);
    if (r < 0)
        return command_fail("memoird does not answer: %s", strerror(-r));
    MEMOIR_CLEANUP(decrefp)
    json_t *answer = json_loadb(text.data, text.len, 0, NULL);
    const json_t *error = json_object_get(answer, "error");
    if (!json_is_object(answer))
        return command_fail("memoird's answer was invalid");
    if (error)
        return command_fail("%s", json_string_value(json_object_get(error, "message")));
    *ret_answer = json_incref(answer);
    return COMMAND_OK;
}

int elsewhere_ask(const struct elsewhere_values *v, const struct query_spec *spec,
                  struct query_result *result, struct buffer *ret_summary)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer question = BUFFER_INIT(QUESTION_MAX);
    MEMOIR_CLEANUP(decrefp)
    json_t *answer = NULL;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer bytes = BUFFER_INIT(ANSWER_MAX);
    int r = elsewhere_question(v, spec, &question);
    if (r == COMMAND_OK)
        r = elsewhere_request(v->socket, buffer_string(&question), &answer);
    if (question.data)
        explicit_bzero(question.data, question.len); /* it may have a token */
    if (r != COMMAND_OK)
        return r;
    const json_t *partial = json_object_get(answer, "partial");
    query_result_reset(result);
    if (!json_is_string(partial) ||
        base64_decode(&bytes, json_string_value(partial), json_string_length(partial)) < 0 ||
        query_partial_read(result, bytes.data, bytes.len) < 0)
        return command_fail("memoird's answer was invalid: is it of another version?");
    MEMOIR_CLEANUP(freep)
    char *summary =
        json_dumps(json_object_get(answer, "cluster"), JSON_COMPACT | JSON_REAL_PRECISION(15));
    buffer_append_str(ret_summary, summary ? summary : "{}");
    return query_result_finish(result);
}

/* ---- nodes that did not answer ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* One line on stderr. Names and reasons are those of other nodes, which may want to steer the terminal. */
__attribute__((format(printf, 1, 2))) static void line_print(const char *format, ...)
{
    struct term term;
    va_list args;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(LINE_MAX_BYTES);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(LINE_MAX_BYTES);
    va_start(args, format);
    buffer_vprintf(&text, format, args);
    va_end(args);
    term_init(&term, STDERR_FILENO, TERM_COLOR_AUTO);
    term_append(&term, &out, buffer_string(&text), 0);
    fprintf(stderr, "memoir: %s\n", buffer_string(&out));
}

static void lacking_print(const json_t *item)
{
    const json_t *column;
    size_t i;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer columns = BUFFER_INIT(LINE_MAX_BYTES);
    json_array_foreach(json_object_get(item, "columns"), i, column)
    {
        buffer_append_char(&columns, ' ');
        if (json_is_string(column))
            buffer_append_str(&columns, json_string_value(column));
    }
    line_print("node %s (version %s) has no%s", text_of(item, "node"), text_of(item, "version"),
               buffer_string(&columns));
}

void elsewhere_mention(const struct buffer *summary)
{
    MEMOIR_CLEANUP(decrefp)
    json_t *cluster = json_loadb(summary->data, summary->len, 0, NULL);
    const json_t *item, *missing = json_object_get(cluster, "missing");
    size_t i;
    if (json_array_size(missing))
        line_print("%lld of %lld nodes answered",
                   (long long)json_integer_value(json_object_get(cluster, "answered")),
                   (long long)json_integer_value(json_object_get(cluster, "expected")));
    json_array_foreach(missing, i, item)
        line_print("missing: %s (%s)", text_of(item, "node"), text_of(item, "why"));
    json_array_foreach(json_object_get(cluster, "lacking"), i, item) lacking_print(item);
    json_array_foreach(json_object_get(cluster, "clocks"), i, item)
        line_print("the clock of %s differs by %.1f s", text_of(item, "node"),
                   json_number_value(json_object_get(item, "clock_offset")));
}

/* ---- a command as a query ---- */

static const struct option_spec *option_find(const struct command *command, const char *name)
{
    for (const struct option_spec *o = command->options; o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

static const void *value_of(const struct command *command, const void *values, const char *name)
{
    const struct option_spec *o = option_find(command, name);
    return o ? (const char *)values + o->offset : NULL;
}

static const char *word_of(const struct command *command, const void *values, const char *name)
{
    const char *const *word = value_of(command, values, name);
    return word ? *word : NULL;
}

static bool flag_of(const struct command *command, const void *values, const char *name)
{
    const bool *flag = value_of(command, values, name);
    return flag && *flag;
}

/* Options of the view itself do not travel: a query says the same in words that every node understands. */
static int others_refuse(const struct command *command, const void *values,
                         const struct elsewhere *view)
{
    static const char *const allowed[] = {"help",   "json",    "csv",   "no-header",  "color",
                                          "limit",  "where",   "by",    "show",       "sort",
                                          "socket", "cluster", "node",  "node-token", "once",
                                          "at",     "since",   "until", "step",       "state"};
    static const size_t sizes[] = {[OPTION_FLAG] = sizeof(bool),
                                   [OPTION_STRING] = sizeof(char *),
                                   [OPTION_NUMBER] = sizeof(uint64_t),
                                   [OPTION_DURATION] = sizeof(uint64_t),
                                   [OPTION_CHOICE] = sizeof(int)};
    for (const struct option_spec *o = command->options; o->name; o++) {
        bool fine = false; /* one that is allowed, or another name for it */
        for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed) && !fine; i++) {
            const struct option_spec *other = option_find(command, allowed[i]);
            fine = other && other->type == o->type && other->offset == o->offset;
        }
        if (fine || memcmp((const char *)values + o->offset,
                           (const char *)command->defaults + o->offset, sizes[o->type]) == 0)
            continue;
        return command_misuse(command,
                              "--%s goes with neither --cluster, --node, --at nor --since: 'memoir "
                              "query %s' takes these with --where, --show and --sort",
                              o->name, view->table);
    }
    return COMMAND_OK;
}

static int print(const struct command *command, const void *values, const struct query *query,
                 const struct query_result *result, const struct buffer *summary)
{
    struct term term;
    const int *color = value_of(command, values, "color");
    struct query_style style = {
        .format = flag_of(command, values, "json")  ? QUERY_FORMAT_JSON
                  : flag_of(command, values, "csv") ? QUERY_FORMAT_CSV
                                                    : QUERY_FORMAT_TEXT,
        .header = !flag_of(command, values, "no-header"),
        .fit = true,
        .cluster = summary,
    };
    term_init(&term, STDOUT_FILENO, color ? (enum term_color) * color : TERM_COLOR_AUTO);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    bool shown = summary || query_result_rows(result) || style.format != QUERY_FORMAT_TEXT;
    int r = shown ? query_print(result, query, &style, &term, &out) : 0;
    if (r == 0 && shown)
        r = command_output(&out);
    if (r == 0 && summary && style.format != QUERY_FORMAT_JSON)
        elsewhere_mention(summary);
    return r;
}

/* The answer of the nodes in question, or of this machine's past. */
static int ask(const struct elsewhere_values *v, const struct past_window *window,
               const char *state, const struct query *query, struct query_result *result,
               struct buffer *summary)
{
    if (elsewhere_wanted(v))
        return elsewhere_ask(v, query_spec_of(query), result, summary);
    struct world world = {0};
    int r = world_ask(&world, &(struct world_options){.state = state, .window = *window}, query,
                      result);
    world_release(&world);
    return r;
}

static int run(const struct command *command, const void *values, const struct query_spec *spec,
               const struct past_window *window)
{
    struct elsewhere_values v = ((const struct command_common *)values)->elsewhere;
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_error error;
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer summary = BUFFER_INIT(ANSWER_MAX);
    int r = query_new(spec, &query, &error);
    if (r == -EINVAL)
        return view_misuse(command, &error, spec);
    v.socket = word_of(command, values, "socket");
    v.since_s = window->since_s;
    v.until_s = window->until_s;
    v.step_s = window->step_s;
    if (r == 0)
        r = query_result_new(query, 0, &result);
    if (r == 0)
        r = ask(&v, window, word_of(command, values, "state"), query, result, &summary);
    if (r == 0)
        r = print(command, values, query, result, summary.len ? &summary : NULL);
    if (r == COMMAND_OK && !query_result_rows(result) && !window->until_s)
        fputs("No node that answered has a row for this question.\n", stderr);
    if (r == COMMAND_OK && !query_result_rows(result) && window->until_s) {
        command_fail("no data for this selection and period");
        return COMMAND_NOTHING;
    }
    return r;
}

static const char *operand_column(const struct elsewhere *view, const char *word)
{
    bool name = view->names && word[strspn(word, "0123456789")];
    return name ? "program" : view->operand;
}

int elsewhere_columns(const struct elsewhere_values *v, struct query_spec *spec,
                      struct buffer *texts)
{
    const struct query_table *table =
        spec->table ? query_table_find(spec->table) : query_tables()[0];
    if (!elsewhere_wanted(v) || spec->show || spec->by || !table)
        return 0;
    for (const struct query_column *c = table->columns; c->name; c++)
        if (strcmp(c->name, "node") == 0) {
            buffer_printf(texts, "node,%s", table->show);
            spec->show = buffer_string(texts);
            break;
        }
    return texts->error;
}

int elsewhere_run(const struct command *command, const void *values,
                  const struct operands *operands)
{
    const struct command_common *common = values;
    const struct elsewhere *view = command->elsewhere;
    const uint64_t *limit = value_of(command, values, "limit");
    const char *by = word_of(command, values, "by"), *show = word_of(command, values, "show");
    const char *sort = word_of(command, values, "sort");
    bool past = past_wanted(&common->past);
    struct past_window window;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(QUESTION_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer texts = BUFFER_INIT(QUESTION_MAX);
    int r = others_refuse(command, values, view);
    if (r == COMMAND_OK)
        r = past_window_of(command, &common->past, &window);
    if (r != COMMAND_OK)
        return r;
    if (operands->n && !view->operand)
        return command_misuse(command, "'%s' goes with neither --cluster, --node, --at nor --since",
                              operands->words[0]);
    if (operands->n)
        query_where_text(&where, operand_column(view, operands->words[0]), "=", operands->words[0]);
    if (word_of(command, values, "where"))
        view_test(&where, "(%s)", word_of(command, values, "where"));
    struct query_spec spec = {.table = view->table,
                              .by = by,
                              .show = show || by || past ? show : view->show,
                              .sort = sort         ? sort
                                      : by || past ? NULL
                                                   : view->sort,
                              .where = buffer_string(&where),
                              .limit = limit && *limit != UINT64_MAX ? *limit : 0};
    struct query_error error;
    r = past_spec(&spec, &window, &texts, &error);
    if (r == -EINVAL)
        return view_misuse(command, &error, &spec);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer columns = BUFFER_INIT(QUESTION_MAX);
    if (r == 0)
        r = elsewhere_columns(&common->elsewhere, &spec, &columns);
    return r < 0 ? r : run(command, values, &spec, &window);
}
