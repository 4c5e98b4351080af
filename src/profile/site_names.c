/* Names for frames. See site_names.h. */
#include "profile/site_names.h"

#include <stdlib.h>

#include "base/clock.h"
#include "query/query.h"
#include "site/own.h"
#include "site/symbol_engine.h"
#include "site/symbols.h"

enum { ANSWER_TIMEOUT_MS = 5000 };

struct site_names {
    struct symbolizer *symbolizer;
    bool borrowed;
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

struct site_names *site_names_over(struct symbolizer *symbolizer)
{
    struct site_names *names = calloc(1, sizeof(*names));
    if (names)
        *names = (struct site_names){.symbolizer = symbolizer, .borrowed = true};
    return names;
}

void site_names_freep(struct site_names **names)
{
    if (!*names)
        return;
    if (!(*names)->borrowed)
        symbolizer_free((*names)->symbolizer);
    free(*names);
}

struct symbolizer *site_names_symbolizer(const struct site_names *names)
{
    return names ? names->symbolizer : NULL;
}

struct site_name site_names_find_code(struct site_names *names, const struct site_code *code)
{
    struct site_name none = {0};
    if (!names || !names->symbolizer || code->path[0] != '/' ||
        (!code->build_id_len && !code->started_real_ns))
        return none;
    struct symbol_query query = {
        .path = code->path,
        .build_id = code->build_id,
        .build_id_len = code->build_id_len,
        .offset = code->offset,
        .pid = code->pid,
        .map_start = code->map_start,
        .before_s = (int64_t)(code->started_real_ns / NS_PER_S),
        .is_return_address = true,
    };
    const struct symbol_frame *frames;
    size_t n;
    if (symbolizer_resolve(names->symbolizer, &query, &frames, &n) < 0 || n == 0)
        return none;
    enum own_kind kinds[SYMBOL_FRAMES_MAX];
    size_t count = n < SYMBOL_FRAMES_MAX ? n : SYMBOL_FRAMES_MAX;
    for (size_t i = 0; i < count; i++)
        kinds[i] = own_kind(&(struct own_line){code->path, frames[i].function, frames[i].file});
    const struct symbol_frame *best = &frames[own_choose(kinds, count)];
    return (struct site_name){best->function, best->file, best->line};
}

bool site_names_source(struct site_names *names, const struct query_code *code,
                       struct query_source *ret_source)
{
    /* A build-id proves that the file is the one that ran; its age is the next best. */
    struct site_name name = site_names_find_code(
        names, &(struct site_code){.path = code->path,
                                   .build_id = code->build_id,
                                   .build_id_len = code->build_id_len,
                                   .offset = code->offset,
                                   .started_real_ns = code->build_id_len ? 0 : code->started_ns,
                                   .pid = code->pid});
    *ret_source =
        (struct query_source){.function = name.function, .file = name.file, .line = name.line};
    return name.function || name.file;
}
