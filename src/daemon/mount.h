/* /run/memoir: a tmpfs of its own for the books, so that the books of one user cannot fill the memory of another. */
#pragma once

#include <stdint.h>

/* As root, make sure that `path` is a tmpfs in which every user can have a directory (mode 1777), and
 * mount one if it is not. Where the kernel can (6.6), each user may have `user_size` of it and a quarter
 * of its inodes. 0; or -errno after one line that says where books go instead. */
int mount_books(const char *path, uint64_t size, uint64_t inodes, uint64_t user_size);
