/* The history as the HTTP API has it, apart from how it is asked for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct json;
struct read_result;

/* "now", seconds since 1970, or "-1h30m" before now. -EINVAL, -ERANGE. */
int history_moment(const char *text, uint64_t now_s, uint64_t *ret_s);

/* Fields of an open object: "from", "to", "step", "t" and "series". `node` is the name of this machine. */
void history_json(const struct read_result *result, const char *node, struct json *json);
