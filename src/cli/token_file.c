/* The file of tokens. See token_file.h. */
#include "cli/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"

static int lock_directory(const char *path)
{
    MEMOIR_CLEANUP(freep)
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    MEMOIR_CLEANUP(closep)
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return -errno;
    return MEMOIR_TAKE_FD(fd);
}

static int tokens_parse(struct token_file *file)
{
    MEMOIR_CLEANUP(freep)
    char *copy = strdup(file->text);
    if (!copy)
        return -ENOMEM;
    for (char *rest = copy; rest && *rest && file->n < TOKENS_MAX;) {
        struct token_line token;
        if (token_line_parse(strsep(&rest, "\n"), &token) <= 0)
            continue; /* memoird says what it leaves out */
        struct token_line *more = realloc(file->tokens, (file->n + 1) * sizeof(*more));
        if (!more)
            return -ENOMEM;
        file->tokens = more;
        more[file->n++] = token;
    }
    return 0;
}

int token_file_open(const char *path, struct token_file *ret_file)
{
    struct token_file file = {.lock_fd = -1};
    struct buffer text = BUFFER_INIT(TOKEN_FILE_MAX);
    file.lock_fd = lock_directory(path);
    int r = file.lock_fd < 0 ? file.lock_fd : 0;
    if (r >= 0)
        r = fs_read_file(path, &text);
    if (r == -ENOENT && file.lock_fd >= 0)
        r = 0;
    if (r >= 0) {
        file.path = strdup(path);
        file.text = strdup(buffer_string(&text));
        r = file.path && file.text ? tokens_parse(&file) : -ENOMEM;
    }
    buffer_release(&text);
    if (r < 0)
        token_file_close(&file);
    else
        *ret_file = file;
    return r;
}

void token_file_close(struct token_file *file)
{
    if (file->lock_fd >= 0)
        close(file->lock_fd);
    free(file->path);
    free(file->text);
    free(file->tokens);
    *file = (struct token_file){.lock_fd = -1};
}

int token_file_find(const struct token_file *file, const char *name)
{
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->tokens[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int write_out(const struct token_file *file, struct buffer *out)
{
    return out->error ? out->error
                      : fs_write_file_atomic(file->path, buffer_string(out), out->len, 0600);
}

int token_file_add(struct token_file *file, const struct token_line *token)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TOKEN_FILE_MAX);
    size_t len = strlen(file->text);
    if (file->n >= TOKENS_MAX)
        return -E2BIG;
    buffer_append(&out, file->text, len);
    if (len > 0 && file->text[len - 1] != '\n')
        buffer_append_char(&out, '\n');
    token_line_write(token, &out);
    return write_out(file, &out);
}

/* Is this the line of that token? */
static bool line_has(const char *line, size_t len, const char *name)
{
    char copy[512];
    struct token_line token;
    if (len >= sizeof(copy))
        return false;
    memcpy(copy, line, len);
    copy[len] = '\0';
    return token_line_parse(copy, &token) > 0 && strcmp(token.name, name) == 0;
}

int token_file_remove(struct token_file *file, const char *name)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TOKEN_FILE_MAX);
    for (const char *line = file->text; *line;) {
        size_t len = strcspn(line, "\n");
        if (!line_has(line, len, name)) {
            buffer_append(&out, line, len);
            buffer_append_char(&out, '\n');
        }
        line += len + (line[len] == '\n');
    }
    return write_out(file, &out);
}
