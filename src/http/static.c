/* Files of the dashboard. See static.h. */
#include "http/static.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/gzip.h"
#include "http/internal.h"

enum { FILE_MAX = 16 << 20 };

static const struct http_static *file_find(const char *path)
{
    /* Views of the dashboard are fragments of the page's one address. */
    for (const struct http_static *file = web_files; file->path; file++)
        if (strcmp(file->path, path) == 0)
            return file;
    return NULL;
}

/* The bytes are constants and stay where they are. */
static struct answer *file_compressed(const struct http_static *file)
{
    struct buffer none = BUFFER_INIT(1);
    struct answer *answer = answer_new(200, file->type, &none);
    if (!answer)
        return NULL;
    answer->gzip =
        MHD_create_response_from_buffer(file->len, (void *)file->gzip, MHD_RESPMEM_PERSISTENT);
    answer->len = file->len;
    return answer;
}

static struct answer *file_expanded(const struct http_static *file)
{
    struct buffer out = BUFFER_INIT(FILE_MAX);
    struct answer *answer = NULL;
    if (gzip_expand(file->gzip, file->len, &out) == 0)
        answer = answer_new(200, file->type, &out);
    buffer_release(&out);
    return answer;
}

struct answer *static_answer(const char *path, bool gzip)
{
    const struct http_static *file = file_find(path);
    if (!file)
        return answer_problem(404, "not-found", path, "there is no such page");
    struct answer *answer = gzip ? file_compressed(file) : file_expanded(file);
    if (!answer)
        return NULL;
    answer->immutable = file->immutable;
    snprintf(answer->etag, sizeof(answer->etag), "%s", file->etag);
    if (answer->gzip && !answer_headers(answer->gzip, answer, true)) {
        answer_unref(answer);
        return NULL;
    }
    return answer;
}
