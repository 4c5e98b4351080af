/* See code.h. */
#include "query/code.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "site/short_name.h"

enum { TEXT_MAX = 8192 };

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Takes the text of `buffer`, which is empty afterwards; NULL without memory. */
static const char *take(struct buffer *buffer, struct arena *texts)
{
    const char *text = buffer->error ? NULL : arena_text(texts, buffer_string(buffer), buffer->len);
    buffer_reset(buffer);
    return text;
}

static const char *copy(const char *text, struct arena *texts)
{
    return text ? arena_text(texts, text, strlen(text)) : NULL;
}

int code_name_script(const char *file, uint32_t line, const char *function, struct arena *texts,
                     struct code_name *ret_name)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    struct code_name name = {.line = line};
    buffer_printf(&text, "%s:%" PRIu32 " in %s", base_of(file), line, function);
    name.site = take(&text, texts);
    buffer_printf(&text, "%s:%" PRIu32, file, line);
    name.frame = take(&text, texts);
    name.function = copy(function, texts);
    name.file = copy(file, texts);
    if (!name.site || !name.frame || !name.function || !name.file)
        return -ENOMEM;
    *ret_name = name;
    return 0;
}

void code_source_append(const struct query_source *source, struct buffer *out)
{
    char text[SHORT_NAME_MAX];
    if (source->file)
        buffer_printf(out, "%s:%" PRIu32 "%s", base_of(source->file), source->line,
                      source->function ? " " : "");
    if (source->function)
        buffer_append_str(out, short_name(source->function, text));
}

int code_name_make(const struct query_world *world, const struct query_code *code,
                   struct arena *texts, struct code_name *ret_name)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    struct query_source source = {0};
    struct code_name name = {0};
    if (world->source_of && !world->source_of(code, &source, world->context))
        source = (struct query_source){0};
    code_source_append(&source, &text);
    if (!text.len)
        buffer_printf(&text, "%s+0x%" PRIx64, base_of(code->path), code->offset);
    name.site = take(&text, texts);
    buffer_printf(&text, "%s+0x%" PRIx64, code->path, code->offset);
    name.frame = take(&text, texts);
    name.function = copy(source.function, texts);
    name.file = copy(source.file, texts);
    name.line = source.file ? source.line : 0;
    if (!name.site || !name.frame)
        return -ENOMEM;
    *ret_name = name;
    return 0;
}

void code_name_get(const struct code_name *name, uint32_t column, struct query_value *ret)
{
    const char *text = !name                     ? NULL
                       : column == CODE_SITE     ? name->site
                       : column == CODE_FRAME    ? name->frame
                       : column == CODE_FUNCTION ? name->function
                       : column == CODE_FILE     ? name->file
                                                 : NULL;
    if (text)
        query_set_text(ret, text);
    else if (name && column == CODE_LINE && name->line)
        query_set_number(ret, name->line);
    else
        ret->state = QUERY_UNKNOWN;
}
