/* The document of history, "memoir.history/2", as `memoir history --json` and GET /api/v1/history have it: each row of the table
 * `history` is a series, with an array of values over one list of times. */
#pragma once

#include <stdint.h>

#include "base/buffer.h"
#include "base/json.h"

struct query;
struct query_world;

#define HISTORY_DOCUMENT "memoir.history/2"

/* The columns that a question has to show for it. */
extern const char history_document_show[];

struct history_document {
    struct buffer text; /* the series */
    struct json json;
};

/* `bytes_max`: of the series together. */
void history_document_init(struct history_document *document, size_t bytes_max);
void history_document_release(struct history_document *document);

/* The rows that match, once; `world` has a history. 0, -ENOMEM, -ENOBUFS past the limit, or an error of the table. */
int history_document_fill(struct history_document *document, const struct query *query,
                          const struct query_world *world);

/* "from", "to", "step", "t", "series", "oldest" and "damaged" in an open object, after history_document_fill(). */
void history_document_json(const struct history_document *document, const struct query_world *world,
                           struct json *json);
