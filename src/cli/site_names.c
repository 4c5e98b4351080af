/* Names for frames. See site_names.h. */
#include "cli/site_names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "site/symbols.h"

enum { PATH_BYTES_MAX = 4096, ANSWER_TIMEOUT_MS = 5000 };

struct site_names {
    struct symbolizer *symbolizer;
};

struct site_names *site_names_new(void)
{
    struct site_names *names = calloc(1, sizeof(*names));
    struct symbolizer_options options = {.timeout_ms = ANSWER_TIMEOUT_MS};
    if (names && symbolizer_new(&options, &names->symbolizer) < 0) {
        free(names);
        return NULL;
    }
    return names;
}

void site_names_freep(struct site_names **names)
{
    if (!*names)
        return;
    symbolizer_free((*names)->symbolizer);
    free(*names);
}

/* Neither written nor replaced since then? */
static bool unchanged_since(const char *path, uint64_t real_ns)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return false;
    return (uint64_t)info.st_mtim.tv_sec < real_ns / NS_PER_S &&
           (uint64_t)info.st_ctim.tv_sec < real_ns / NS_PER_S;
}

struct site_name site_names_find_code(struct site_names *names, const struct site_code *code)
{
    struct site_name none = {0};
    if (!names || code->path[0] != '/' ||
        (!code->build_id_len && !unchanged_since(code->path, code->started_real_ns)))
        return none;
    struct symbol_query query = {
        .path = code->path,
        .build_id = code->build_id,
        .build_id_len = code->build_id_len,
        .offset = code->offset,
        .pid = code->pid,
        .map_start = code->map_start,
        .is_return_address = true,
    };
    const struct symbol_frame *frames;
    size_t n;
    if (symbolizer_resolve(names->symbolizer, &query, &frames, &n) < 0 || n == 0)
        return none;
    return (struct site_name){frames[0].function, frames[0].file, frames[0].line};
}

struct site_name site_names_find(struct site_names *names, const char *frame,
                                 uint64_t started_real_ns)
{
    const char *plus = strrchr(frame, '+');
    char path[PATH_BYTES_MAX];
    if (!plus || (size_t)(plus - frame) >= sizeof(path))
        return (struct site_name){0};
    memcpy(path, frame, (size_t)(plus - frame));
    path[plus - frame] = '\0';
    struct site_code code = {
        .path = path,
        .offset = strtoull(plus + 1, NULL, 16),
        .started_real_ns = started_real_ns,
    };
    return site_names_find_code(names, &code);
}
