/*
 * view.h: commands that show a view of the query core: the same options, the same exports, a layout of their own for people.
 *
 * A command has a struct view_options among its values, as `view`, and the options below. Its own options (--pid, --user)
 * become tests of the question. With --json, --csv, --by or --show the answer is printed as memoir query prints it; else the
 * command lays the rows out.
 */
#ifndef MEMOIR_CLI_VIEW_H
#define MEMOIR_CLI_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "cli/query_print.h"
#include "cli/term.h"

struct command;
struct query;
struct query_error;
struct query_result;
struct query_spec;
struct query_view;

struct view_options {
    const char *where, *by, *show, *sort;
    bool json, csv, no_header;
    int color;
};

#define VIEW_OPTION_WHERE                                                                  \
    {                                                                                      \
        "where", 0, OPTION_STRING, AT(view.where), "EXPRESSION",                           \
            "only rows for which it holds, as in memoir query: rss>1GB and program~train*" \
    }
#define VIEW_OPTION_BY                                                              \
    {                                                                               \
        "by", 0, OPTION_STRING, AT(view.by), "COLUMNS",                             \
            "one row for each group with the same values there, as in memoir query" \
    }
#define VIEW_OPTION_SHOW                                                                \
    {                                                                                   \
        "show", 0, OPTION_STRING, AT(view.show), "COLUMNS",                             \
            "what to show, as in memoir query; memoir query TABLE --columns lists them" \
    }
#define VIEW_OPTIONS_PRINT                                                                       \
    {"json", 'j', OPTION_FLAG, AT(view.json), .help = "print JSON, as memoir query does"},       \
        {"csv", 0, OPTION_FLAG, AT(view.csv), .help = "print CSV (RFC 4180)"},                   \
        {"no-header", 0, OPTION_FLAG, AT(view.no_header),                                        \
         .help = "leave out the line of column names"},                                          \
    {                                                                                            \
        "color", 0, OPTION_CHOICE, AT(view.color), "WHEN", "use colours: auto, always or never", \
            .choices = term_color_words                                                          \
    }

/* Is the answer printed as a table of the query core, rather than laid out by the command? */
bool view_is_plain(const struct view_options *options);
struct query_style view_style(const struct view_options *options);

/* Append a test to an expression, joined by "and". */
void view_test(struct buffer *where, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* COLUMN has this value, in any case of letters. See also query_where_text(). */
void view_test_word(struct buffer *where, const char *column, const char *value);
/* A user by name or number: COMMAND_OK, or COMMAND_NOTHING after a word on stderr. */
int view_test_user(struct buffer *where, const char *user);

/* The question of a view: with the options of its user and `where`, what the command's own options ask for ("" : nothing).
 * The rows of `layout` are the columns that it needs; they are asked for unless the answer is printed plainly.
 * COMMAND_OK; COMMAND_USAGE after words on stderr; -errno. */
struct view_layout {
    const char *rows; /* NULL: the view's */
    const char *sort; /* NULL: the view's; of rows that are not grouped */
    uint64_t limit;   /* 0: all */
    bool others;      /* what the rows past the limit add up to */
};
int view_query(const struct command *command, const struct query_view *view,
               const struct view_options *options, const char *where,
               const struct view_layout *layout, struct query **ret_query);

/* A test for a device by its number, identity, bus address or name. */
void view_test_device(struct buffer *where, const char *device);

/* What is wrong with a question, below it the words with the place marked. Returns COMMAND_USAGE. */
int view_misuse(const struct command *command, const struct query_error *error,
                const struct query_spec *spec);

/* Print a finished result plainly to stdout. Returns enum command_exit or -errno. */
int view_print(const struct query *query, const struct query_result *result,
               const struct view_options *options);

/* "12 rows did not fit", "some books could not be read whole": on stderr, where there is something to tell. */
void view_mention(const struct query *query, const struct query_result *result);

#endif
