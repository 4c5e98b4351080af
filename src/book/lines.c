/* lines.c: see lines.h. System calls are made by hand, because open() and read() are points where a
 * thread may be cancelled, and malloc() is none. */
#include "book/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "book/descriptor.h"
#include "book/text.h"

static int next_byte(struct lines *lines)
{
    if (lines->at == lines->n) {
        if (lines->fd < 0 || lines->read >= LINES_TEXT_MAX)
            return -1;
        long n = syscall(SYS_read, lines->fd, lines->chunk, sizeof(lines->chunk));
        if (n <= 0 || (size_t)n > sizeof(lines->chunk))
            return -1;
        lines->data = lines->chunk;
        lines->at = 0;
        lines->n = (size_t)n;
        lines->read += (size_t)n;
    }
    return (unsigned char)lines->data[lines->at++];
}

bool lines_next(struct lines *lines, char *line, size_t size, bool *ret_cut)
{
    size_t len = 0;
    int c = next_byte(lines);
    if (c < 0)
        return false;
    *ret_cut = false;
    for (; c >= 0 && c != '\n'; c = next_byte(lines)) {
        if (c == 0)
            c = '?'; /* a string's end would hide the rest */
        if (len + 1 < size)
            line[len++] = (char)c;
        else
            *ret_cut = true;
    }
    line[len] = '\0';
    return true;
}

bool lines_number(const char *at, uint64_t *ret, const char **ret_end)
{
    uint64_t value = 0;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            value = UINT64_MAX;
    *ret = value;
    if (ret_end)
        *ret_end = at;
    return true;
}

const char *lines_after(const char *line, const char *word)
{
    size_t len = strlen(word);
    return strncmp(line, word, len) == 0 ? line + len : NULL;
}

int lines_open_at(struct lines *lines, int dir_fd, const char *path)
{
    lines->at = lines->n = lines->read = 0;
    lines->data = lines->chunk;
    lines->fd = book_openat(dir_fd, path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
    return lines->fd >= 0 ? 0 : lines->fd;
}

__attribute__((noinline)) int lines_open(struct lines *lines, const char *folder, const char *name)
{
    char path[LINES_PATH_MAX + 128];
    struct text whole = text_begin(path, sizeof(path));
    text_add(&whole, folder);
    text_add(&whole, "/");
    text_add(&whole, name);
    return whole.cut ? -ENAMETOOLONG : lines_open_at(lines, AT_FDCWD, path);
}

void lines_close(struct lines *lines)
{
    (void)syscall(SYS_close, lines->fd);
}

static int number_take(const char *at, uint64_t *ret)
{
    const char *end;
    uint64_t number = UINT64_MAX;
    if (strcmp(at, "max") != 0 && (!lines_number(at, &number, &end) || *end))
        return -EBADMSG;
    *ret = number;
    return 0;
}

/* True if the line holds the value. */
static bool value_take(const char *line, struct lines_value *value)
{
    const char *at = value->key ? lines_after(line, value->key) : line;
    if (!at || (value->key && *at++ != ' '))
        return false;
    value->error = number_take(at, &value->number);
    return true;
}

/* Apart from its callers: its buffers need not be on the stack together with others. */
__attribute__((noinline)) void lines_read_numbers(int dir_fd, const char *path,
                                                  struct lines_value *values, size_t n)
{
    struct lines lines;
    char line[LINES_LINE_MAX];
    bool cut;
    size_t missing = n;
    int r = lines_open_at(&lines, dir_fd, path);
    for (size_t i = 0; i < n; i++)
        values[i].error = r < 0 ? r : -ENOENT;
    if (r < 0)
        return;
    while (missing > 0 && lines_next(&lines, line, sizeof(line), &cut))
        for (size_t i = 0; i < n; i++)
            if (values[i].error == -ENOENT && value_take(line, &values[i])) {
                missing--;
                break;
            }
    lines_close(&lines);
}
