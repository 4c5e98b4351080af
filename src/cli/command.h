/*
 * command.h: a command of `memoir`, described once.
 *
 * The help, the man page and the completions of all shells are made from these tables.
 */
#ifndef MEMOIR_CLI_COMMAND_H
#define MEMOIR_CLI_COMMAND_H

#include <stddef.h>

#include "cli/elsewhere.h"
#include "cli/options.h"
#include "cli/past.h"

struct column;

/* What a command ends with; scripts may rely on it. */
enum command_exit {
    COMMAND_OK = 0,
    COMMAND_FAILED = 1,  /* could not do it, or a check failed */
    COMMAND_USAGE = 2,   /* the command line is invalid; nothing was done */
    COMMAND_NOTHING = 3, /* asked for something specific that is not there */
};

struct command_example {
    const char *line; /* what to type, without the prompt; NULL ends the list */
    const char *what; /* what it does, a small first letter, no full stop */
};

/* Prose is paragraphs separated by empty lines; lines that start with two spaces stay as they are. */
struct command_section {
    const char *title; /* NULL ends the list */
    const char *text;
};

/* A table that the command prints. */
struct command_fields {
    const char *title; /* "FIELDS OF A PROCESS"; NULL ends the list */
    const struct column *columns;
};

struct command {
    const char *name;
    const char *usage; /* what follows "memoir ": "ps [OPTION…]" */
    const char *help;  /* one line */
    const char *description;
    const struct option_spec *options;      /* its first one is OPTION_HELP */
    const struct command_example *examples; /* at least one */
    const struct command_section *sections; /* further ones for the man page, or NULL */
    const struct command_fields *fields;    /* what the output has, or NULL */
    int operands_max;
    bool takes_processes; /* its operands are PIDs, and the completions offer them */
    bool takes_files;     /* and files */
    bool starts_other;    /* the first operand is a program, all that follows is for that one */
    size_t values_size;   /* of the struct that the options fill; it starts with a command_common */
    const void *defaults; /* its initial content */
    bool hidden;          /* internal: neither help nor completion tells */
    /* Its subcommands, ended by NULL; their names are "trace hot". The command itself takes no operands then. NULL: none. */
    const struct command *const *parts;
    /* What --cluster and --node show of other nodes; NULL: it does not take them, or does it by itself. */
    const struct elsewhere *elsewhere;

    /* `values` as described above, `operands` ended by NULL. Returns enum command_exit, or -errno
     * after which main() says what went wrong. */
    int (*run)(const void *values, const struct operands *operands);
};

/* The first member of every command's values. */
struct command_common {
    bool help;
    struct elsewhere_values elsewhere;
    struct past_values past;
};

#define OPTION_HELP                                                                        \
    {                                                                                      \
        .name = "help", .letter = 'h', .type = OPTION_FLAG,                                \
        .offset = offsetof(struct command_common, help), .help = "show this help and exit" \
    }

/* What most commands have in common. Their values have members of these names, and AT() gives the offset of one. */
#define OPTION_JSON                                              \
    {                                                            \
        "json", 'j', OPTION_FLAG, AT(json), .help = "print JSON" \
    }
#define OPTION_CSV                                                     \
    {                                                                  \
        "csv", 0, OPTION_FLAG, AT(csv), .help = "print CSV (RFC 4180)" \
    }
#define OPTION_NO_HEADER                                                                         \
    {                                                                                            \
        "no-header", 0, OPTION_FLAG, AT(no_header), .help = "leave out the line of column names" \
    }
#define OPTION_COLOR                                                                        \
    {                                                                                       \
        "color", 0, OPTION_CHOICE, AT(color), "WHEN", "use colours: auto, always or never", \
            .choices = term_color_words                                                     \
    }
#define OPTION_DIR                                                                                \
    {                                                                                             \
        "dir", 0, OPTION_STRING, AT(dir), "DIR",                                                  \
            "look for books in DIR instead of the usual places", .completion = COMPLETE_DIRECTORY \
    }

#define OPTION_CLUSTER                                                                  \
    {                                                                                   \
        .name = "cluster", .type = OPTION_FLAG,                                         \
        .offset = offsetof(struct command_common, elsewhere.cluster),                   \
        .help = "of all nodes of the cluster, through memoird, with who did not answer" \
    }
