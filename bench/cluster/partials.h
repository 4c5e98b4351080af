/* Partial results of simulated nodes: what programs hold, by program and node. */
#pragma once

#include <stddef.h>

struct buffer;

void partials_make(size_t groups);

/* The partial result of a node, by the real writer. The module's, until the next call. */
struct buffer *partials_write(const char *node);

/* Read it `n` times, merged into one result. The rows at the end. */
size_t partials_read(const struct buffer *bytes, size_t n);

/* The same rows as a JSON document, for free(). */
char *partials_json(void);
