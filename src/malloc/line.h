/*
 * line.h: text for people, from inside malloc.
 *
 * Puts words, numbers and places in code together in memory of the caller's and writes them with one system call a line, so that what
 * several processes say does not mix. Neither stdio nor malloc; safe in a signal handler and with any lock held. What does not
 * fit is cut, and the newline is still there. Keeps errno.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { LINE_BYTES = 4096 };

struct line {
    size_t length;
    char text[LINE_BYTES];
};

void line_text(struct line *l, const char *text);
void line_number(struct line *l, uint64_t value);
void line_hex(struct line *l, uint64_t value);
/* A return address, as MODULE+0xOFFSET of the call before it, which is what addr2line takes: `addr2line -e MODULE 0xOFFSET`. */
void line_code(struct line *l, uintptr_t pc);
/* Up to n return addresses, each in a line of its own. */
void line_stack(struct line *l, const uintptr_t *pcs, size_t n);

/* Write what is there and begin anew. */
void line_write(struct line *l, int fd);
