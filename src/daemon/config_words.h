/* Text work of the configuration: lines, suggestions, default paths. */
#pragma once

#include <stddef.h>

enum { CONFIG_FILE_MAX = 1 << 20 };

/* Split "key = value  # comment" in place; quotes around the value are taken away. 1 and both words, 0
 * for a line that says nothing, -EINVAL for anything else. */
int config_split_line(char *line, char **ret_name, char **ret_value);

/* The name that `word` was most likely meant to be, or NULL when none is near. */
const char *config_nearest(const char *word, const char *const *names, size_t n);

/* The usual configuration file, for free(); NULL when there is no home to look in. */
char *config_default_file(void);

/* Where state is kept without --state, for free(); NULL when there is no home. */
char *config_default_state(void);
