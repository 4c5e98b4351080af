/* descriptor.h: descriptors of ours in a stranger's process, where the numbers of standard streams are his.
 *
 * A program that closed its standard streams may still use them: what some library of his says on standard error must
 * not land in a book, nor his input come from one. So while a file is opened, free numbers from 0 to 2 are taken by
 * descriptors that can neither be read nor written, and let go of at once.
 *
 * What other threads do meanwhile cannot be kept out: one that closes a standard stream just then may see its number go to
 * the file for a moment; one that puts a stream of his own there (dup2) between our look at the number and our close() of it
 * loses that stream; and a child that is forked has the taken numbers until it calls exec. */
#pragma once

#include <sys/types.h>

/* As openat(), and close-on-exec: a number above 2, or -errno. No point where a thread may be cancelled. */
int book_openat(int directory, const char *path, int flags, mode_t mode);
