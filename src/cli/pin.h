/* pin.h: what the subcommands of `memoir pin` have in common. */
#ifndef MEMOIR_CLI_PIN_H
#define MEMOIR_CLI_PIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/command.h"
#include "cli/table.h"
#include "cli/term.h"
#include "pin/label.h"
#include "pin/state_read.h"

struct buffer;

enum { PIN_OUTPUT_MAX = 64 << 20 };

struct pin_values {
    struct command_common common;
    bool json, csv, no_header;
    int color;
    const char *dir;
    uint64_t limit, steps;
    /* run */
    int mode;
    const char *budget, *threshold, *history;
    bool checksum, async, quiet;
    bool no_stage, no_touch;
    const char *library; /* calibrate, run: another libmemoir-cuda.so */
};
extern const struct pin_values pin_defaults;
extern const char *const pin_mode_words[];

#define PIN_AT(field) offsetof(struct pin_values, field)
#define PIN_OPTION_DIR                                                 \
    {                                                                  \
        "dir", 0, OPTION_STRING, PIN_AT(dir), "DIR",                   \
            "look for the process in DIR instead of the usual places", \
            .completion = COMPLETE_DIRECTORY                           \
    }
#define PIN_OPTION_TABLE                                                                        \
    {"json", 'j', OPTION_FLAG, PIN_AT(json), .help = "print JSON"},                             \
        {"csv", 0, OPTION_FLAG, PIN_AT(csv), .help = "print CSV (RFC 4180)"},                   \
        {"no-header", 0, OPTION_FLAG, PIN_AT(no_header),                                        \
         .help = "leave out the line of column names"},                                         \
    {                                                                                           \
        "color", 0, OPTION_CHOICE, PIN_AT(color), "WHEN", "use colours: auto, always or never", \
            .choices = term_color_words                                                         \
    }

extern const struct command cmd_pin_run, cmd_pin_explain, cmd_pin_advise, cmd_pin_calibrate;

/* The state of the process that `word` names, or a history where `histories`. COMMAND_OK, or an
 * exit code after a message. For free(). */
int pin_source_open(const struct command *command, const struct pin_values *values,
                    const struct operands *operands, bool histories, struct pin_state **ret_state);

/* Path of libmemoir-cuda.so: in the build tree, in an installed one, on the system. False: there is
 * none. */
bool pin_library_find(char *ret_path, size_t size);

/* Print the table as the options say; `before` is printed above it on screen (NULL is fine). */
int pin_print(const struct pin_values *values, const struct table *table, const char *schema,
              const char *rows, const char *empty, const struct pin_state *state,
              const struct buffer *before);

#endif
