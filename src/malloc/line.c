/* line.c: see line.h. */
#include "malloc/line.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "site/module.h"

static void put(struct line *l, const char *text, size_t length)
{
    size_t room = sizeof(l->text) - 1 - l->length;
    length = length < room ? length : room;
    memcpy(l->text + l->length, text, length);
    l->length += length;
}

void line_text(struct line *l, const char *text)
{
    put(l, text, strlen(text));
}

void line_number(struct line *l, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    put(l, digits + at, sizeof(digits) - at);
}

void line_hex(struct line *l, uint64_t value)
{
    char digits[16];
    size_t at = sizeof(digits);
    do
        digits[--at] = "0123456789abcdef"[value % 16];
    while ((value /= 16) != 0);
    put(l, "0x", 2);
    put(l, digits + at, sizeof(digits) - at);
}

/* The main program has no name in the loader's list. */
static void put_program(struct line *l)
{
    char path[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    if (n > 0)
        put(l, path, (size_t)n);
    else
        line_text(l, "program");
}

void line_code(struct line *l, uintptr_t pc)
{
    struct module_info module;
    int saved = errno;
    if (pc == 0) {
        line_text(l, "unknown");
    } else if (module_find(pc - 1, &module) == 0) {
        if (module.path[0])
            line_text(l, module.path);
        else
            put_program(l);
        line_text(l, "+");
        line_hex(l, module_offset(&module, pc - 1));
    } else {
        line_hex(l, pc - 1);
    }
    errno = saved;
}

void line_stack(struct line *l, const uintptr_t *pcs, size_t n)
{
    if (n == 0)
        line_text(l, "    (not known)\n");
    for (size_t i = 0; i < n; i++) {
        line_text(l, "    ");
        line_code(l, pcs[i]);
        line_text(l, "\n");
    }
}

void line_write(struct line *l, int fd)
{
    int saved = errno;
    if (l->length > 0 && l->text[l->length - 1] != '\n')
        l->text[l->length++] = '\n'; /* put() leaves room for it */
    for (size_t done = 0; done < l->length;) {
        ssize_t n = write(fd, l->text + done, l->length - done);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            break;
    }
    l->length = 0;
    errno = saved;
}
