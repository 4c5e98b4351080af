/*
 * options.h: what a command takes on its command line, as a table.
 *
 * One table per command feeds the parser, the help, the man page and the shell completions, so they
 * cannot disagree. Values land in a struct of the command's own, at the offset that the table names.
 */
#ifndef MEMOIR_CLI_OPTIONS_H
#define MEMOIR_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

/* What a value is, and the type of the field that takes it. */
enum option_type {
    OPTION_FLAG,     /* bool: no value, becomes true */
    OPTION_STRING,   /* const char *: borrowed from argv */
    OPTION_NUMBER,   /* uint64_t */
    OPTION_DURATION, /* uint64_t, nanoseconds: "90", "90s", "1h30m"; a bare number is seconds */
    OPTION_CHOICE,   /* int: index into `choices` */
    OPTION_STRINGS,  /* struct option_strings: may be repeated, each borrowed from argv */
};

enum { OPTION_STRINGS_MAX = 32 };
struct option_strings {
    const char *all[OPTION_STRINGS_MAX];
    size_t n;
};

/* What a shell may offer for a value. */
enum option_completion {
    COMPLETE_NOTHING,
    COMPLETE_DIRECTORY,
    COMPLETE_USER,
    COMPLETE_PID, /* of processes that keep a book */
};

struct option_spec {
    const char *name; /* "sort", without dashes; NULL ends the table */
    char letter;      /* 's' for -s, or 0 */
    enum option_type type;
    size_t offset;              /* of the field in the command's struct of values */
    const char *value;          /* what stands for the value in the help: "KEY"; NULL for flags */
    const char *help;           /* a sentence without full stop, small first letter */
    const char *const *choices; /* for OPTION_CHOICE, ended by NULL */
    enum option_completion completion;
    bool value_optional; /* the field then has its default already, and `given` tells */
    size_t given_offset; /* of a bool that becomes true; with value_optional only */
    bool hidden;         /* works, but neither help nor completion tells */
};

/* Words of argv that are no options. */
struct operands {
    char **words; /* borrowed from argv, whose words are reordered; ended by NULL */
    int n;
};

/* Parse argv[1..], which may mix options and operands; "--" ends the options. `values` has the
 * defaults and is changed in place. Returns 0, or -EINVAL with a sentence for the user in `error`
 * ("unknown option '--sotr', did you mean '--sort'?"). */
int options_parse(const struct option_spec *specs, int argc, char **argv, void *values,
                  struct operands *ret_operands, struct buffer *error);

/* The same for options that end at the first operand: what follows is another program's. */
int options_parse_head(const struct option_spec *specs, int argc, char **argv, void *values,
                       struct operands *ret_operands, struct buffer *error);

/* The word of `words` (ended by NULL) closest to `word`, or NULL if none is near enough to have
 * been meant. */
const char *options_nearest(const char *word, const char *const *words);

/* "-s, --sort KEY", "--watch[=TIME]" into `out`. */
void options_format(const struct option_spec *spec, struct buffer *out);

#endif
