/* The history as the HTTP API has it, apart from how it is asked for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct json;
struct read_result;

/* "now", seconds since 1970, or "-1h30m" before now. -EINVAL, -ERANGE. */
int history_moment(const char *text, uint64_t now_s, uint64_t *ret_s);

/* The shortest step of a usual length that cuts the time into `points` at most; at least 1. */
uint64_t history_step(uint64_t range_s, uint64_t points);

/* Fields of an open object: "from", "to", "step", "t" and "series". Of a process that PID may have been several: the one
 * that began nearest to `start_s`, or the last one where that is 0. */
void history_json(const struct read_result *result, bool of_process, uint64_t start_s,
                  struct json *json);
