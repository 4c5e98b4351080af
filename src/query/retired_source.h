/* Where lines of the daemon's list of ended processes come from (retired_lines.h), for the world of a question. Apart, since
 * jansson and base/json.h do not go together in one file. */
#pragma once

#include <stddef.h>

struct json_t;
typedef int retired_line_fn(struct json_t *line, void *context);

/* query_world.retired: gives every line to `each`, as retired_lines_read() does. */
struct retired_source {
    int (*read)(const struct retired_source *source, retired_line_fn *each, void *context,
                size_t *ret_skipped);
};

/* Those of the files in a state directory. */
struct retired_files {
    struct retired_source source; /* first; .read = retired_files_read */
    const char *state;
};
int retired_files_read(const struct retired_source *source, retired_line_fn *each, void *context,
                       size_t *ret_skipped);

/* Is there a list that can be read? 0 or what retired_lines_read() would say. */
int retired_files_exist(const char *state);
