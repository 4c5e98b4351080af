/* The vocabulary: what columns of all tables are called. One name means one thing, of one kind and unit, wherever it
 * stands: in answers, help, completion, the description of the API and the documents. A column takes its help from here
 * unless its table has something more special to say. Unit tests walk all tables of the programs and all fields of commands,
 * so a column with a new name needs a word here first. JSON keys are these names; units are in `columns` of an answer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "query/column.h"

struct query_word {
    const char *name;
    enum query_kind kind;
    const char *help;
    const char *unit; /* NULL: the usual one of its kind */
    /* `device` alone: the memory held there in tables of processes, and which one it is in tables of devices. */
    bool also;
    enum query_kind also_kind;
    /* Of documents that are no tables (document.h): */
    bool document; /* only these have it */
    bool map;      /* an object under this name has figures of its kind under names of its own */
    bool listed;   /* may be a number instead: that of an entry in the document's list of these */
};

/* All of them, by name. */
const struct query_word *query_words(size_t *ret_n);
const struct query_word *query_word_find(const char *name); /* NULL: there is none */

/* Is the column called as the vocabulary says, with its kind and unit? */
bool query_word_fits(const struct query_column *column);

/* The column's own help, or that of its word. Never NULL. */
const char *query_column_help(const struct query_column *column);
