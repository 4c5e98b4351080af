/* descriptor.h: descriptors of ours in a stranger's process, where the numbers of standard streams are his.
 *
 * A program that closed its standard streams may still use them: what some library of his says on standard error must
 * not land in a book, nor his input come from one. And who forks meanwhile would hand them on as such. So none of ours
 * ever has a number from 0 to 2, not even for a moment. */
#pragma once

#include <sys/types.h>

/* As openat(), and close-on-exec: a number above 2, or -errno. */
int book_openat(int directory, const char *path, int flags, mode_t mode);
