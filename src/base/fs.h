/* Files, the few operations that all of our programs need. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct buffer;

/* Append a whole file to `out`. Works for /proc and /sys, whose sizes are not known before. -EFBIG when
 * it holds more than the buffer's limit allows, else -errno; on failure `out` keeps what it had. */
int fs_read_file(const char *path, struct buffer *out);
int fs_read_file_at(int dir_fd, const char *path, struct buffer *out);
int fs_read_fd(int fd, struct buffer *out);

/* Write all of it, however many calls that takes. */
int fs_write_all(int fd, const char *data, size_t len);

/* Readers of `path` see the old content or the new, never a part, also after a crash: a new file is
 * written beside it, flushed and renamed. `mode` is exact, the umask plays no part. On failure (-errno)
 * the old file is untouched and nothing is left behind. What is no file but a device or a pipe (/dev/null,
 * /dev/stdout) is written to: a rename would put a file in its place. */
int fs_write_file_atomic(const char *path, const void *data, size_t len, mode_t mode);

/* mkdir -p: what is missing is made with `mode` (as far as the umask allows), what exists stays as it
 * is. -ENOTDIR when something else is in the way. */
int fs_mkdir_all(const char *path, mode_t mode);

/* Is the device a file system in memory, as a table of mounts tells: `mountinfo`, from `dir_fd` on? No file system is asked itself: one
 * of a user's (FUSE) or of a network may never answer. A table is read up to FS_MOUNTS_MAX lines. */
enum { FS_MOUNTS_MAX = 4096 };
bool fs_device_is_memory(int dir_fd, const char *mountinfo, unsigned dev_major, unsigned dev_minor);

/* 1 when the file lives in memory (tmpfs, ramfs), 0 when not, or -errno. */
int fs_is_tmpfs(int fd);
