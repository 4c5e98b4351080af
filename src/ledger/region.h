/* A memory region of tt-metal: one file a device in /dev/shm, in which its programs count what they hold.
 *
 * tt-metal's own tracker keeps it ("tt_device_<asic id>_memory", mode 0600, layout versions 3 and 4) with
 * a slot for each process. The bytes are a stranger's, and are changed while we read: they are copied by
 * pread(), never mapped, and every value is checked before it is believed. doc/tt-metal.md has the
 * layout. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REGION_BYTES = 8576, /* of versions 3 and 4 */
    REGION_SLOTS = 64,
    REGION_SPACES = 5,
    REGION_VERSION_MIN = 3,
    REGION_VERSION_MAX = 4,
};

/* How every source calls these devices: one that knows no asic id (a preload, a socket) means the same one
 * by kind, number and this name. */
#define REGION_DEVICE_NAME "Tenstorrent"

/* What a slot and the totals count, in the order of the file: enum memoir_space. */
extern const uint32_t region_spaces[REGION_SPACES];

struct region_slot {
    int32_t pid;                   /* in the pid namespace of who wrote it */
    uint64_t bytes[REGION_SPACES]; /* live */
    uint64_t updated_ns;           /* CLOCK_REALTIME of its last change */
    char name[64];                 /* of the process; checked, terminated, printable */
};

struct region_view {
    uint32_t version;
    uint32_t device_id; /* the number that tt-metal gives the device */
    uint64_t asic_id;   /* what makes it the same device in every process */
    uint64_t updated_ns;
    uint64_t totals[REGION_SPACES]; /* as the region itself adds up; updates get lost in them */
    uint32_t nonsense;              /* slots whose values cannot be */
    size_t n;
    struct region_slot slots[REGION_SLOTS]; /* those in use */
};

/* The asic id in a file's name; false if it is no region's name. */
bool region_name_parse(const char *name, uint64_t *ret_asic_id);

/* From the bytes of a file called by `asic_id`. -EAGAIN: still being made. -EPROTONOSUPPORT: another
 * version. -EBADMSG: cut short, or not of this device. */
int region_parse(const uint8_t *bytes, size_t n, uint64_t asic_id, struct region_view *ret_view);

/* Open NAME in `dirfd` for reading: a regular file with one name and no link, which nobody but its owner
 * can write. -EPERM otherwise. The descriptor, and the owner, device and inode. */
struct region_file {
    uint32_t uid;
    uint64_t dev, ino;
};
int region_open(int dirfd, const char *name, struct region_file *ret_file);

/* Copy and parse. -EBADMSG also for a file that was cut short while it was read. */
int region_read(int fd, uint64_t asic_id, struct region_view *ret_view);
