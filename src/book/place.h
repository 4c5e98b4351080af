/*
 * place.h: where this process may put its book.
 *
 * In order: $MEMOIR_DIR/UID if that variable is set (and then nowhere else), /run/memoir/UID where
 * a daemon has mounted its tmpfs, $XDG_RUNTIME_DIR/memoir, /dev/shm/memoir-UID. The directory is
 * made with mode 0700 if need be, and used only if it belongs to our effective user, nobody else
 * can write to it, and it lies on a tmpfs: a book on a disk would make every store a write.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { BOOK_PLACE_CANDIDATES = 3 };

/* A process that is asked to keep its book (writer.h) makes it of an empty file that whoever started the process has made and holds open: one of those
 * that are called 0, 1 ... in the subdirectory of the place that this variable names. It gets the name of a book, so each serves one image of the
 * process. The subdirectory's name begins with the prefix. */
enum { BOOK_KEEP_FILES = 16 };
#define BOOK_KEEP_IN     "MEMOIR_KEEP_IN"
#define BOOK_KEEP_PREFIX ".run-"

/* Keep what MEMOIR_DIR says now for when the program has thrown its environment away, as servers do in their workers. */
void book_place_remember(void);

/* Open candidate number `which`; its descriptor (close it) with the path in `path`, or -errno:
 * -ENOENT where there is no such candidate, -EPERM where the directory is another user's,
 * -EMEDIUMTYPE where it is not a tmpfs. */
int book_place_open(unsigned which, char *path, size_t path_size);

/* For daemons: the directory for books on behalf of user `uid`. ROOT/UID where `root` is given; else as root /dev/shm/memoir-UID,
 * made for that user, and as anybody else the first of the places above. A directory that belongs to neither is refused
 * (-EPERM), and nothing in it is followed. A descriptor, with the path in `path`, or -errno. In place_for.c. */
int book_place_open_for(const char *root, uint32_t uid, char *path, size_t path_size);
