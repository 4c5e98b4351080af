/* Names for frames. See site_names.h. */
#include "profile/site_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "site/own.h"
#include "site/short_name.h"
#include "site/symbol_engine.h"
#include "site/symbols.h"

enum { PATH_BYTES_MAX = 4096, ANSWER_TIMEOUT_MS = 5000 };

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

/* "LINE in FUNCTION" after the first colon that is followed by that: such a file would be odd. */
bool site_names_script(const char *frame, struct site_script *ret_script)
{
    for (const char *colon = strchr(frame, ':'); colon; colon = strchr(colon + 1, ':')) {
        size_t digits = strspn(colon + 1, "0123456789");
        const char *word = colon + 1 + digits;
        if (digits == 0 || strncmp(word, " in ", 4) != 0)
            continue;
        int file_len = (int)(colon - frame), frame_len = (int)(word - frame);
        snprintf(ret_script->file, sizeof(ret_script->file), "%.*s", file_len, frame);
        snprintf(ret_script->frame, sizeof(ret_script->frame), "%.*s", frame_len, frame);
        ret_script->function = word + 4;
        ret_script->line = (uint32_t)strtoul(colon + 1, NULL, 10);
        return true;
    }
    return false;
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

bool site_names_append(struct site_names *names, const struct site_code *code, struct buffer *out)
{
    struct site_name name = site_names_find_code(names, code);
    const char *file = name.file;
    if (file && strrchr(file, '/'))
        file = strrchr(file, '/') + 1;
    if (!name.function && !file)
        return false;
    if (file)
        buffer_printf(out, "%s:%u%s", file, name.line, name.function ? " " : "");
    char text[SHORT_NAME_MAX];
    if (name.function)
        buffer_append_str(out, short_name(name.function, text));
    return true;
}
