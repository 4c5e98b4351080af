/* Lines of the daemon's list of the dead. See retired_lines.h. */
#include "query/retired_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"

enum {
    LINES_MAX = 100000, /* kept at most; the daemon writes far fewer */
    LINE_BYTES_MAX = 8 << 20,
};

struct lines {
    int (*each)(json_t *line, void *context);
    void *context;
    size_t kept, skipped;
};

json_t *retired_line_parse(const char *text, size_t len)
{
    json_t *line = len <= LINE_BYTES_MAX ? json_loadb(text, len, 0, NULL) : NULL;
    if (json_is_object(line))
        return line;
    json_decref(line);
    return NULL;
}

uint64_t retired_line_number(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));
    return n > 0 ? (uint64_t)n : 0;
}

uint64_t retired_line_ns(const json_t *object, const char *key)
{
    double s = json_number_value(json_object_get(object, key));
    return s > 0 && s < 1e10 ? (uint64_t)(s * 1e6) * 1000 : 0;
}

static int line_give(struct lines *lines, const char *text, size_t len)
{
    json_t *line = retired_line_parse(text, len);
    if (!line) {
        lines->skipped++;
        return 0;
    }
    int r = lines->each(line, lines->context);
    json_decref(line);
    lines->kept += r > 0;
    return r < 0 ? r : 0;
}

static int file_read(struct lines *lines, const char *state, const char *name)
{
    char path[4096];
    if (snprintf(path, sizeof(path), "%s/%s", state, name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe there would hold us up */
    MEMOIR_CLEANUP(fclosep)
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    struct stat info;
    if (!file)
        return -errno;
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        return -EINVAL;
    MEMOIR_CLEANUP(freep)
    char *text = NULL;
    size_t room = 0;
    ssize_t len;
    int r = 0;
    while (r == 0 && lines->kept < LINES_MAX && (len = getline(&text, &room, file)) > 0) {
        if (text[len - 1] != '\n')
            break; /* being written */
        r = line_give(lines, text, (size_t)len);
    }
    return r;
}

int retired_lines_read(const char *state, int (*each)(json_t *line, void *context), void *context,
                       size_t *ret_skipped)
{
    struct lines lines = {.each = each, .context = context};
    int older = file_read(&lines, state, "retired.jsonl.1");
    if (older < 0 && older != -ENOENT && older != -EACCES && older != -EINVAL)
        return older;
    int r = file_read(&lines, state, "retired.jsonl");
    if (r == -ENOENT && older == 0)
        r = 0;
    if (r == 0)
        *ret_skipped = lines.skipped;
    return r;
}

int retired_files_read(const struct retired_source *source, retired_line_fn *each, void *context,
                       size_t *ret_skipped)
{
    const struct retired_files *files = (const struct retired_files *)source;
    return retired_lines_read(files->state, each, context, ret_skipped);
}

static int nothing(json_t *line, void *context)
{
    return -ECANCELED; /* one line is enough to know */
}

int retired_files_exist(const char *state)
{
    size_t skipped;
    int r = retired_lines_read(state, nothing, NULL, &skipped);
    return r == -ECANCELED ? 0 : r;
}
