/*
 * elsewhere.h: views of other nodes. Every command that shows a table takes --cluster and --node; one place asks memoird, which
 * asks the nodes, and names those that did not answer.
 */
#ifndef MEMOIR_CLI_ELSEWHERE_H
#define MEMOIR_CLI_ELSEWHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;
struct command;
struct operands;
struct query;
struct query_result;
struct query_spec;

/* Part of every command's values: see command_common. */
struct elsewhere_values {
    bool cluster;
    const char *node;
    const char *token_file;            /* of that node's token */
    const char *socket;                /* of memoird */
    uint64_t since_s, until_s, step_s; /* of tables of the past; 0: the present */
};

/* What a view of one machine is over many, and over the past: a query. */
struct elsewhere {
    const char *table, *show, *sort;
    const char *operand; /* the column that the operand is a value of, or NULL */
    bool names;          /* a word that is not a number is the name of a program */
    bool own_past;       /* the command itself answers --at and --since about this machine */
};

/* Does the command line ask for other nodes? */
static inline bool elsewhere_wanted(const struct elsewhere_values *v)
{
    return v->cluster || v->node;
}

/* Ask, and fill in `result`, finished. `ret_summary` gets the JSON of the nodes that answered. COMMAND_OK, COMMAND_FAILED after a word
 * on stderr, or -errno. */
int elsewhere_ask(const struct elsewhere_values *v, const struct query_spec *spec,
                  struct query_result *result, struct buffer *ret_summary);

/* "memoir: 2 of 3 nodes answered; missing: web (unreachable for 12 s)" on stderr, where there is something to say. */
void elsewhere_mention(const struct buffer *summary);

/* The command as a query of other nodes, or of the past of this one. Returns enum command_exit or -errno. */
int elsewhere_run(const struct command *command, const void *values,
                  const struct operands *operands);

/* Rows of several nodes need their nodes: where the question names no columns, `spec` gets the table's usual ones and `node`, as
 * words in `texts`. 0 or the buffer's error. */
int elsewhere_columns(const struct elsewhere_values *v, struct query_spec *spec,
                      struct buffer *texts);

/* The question as one line of JSON, without its newline. COMMAND_OK, COMMAND_FAILED after a word, or -errno. */
int elsewhere_question(const struct elsewhere_values *v, const struct query_spec *spec,
                       struct buffer *out);

/* One line to memoird and its answer, for json_decref(); says what is wrong. */
struct json_t;
int elsewhere_request(const char *socket, const char *question, struct json_t **ret_answer);

#endif
