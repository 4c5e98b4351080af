/* Publishes how scarce memory is: one word for the machine in a file beside the books (book/pressure.h), for allocators.
 *
 * Looked at every PRESSURE_TICK_MS, four times as often while memory is scarce, and at once when the kernel says that
 * programs wait for memory (a PSI trigger, where it has them). A look is two small files,
 * and the limit of the container: 30 µs. It does not wait for the process table, which becomes slow when memory is
 * scarce. The loop's thread. */
#pragma once

#include <stdbool.h>

struct daemon;
struct json;
struct pressure;

/* -errno when no file can be published; -ENOENT: there is no directory for it. */
int pressure_new(struct daemon *daemon, struct pressure **ret_pressure);

/* The file stays, and says that no daemon publishes. NULL is fine, here and below. */
void pressure_free(struct pressure *pressure);

/* Take the thresholds of daemon->config. */
void pressure_reconfigure(struct pressure *pressure);

/* An object: the level and what it is made of; null for NULL. */
void pressure_json(const struct pressure *pressure, struct json *json);
