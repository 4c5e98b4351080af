/* See view.h. */
#include "cli/view.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/command.h"
#include "ledger/cgroups.h"
#include "query/query.h"
#include "query/view.h"

enum { OUTPUT_MAX = 1 << 30, MESSAGE_MAX = 65536, WHERE_MAX = 4 * QUERY_TEXT_MAX };

bool view_is_plain(const struct view_options *options)
{
    return options->json || options->csv || options->by || options->show;
}

struct query_style view_style(const struct view_options *options)
{
    return (struct query_style){
        .format = options->json  ? QUERY_FORMAT_JSON
                  : options->csv ? QUERY_FORMAT_CSV
                                 : QUERY_FORMAT_TEXT,
        .header = !options->no_header,
        .fit = !options->show,
    };
}

/* ---- tests ---- */

void view_test(struct buffer *where, const char *fmt, ...)
{
    va_list args;
    if (where->len)
        buffer_append_str(where, " and ");
    va_start(args, fmt);
    buffer_vprintf(where, fmt, args);
    va_end(args);
}

/* A pattern with a star at the end, and none that has more there: the whole of it, in any case of letters. */
void view_test_word(struct buffer *where, const char *column, const char *value)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer pattern = BUFFER_INIT(WHERE_MAX);
    buffer_printf(&pattern, "%s*", value);
    query_where_text(where, column, "~", buffer_string(&pattern));
    buffer_reset(&pattern);
    buffer_printf(&pattern, "%s?*", value);
    query_where_text(where, column, "!~", buffer_string(&pattern));
}

void view_test_device(struct buffer *where, const char *device)
{
    char *end;
    unsigned long number = strtoul(device, &end, 10);
    buffer_append_str(where, where->len ? " and (" : "(");
    MEMOIR_CLEANUP(buffer_release)
    struct buffer any = BUFFER_INIT(WHERE_MAX);
    if (*device >= '0' && *device <= '9' && !*end)
        buffer_printf(&any, "ordinal=%lu or ", number);
    static const char *const columns[] = {"device", "device_uid", "device_bus", "device_name"};
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        struct buffer one = BUFFER_INIT(WHERE_MAX);
        view_test_word(&one, columns[i], device);
        buffer_printf(&any, "%s(%s)", i ? " or " : "", buffer_string(&one));
        buffer_release(&one);
    }
    buffer_printf(where, "%s)", buffer_string(&any));
}

int view_test_user(struct buffer *where, const char *user)
{
    char *end;
    unsigned long number = strtoul(user, &end, 10);
    if (*user < '0' || *user > '9' || *end) {
        const struct passwd *pw = getpwnam(user);
        if (!pw) {
            command_fail("there is no user '%s'", user);
            return COMMAND_NOTHING;
        }
        number = pw->pw_uid;
    }
    view_test(where, "uid=%lu", number);
    return COMMAND_OK;
}

/* ---- the question ---- */

int view_misuse(const struct command *command, const struct query_error *error,
                const struct query_spec *spec)
{
    struct term term;
    term_init(&term, STDERR_FILENO, TERM_COLOR_AUTO);
    command_misuse(command, "%s", error->text);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(MESSAGE_MAX);
    query_error_print(error, spec, &text);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(MESSAGE_MAX);
    char *line = buffer_take(&text), *rest = line;
    strsep(&rest, "\n"); /* said already */
    for (char *next; rest && (next = strsep(&rest, "\n"));) {
        term_append(&term, &out, next, 0);
        buffer_append_char(&out, '\n');
    }
    fputs(buffer_string(&out), stderr);
    free(line);
    return COMMAND_USAGE;
}

/* A mistake in what the user typed is pointed at there, not in what we made of it. */
static int check_where(const struct command *command, const struct query_view *view,
                       const struct view_options *options)
{
    struct query_spec spec = {.table = view->table, .where = options->where};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_error error;
    int r = options->where ? query_new(&spec, &query, &error) : 0;
    return r == -EINVAL ? view_misuse(command, &error, &spec) : r;
}

int view_query(const struct command *command, const struct query_view *view,
               const struct view_options *options, const char *where,
               const struct view_layout *layout, struct query **ret_query)
{
    int r = check_where(command, view, options);
    if (r != 0)
        return r;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer both = BUFFER_INIT(WHERE_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer all = BUFFER_INIT(WHERE_MAX);
    if (where && *where)
        view_test(&both, "%s", where);
    if (options->where && both.len)
        view_test(&both, "(%s)", options->where);
    else if (options->where)
        buffer_append_str(&both, options->where);
    struct query_spec asked = {
        .by = options->by,
        .where = buffer_string(&both),
        .show = options->show            ? options->show
                : view_is_plain(options) ? NULL
                                         : layout->rows,
        .sort = options->sort                           ? options->sort
                : options->by || view_is_plain(options) ? NULL
                                                        : layout->sort,
        .limit = layout->limit,
        .others = layout->others && !view_is_plain(options),
    };
    struct query_spec spec;
    struct query_error error;
    r = both.error ? both.error : query_view_spec(view, &asked, &all, &spec);
    if (r == 0)
        r = query_new(&spec, ret_query, &error);
    return r == -EINVAL ? view_misuse(command, &error, &spec) : r;
}

/* ---- printing ---- */

int view_print(const struct query *query, const struct query_result *result,
               const struct view_options *options)
{
    struct term term;
    struct query_style style = view_style(options);
    term_init(&term, STDOUT_FILENO, (enum term_color)options->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    if (style.format == QUERY_FORMAT_TEXT && !query_result_rows(result))
        return COMMAND_OK;
    int r = query_print(result, query, &style, &term, &out);
    return r == 0 ? command_output(&out) : r;
}

void view_mention(const struct query *query, const struct query_result *result)
{
    if (query_result_left_out(result))
        fprintf(stderr, "memoir: %llu rows did not fit into memory and are left out\n",
                (unsigned long long)query_result_left_out(result));
    if (query_result_incomplete(result) && query_needs(query) & QUERY_NEEDS_CGROUPS)
        fprintf(stderr, "memoir: there are more than %d cgroups, and the deepest are left out\n",
                CGROUPS_MAX);
    else if (query_result_incomplete(result) && query_needs(query) & QUERY_NEEDS_MAPPINGS)
        fputs(
            "memoir: the mappings of some processes could not be read; run as their owner or root\n",
            stderr);
    else if (query_result_incomplete(result) && query_needs(query) & QUERY_NEEDS_HISTORY)
        fputs("memoir: parts of the history are damaged and left out\n", stderr);
    else if (query_result_incomplete(result))
        fputs("memoir: some books could not be read whole; memoir doctor tells why\n", stderr);
}
