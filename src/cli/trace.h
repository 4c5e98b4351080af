/* trace.h: what the subcommands of `memoir trace` have in common: their options, where histories
 * come from, how they print. */
#ifndef MEMOIR_CLI_TRACE_H
#define MEMOIR_CLI_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/command.h"
#include "cli/term.h"
#include "cli/trace_names.h"
#include "trace/history.h"

struct buffer;
struct json;
struct table;
struct table_layout;

enum { TRACE_OUTPUT_MAX = 256 << 20, TRACE_WHO_MAX = 128 };

/* The options of all subcommands; each has those that its table lists. */
struct trace_values {
    struct command_common common;
    bool json, csv, no_header;
    int color;
    const char *socket; /* of an observer; NULL: the usual ones */
    const char *dir;    /* of books, for an observer that is started */
    uint64_t for_ns;    /* how long to trace a process that is not traced yet */
    const char *output; /* -o */
    bool quiet, live, stacks;
    uint64_t limit;                          /* -n */
    int by;                                  /* enum trace_by */
    const char *space;                       /* NULL: any */
    const char *site;                        /* a part of a line's text */
    uint64_t device;                         /* an ordinal */
    const char *context;                     /* size of a CUDA context */
    const char *pageable_rate, *pinned_rate; /* bytes in a second */
};

extern const struct trace_values trace_defaults;
extern const char *const trace_by_words[];

#define TRACE_AT(field) offsetof(struct trace_values, field)
#define TRACE_OPTION_JSON                                              \
    {                                                                  \
        "json", 'j', OPTION_FLAG, TRACE_AT(json), .help = "print JSON" \
    }
#define TRACE_OPTION_TABLE                                                                     \
    TRACE_OPTION_JSON, {"csv", 0, OPTION_FLAG, TRACE_AT(csv), .help = "print CSV (RFC 4180)"}, \
        {"no-header", 0, OPTION_FLAG, TRACE_AT(no_header),                                     \
         .help = "leave out the line of column names"},                                        \
        TRACE_OPTION_COLOR
#define TRACE_OPTION_COLOR                                                                        \
    {                                                                                             \
        "color", 0, OPTION_CHOICE, TRACE_AT(color), "WHEN", "use colours: auto, always or never", \
            .choices = term_color_words                                                           \
    }
#define TRACE_OPTION_SOCKET                                                                  \
    {                                                                                        \
        "socket", 0, OPTION_STRING, TRACE_AT(socket), "PATH",                                \
            "ask the observer at this socket (default: memoird's, then that of the process)" \
    }
#define TRACE_OPTION_FOR                                                                   \
    {                                                                                      \
        "for", 0, OPTION_DURATION, TRACE_AT(for_ns), "TIME",                               \
            "trace a process that is not traced yet for this long, then show what it did " \
            "(default: 5s)"                                                                \
    }
#define TRACE_OPTION_DIR                                                                        \
    {                                                                                           \
        "dir", 0, OPTION_STRING, TRACE_AT(dir), "DIR", "keep books of traced processes in DIR", \
            .completion = COMPLETE_DIRECTORY                                                    \
    }
#define TRACE_OPTION_LIMIT                                                                \
    {                                                                                     \
        "limit", 'n', OPTION_NUMBER, TRACE_AT(limit), "K", "at most K rows (default: 20)" \
    }

extern const struct command cmd_trace_run, cmd_trace_attach, cmd_trace_stop, cmd_trace_list,
    cmd_trace_hot, cmd_trace_cold, cmd_trace_history, cmd_trace_waste, cmd_trace_owners,
    cmd_trace_oom, cmd_trace_dump, cmd_trace_load, cmd_trace_diff;

/* ---- where histories come from (trace_source.c) ---- */

struct trace_source {
    const struct command *command;
    const struct trace_values *values;
    struct trace_names *names; /* of call sites */
    struct trace_history *history;
    struct trace_identity identity;
    struct buffer *list; /* the observer's answer to "list" goes here; NULL: it is not asked */
    bool loaded;         /* from a file */
    bool
        late; /* the process had memory before tracing began: what was pinned then looks pageable */
    char who[TRACE_WHO_MAX]; /* "python3 (PID 123)", in printable characters */
};

/* The history that `word` names: a PID, or the file of a dump. COMMAND_OK, or an exit code after
 * a message on stderr. Starts the symbolizer's worker. Release it in any case. */
int trace_source_open(struct trace_source *source, const struct command *command,
                      const struct trace_values *values, const char *word);
/* The only operand, or a message that it is missing. */
int trace_source_operand(struct trace_source *source, const struct command *command,
                         const struct trace_values *values, const struct operands *operands);
/* Over a history that the caller has, which becomes the source's. */
int trace_source_take(struct trace_source *source, const struct command *command,
                      const struct trace_values *values, struct trace_history *history,
                      bool loaded);
void trace_source_release(struct trace_source *source);

/* The binary dump of a traced process: from the observer of memoird or one that `trace run` or
 * `attach` started, or from memoird itself, which gives users the traces of their own processes.
 * 0; -ESRCH: it is not traced; -EACCES: not for this user; other -errno. `ret_why` has a text
 * for people where the observer gave one, else "". */
struct buffer;
int trace_source_fetch(const struct trace_values *values, pid_t pid, struct buffer *out,
                       struct buffer *list, char *ret_why, size_t why_size);

/* ---- printing (trace_print.c) ---- */

/* Text columns that have no room beside figures on most screens: below TRACE_WIDE columns they
 * follow on lines of their own. */
enum { TRACE_WIDE = 180 };
struct trace_detail {
    size_t column;
    const char *word; /* before the text; NULL ends the list */
};
int trace_print_details(const struct table *table, const struct table_layout *layout,
                        const struct trace_detail *details, const struct term *term,
                        struct buffer *out);

/* Print a table as the options say. JSON is an object with "schema", "time", "process" and
 * `rows`. `extra` (NULL is fine) adds fields to the object, `row_extra` to each row's. `empty`
 * is said on stderr where there are no rows. */
struct trace_print {
    const char *schema, *rows, *empty;
    bool copies;                        /* rows tell whether copies were of pinned memory */
    const struct trace_detail *details; /* NULL: none */
    void (*extra)(void *context, struct json *json);
    void (*row_extra)(void *context, size_t row, struct json *json);
    void *context;
};
int trace_print_table(const struct trace_source *source, const struct table *table,
                      const struct trace_print *print);

/* JSON of a table that is about no single process. */
int trace_print_rows(const struct table *table, const char *schema, const char *rows,
                     struct buffer *out);

/* The fields "pid", "program", "host", "traced_since", "exited" of an open object. */
void trace_print_process(const struct trace_source *source, struct json *json);

/* "device", "pinned", "managed" ...: how people call a space. */
const char *trace_space_name(unsigned space);
/* The space that a word of --space names; 0 where it is NULL. COMMAND_OK or COMMAND_USAGE after
 * a message. */
int trace_space_parse(const struct command *command, const char *word, uint8_t *ret_space);

/* "12.5 MB" in text of UNITS_TEXT_MAX bytes. */
const char *trace_bytes(char *text, uint64_t bytes);

/* CLOCK_REALTIME of a moment of the history. */
uint64_t trace_real_ns(const struct trace_source *source, uint64_t time_ns);

/* What happened to a range of host memory: "8,192 faults, 3 huge pages"; "" if nothing. */
void trace_system_words(const uint64_t system[static TRACE_SYSTEM_KINDS], struct buffer *out);

#endif
