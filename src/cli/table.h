/*
 * table.h: rows of named values, printed as aligned text, CSV or JSON from one description.
 *
 * A command says once what its columns are and fills in values with their units; how they look is
 * decided here. A value that is not known stays absent: blank in CSV, null in JSON, "-" on screen.
 */
#ifndef MEMOIR_CLI_TABLE_H
#define MEMOIR_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/term.h"

struct buffer;
struct json;

enum column_type {
    COLUMN_TEXT,
    COLUMN_NUMBER, /* a plain count or an identifier */
    COLUMN_BYTES,  /* screen: "25.5 MB"; exported as bytes */
    COLUMN_AGE,    /* set in nanoseconds; screen: "4m12s"; exported as seconds with a fraction */
    COLUMN_YES,    /* set to 0 or 1; screen: "no", "yes"; exported as false, true */
    COLUMN_TIME,  /* set in nanoseconds since 1970; screen: local time; exported as ISO 8601, UTC */
    COLUMN_SHARE, /* the same, exported as a fraction: 0.7525 */
    COLUMN_PERCENT, /* set in hundredths of a percent; screen: "75.3%"; exported as 75.25 */
    /* Set as an int64_t in two's complement, exported with its sign: */
    COLUMN_CHANGE,       /* screen: "+12" */
    COLUMN_CHANGE_BYTES, /* screen: "+25.5 MB" */
    COLUMN_RATE,         /* a change each second; screen: "+12/s" */
    COLUMN_RATE_BYTES,   /* screen: "+25.5 MB/s" */
};

enum column_flags {
    COLUMN_EXPORT_ONLY = 1u << 0, /* in CSV and JSON, never on screen */
    COLUMN_STRETCH = 1u << 1,     /* cut when a line is too long */
    COLUMN_HIDE_EMPTY = 1u << 2,  /* on screen only when a row has something there */
    COLUMN_SCREEN_ONLY = 1u << 3, /* on screen, never in CSV and JSON: they have its parts */
    COLUMN_WIDE =
        1u << 4, /* with COLUMN_STRETCH: others go before it is cut to less than a line of code */
    COLUMN_FINE = 1u << 5,  /* an age on screen: "1.3 ms" rather than "0s" */
    COLUMN_EXACT = 1u << 6, /* an age for programs: seconds with nine decimals, not three */
};

/* How every table for programs tells of a device, so that rows of different commands can be joined. */
#define COLUMN_DEVICE                                                                    \
    {                                                                                    \
        "ordinal", NULL,                                                                 \
            "the number that programs use for the device; absent for the host's memory", \
            COLUMN_NUMBER, COLUMN_EXPORT_ONLY                                            \
    }
#define COLUMN_DEVICE_NAME                                                         \
    {                                                                              \
        "device_name", NULL, "name of the device", COLUMN_TEXT, COLUMN_EXPORT_ONLY \
    }
#define COLUMN_DEVICE_UID                                                                         \
    {                                                                                             \
        "device_uid", NULL, "UUID, serial, ASIC or MIG id of the device; absent where none told", \
            COLUMN_TEXT, COLUMN_EXPORT_ONLY                                                       \
    }

struct column {
    const char *key;   /* name in CSV, JSON and --sort: a word of query/vocabulary.h; NULL ends */
    const char *title; /* on screen */
    const char *help;  /* for the manual: a sentence without full stop */
    enum column_type type;
    unsigned flags;     /* enum column_flags */
    unsigned char rank; /* where room is short, high ranks go first; 0 always stays */
};

/* What is to be known about a figure; shown on screen only, where a column of its own would be too much. */
enum table_mark {
    TABLE_MARK_ESTIMATE = 1u << 0, /* "~25.5 MB" */
    TABLE_MARK_AT_LEAST = 1u << 1, /* "25.5 MB+" */
};

/* How sizes look on screen. */
enum table_units {
    TABLE_DECIMAL, /* "25.5 MB" */
    TABLE_BINARY,  /* "24.3 MiB" */
    TABLE_PLAIN,   /* "25500000" */
};

struct cell {
    bool present;
    unsigned char style; /* enum term_style */
    unsigned char marks; /* enum table_mark */
    uint64_t number;     /* of all types but text */
    char *text;
    char *tail; /* on screen only, after the text, dim */
};

struct table {
    const struct column *columns; /* borrowed */
    size_t n_columns;
    struct cell *cells; /* n_rows * n_columns */
    size_t n_rows, cap_rows;
    int error; /* sticks: 0 or -ENOMEM */
    enum table_units units;
    bool today; /* while it is printed: times on screen go without their date */
};

/* `columns` ends with a NULL key and outlives the table. */
void table_init(struct table *table, const struct column *columns);
void table_release(struct table *table);

/* Start a row; the setters below fill it, by the index of the column. Values not set are absent.
 * Text is copied. Failures stick in table.error, which the print functions return. */
void table_row(struct table *table);
/* Also for a figure of another unit than its column's: text stands for itself on screen and in CSV. */
void table_set_text(struct table *table, size_t column, const char *text);
/* What a call site calls to get its memory, after its text on screen: "via zmalloc". */
void table_set_via(struct table *table, size_t column, const char *via);
void table_set_number(struct table *table, size_t column, uint64_t number);
void table_set_change(struct table *table, size_t column, int64_t change);
void table_set_style(struct table *table, size_t column, enum term_style style);
void table_set_marks(struct table *table, size_t column, unsigned marks);

/* The column with this key, or with this title in any case ("rss"); -ENOENT. */
int table_column_find(const struct column *columns, const char *name);

/* How --sort says it: "rss" sorts numbers, sizes and ages from large to small and text from A to Z;
 * "-rss" is from large to small and "+rss" from small to large whatever it is. */
struct table_sort {
    size_t column;
    bool descending;
};
int table_sort_parse(const struct column *columns, const char *text, struct table_sort *ret_sort);

/* Absent values come last, equal ones stay in order. `ret_order` gets a new array of n_rows row
 * numbers for free(). */
int table_sort(const struct table *table, const struct table_sort *sort, size_t **ret_order);

struct table_layout {
    bool header;
    const size_t *order; /* row numbers, or NULL for the order in which they were added */
};

/* Aligned text, as wide as `term` at most where it has a width. Where room is short, first the
 * stretching column shrinks, then columns go by rank. Returns 0 or -errno. */
int table_print(const struct table *table, const struct table_layout *layout,
                const struct term *term, struct buffer *out);

/* The three columns above, which follow each other from `first` on. A negative ordinal and an empty uid
 * are not known. */
void table_set_device(struct table *table, size_t first, int ordinal, const char *name,
                      const char *uid);

/* RFC 4180: CRLF, quotes where needed. Control characters in text become '?'. */
int table_print_csv(const struct table *table, const struct table_layout *layout,
                    struct buffer *out);

static inline const struct cell *table_cell(const struct table *table, size_t row, size_t column)
{
    return &table->cells[row * table->n_columns + column];
}

/* The fields of one row, from column `first` on, into an open JSON object. */
void table_json_row(const struct table *table, size_t row, size_t first, struct json *json);

/* All rows, as an array of objects, into the open JSON object under `key`. */
void table_json_rows(const struct table *table, const char *key, struct json *json);

#endif
