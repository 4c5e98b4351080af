/* A profile in a file, with all names, so that it can be looked at later, elsewhere, and beside another.
 *
 * The file is a head of 24 bytes (magic, version, length of what follows when unpacked) and one zlib
 * stream of variable-length integers and strings; doc/sites.md describes it. Such files travel: whatever
 * is in one, reading it fails cleanly or gives a profile that is within the limits of profile.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffer;
struct profile;

#define SNAPSHOT_MAGIC "MEMOIRSN" /* 8 bytes */
enum {
    SNAPSHOT_VERSION = 1,
    SNAPSHOT_HEAD_BYTES = 24,
    SNAPSHOT_FILE_MAX = 256 << 20,
    SNAPSHOT_UNPACKED_MAX = 1 << 30,
};

/* Append the bytes of a file, or only what it holds unpacked. 0 or -errno. */
int snapshot_encode(const struct profile *profile, struct buffer *out);
int snapshot_encode_plain(const struct profile *profile, struct buffer *out);

/* -EBADMSG: makes no sense, or is cut short; -EPROTONOSUPPORT: a later version's; -E2BIG: past a limit;
 * -ENOMEM. */
int snapshot_decode(const void *data, size_t len, struct profile **ret_profile);
int snapshot_decode_plain(const void *data, size_t len, struct profile **ret_profile);

/* The file is there whole or not at all; it is the user's own (mode 0600). Overwrites. */
int snapshot_save(const struct profile *profile, const char *path);

/* The errors above, and those of open(); -EBADMSG also for what is no such file. */
int snapshot_load(const char *path, struct profile **ret_profile);
