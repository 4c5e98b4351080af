/* Opening the files that a symbol query needs. Paths are untrusted. */
#pragma once

#include "site/symbol_debug.h"
#include "site/symbols.h"

enum { SYMBOL_BUILD_ID_MAX = 64 };

struct symbol_files {
    int main_fd;  /* the module itself, or -1 with main_error */
    int debug_fd; /* its separate debug file by build-id, or -1 */
    int main_error;
};

/* Open what there is for a query. Only regular files, never through a device or a FIFO. `host` may be NULL. */
void symbol_files_open(const struct symbol_query *query, const char *debug_dir,
                       const struct symbol_host *host, struct symbol_files *ret_files);
void symbol_files_close(struct symbol_files *files);

/* Open separate debug files that the module of a query wants: how many. The worker is not trusted: its want may be
 * anything. */
size_t symbol_files_give(const struct symbol_query *query, const char *debug_dir,
                         const struct symbol_host *host, const struct symbol_want *want,
                         int ret_fds[static SYMBOL_GIVEN_MAX]);

/* Open with the rights that this process has: a descriptor of a regular file or -errno. */
int symbol_wanted_open(const struct symbol_wanted *wanted);
