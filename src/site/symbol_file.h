/* Opening the files that a symbol query needs, without being led astray: a stranger chose the path. */
#pragma once

#include "site/symbols.h"

enum { SYMBOL_BUILD_ID_MAX = 64 };

struct symbol_files {
    int main_fd;  /* the module itself, or -1 with main_error */
    int debug_fd; /* its separate debug file by build-id, or -1 */
    int main_error;
};

/* Open what there is for a query. Only regular files, never through a device or a FIFO. `public_only`: see
 * symbols.h. */
void symbol_files_open(const struct symbol_query *query, const char *debug_dir, bool public_only,
                       struct symbol_files *ret_files);
void symbol_files_close(struct symbol_files *files);

/* Open a regular file for reading: fd or -errno. */
int symbol_file_open(const char *path);