#define OPTION_NODE                                                                 \
    {                                                                               \
        .name = "node", .type = OPTION_STRING,                                      \
        .offset = offsetof(struct command_common, elsewhere.node), .value = "NAME", \
        .help = "of another node of the cluster: see 'memoir cluster status'"       \
    }
#define OPTION_NODE_TOKEN                                                                 \
    {                                                                                     \
        .name = "node-token", .type = OPTION_STRING,                                      \
        .offset = offsetof(struct command_common, elsewhere.token_file), .value = "FILE", \
        .help = "with --node: FILE has a token of that node, for what is private there"   \
    }
#define OPTIONS_ELSEWHERE OPTION_CLUSTER, OPTION_NODE, OPTION_NODE_TOKEN

/* All commands in the order in which the help lists them, ended by NULL. */
extern const struct command *const commands[];

extern const struct command cmd_ps;
extern const struct command cmd_top;
extern const struct command cmd_buffers;
extern const struct command cmd_devices;
extern const struct command cmd_query;
extern const struct command cmd_sites;
extern const struct command cmd_flame;
extern const struct command cmd_heap;
extern const struct command cmd_explain;
extern const struct command cmd_history;
extern const struct command cmd_exited;
extern const struct command cmd_doctor;
extern const struct command cmd_demo;
extern const struct command cmd_run;
extern const struct command cmd_help;
extern const struct command cmd_leaks;
extern const struct command cmd_log;
extern const struct command cmd_open;
extern const struct command cmd_token;
extern const struct command cmd_attach;
extern const struct command cmd_detach;
extern const struct command cmd_trace;
extern const struct command cmd_cluster;
extern const struct command cmd_pin;

/* write() shall say EPIPE, which ends the output quietly. The second one is for who becomes another program. */
void command_take_signals(void);
void command_restore_signals(void);

/* NULL when there is none. Subcommands are found by their two words with a space or, as man pages have it, a dash. */
const struct command *command_find(const char *name);

/* The subcommand of this name ("hot"); NULL: none. */
const struct command *command_part(const struct command *command, const char *name);

/* The name without that of the command that it is a part of: "hot" of "trace hot". */
const char *command_last_word(const struct command *command);

/* Say that there is no such command, with the nearest that there is. Returns COMMAND_USAGE. */
int command_unknown(const char *name);

/* Parse argv (argv[0] is the command's name) and run. Errors go to stderr. Returns the exit code. */
int command_run(const struct command *command, int argc, char **argv);

/* "memoir: cannot …" on stderr, free of control characters whatever the arguments were; returns
 * COMMAND_FAILED so that it can end a function. */
int command_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same for a mistake on the command line, with a hint at the help; returns COMMAND_USAGE. */
int command_misuse(const struct command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The process that the only operand names, where there is one: the same as --pid, which `pid` holds (0: not given).
 * COMMAND_OK, or COMMAND_USAGE after a word on stderr. */
int command_pid_operand(const struct command *command, const struct operands *operands,
                        uint64_t *pid);

/* Is --dir (NULL: not given) a directory? COMMAND_OK, or COMMAND_FAILED after a word on stderr. */
int command_check_dir(const char *dir);

/* Let programs that we start keep their books in `dir` (NULL: in the usual place), which must lie in memory: they would
 * go on without books otherwise. COMMAND_OK; COMMAND_FAILED after a word on stderr; -errno. */
int command_keep_books_in(const char *dir);

/* Write all of `text` to stdout. COMMAND_OK, or COMMAND_FAILED after a word on stderr (a closed pipe
 * is no reason for words). */
struct buffer;
int command_output(const struct buffer *text);

/* The same for a picture of --watch. On a terminal each one replaces the last in place, line by line, so
 * that nothing flickers; elsewhere they follow each other. */
struct term;
int command_frame(const struct term *term, const struct buffer *frame);

/* Begin a document: an object, left open, with "schema" and the "time" of now. */
struct json;
void command_json_begin(struct json *json, struct buffer *out, const char *schema);

#endif
