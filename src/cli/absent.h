/*
 * absent.h: what the commands say of what is not there, in the same words everywhere.
 */
#ifndef MEMOIR_CLI_ABSENT_H
#define MEMOIR_CLI_ABSENT_H

#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct ledger;
struct term;

/* "no process has told of device 9; there are: 0 Card-A, 1 Card-B" on stderr, and true, when no device
 * answers to `device` (its number, uid, bus address or name). `host` says whether the host's memory counts as one. */
bool absent_device(const struct ledger *ledger, const char *device, bool host);

/* On stderr, where a machine is empty: `what` ("No process keeps a book yet."), what to try to see
 * `command` ("ps") show something in this directory (NULL: the usual places), and who may see more. */
void absent_books(const char *what, const char *command, const char *dir);

/* Why nothing is known of a process. */
enum absent_why {
    ABSENT_GONE,      /* there is no such process */
    ABSENT_FORBIDDEN, /* it is another user's, and we are not root */
    ABSENT_NO_BOOK,   /* it runs, and keeps no book */
};
enum absent_why absent_why(uint64_t pid);

/* "process 4242 is ann's: not permitted (only ann and root may see its memory)", or that there is no such process, or
 * that it keeps no book, followed by `no_book`, on stderr. Returns COMMAND_NOTHING. */
int absent_process(uint64_t pid, const char *no_book);

/* " --dir DIR", as a shell takes it and free of control characters; nothing without one. */
void absent_dir(const char *dir, const struct term *term, struct buffer *out);

#endif
