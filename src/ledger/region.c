/* See region.h. Offsets are tt-metal's struct DeviceMemoryRegion on x86-64 and arm64, little endian. */
#include "ledger/region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "base/sum.h"
#include "book/layout.h"

enum {
    AT_VERSION = 0,
    AT_UPDATED = 8,
    AT_ASIC_ID = 32,
    AT_DEVICE_ID = 40,
    AT_TOTALS = 48,
    AT_SLOTS = 856,
    SLOT_BYTES = 120,
    SLOT_COUNTS = 8,
    SLOT_UPDATED = 48,
    SLOT_NAME = 56,
    SLOT_NAME_BYTES = 64,
    AT_INIT_STATE = 8536, /* version 4 */
};
#define INIT_READY UINT32_C(0x52454459)

_Static_assert(AT_SLOTS + REGION_SLOTS * SLOT_BYTES == AT_INIT_STATE, "slots end where v4 goes on");

const uint32_t region_spaces[REGION_SPACES] = {
    MEMOIR_SPACE_DRAM, MEMOIR_SPACE_L1, MEMOIR_SPACE_L1_SMALL, MEMOIR_SPACE_TRACE, MEMOIR_SPACE_CB,
};

static const char prefix[] = "tt_device_", suffix[] = "_memory";

bool region_name_parse(const char *name, uint64_t *ret_asic_id)
{
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
        return false;
    const char *digits = name + sizeof(prefix) - 1;
    uint64_t id = 0;
    size_t n = 0;
    for (; digits[n] >= '0' && digits[n] <= '9'; n++)
        if (__builtin_mul_overflow(id, 10, &id) ||
            __builtin_add_overflow(id, (uint64_t)(digits[n] - '0'), &id))
            return false;
    if (n == 0 || (n > 1 && digits[0] == '0') || strcmp(digits + n, suffix) != 0)
        return false;
    *ret_asic_id = id;
    return true;
}

static uint32_t get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static uint64_t get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

/* The name is what /proc gave, but anybody with the file can put escapes there. */
static void name_copy(char out[SLOT_NAME_BYTES], const uint8_t *from)
{
    const char *text = (const char *)from;
    size_t n = strnlen(text, SLOT_NAME_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?';
    memset(out + n, 0, SLOT_NAME_BYTES - n);
}

/* No device has 2^48 bytes; a counter that ran below zero has more. */
static bool counts_get(const uint8_t *at, uint64_t ret_bytes[REGION_SPACES])
{
    bool sane = true;
    for (size_t i = 0; i < REGION_SPACES; i++) {
        ret_bytes[i] = get_u64(at + 8 * i);
        sane &= ret_bytes[i] <= BOOK_BLOCK_SIZE_MAX;
    }
    return sane;
}

static bool pid_taken(const struct region_view *view, int32_t pid)
{
    for (size_t i = 0; i < view->n; i++)
        if (view->slots[i].pid == pid)
            return true;
    return false;
}

static void slots_parse(const uint8_t *bytes, struct region_view *view)
{
    for (size_t i = 0; i < REGION_SLOTS; i++) {
        const uint8_t *at = bytes + AT_SLOTS + i * SLOT_BYTES;
        struct region_slot slot = {.pid = (int32_t)get_u32(at)};
        if (slot.pid == 0)
            continue;
        /* Two threads of one process that claim a slot at once can get two: they add up. A negative
         * pid is nobody's. */
        if (slot.pid < 0 || !counts_get(at + SLOT_COUNTS, slot.bytes)) {
            view->nonsense++;
            continue;
        }
        slot.updated_ns = get_u64(at + SLOT_UPDATED);
        name_copy(slot.name, at + SLOT_NAME);
        if (!pid_taken(view, slot.pid)) {
            view->slots[view->n++] = slot;
            continue;
        }
        for (size_t k = 0; k < view->n; k++) {
            if (view->slots[k].pid != slot.pid)
                continue;
            for (size_t s = 0; s < REGION_SPACES; s++)
                sum_add(&view->slots[k].bytes[s], slot.bytes[s]);
            if (slot.updated_ns > view->slots[k].updated_ns)
                view->slots[k].updated_ns = slot.updated_ns;
        }
    }
}

int region_parse(const uint8_t *bytes, size_t n, uint64_t asic_id, struct region_view *ret_view)
{
    if (n < AT_UPDATED)
        return n == 0 ? -EAGAIN : -EBADMSG;
    uint32_t version = get_u32(bytes + AT_VERSION);
    if (version == 0)
        return -EAGAIN;
    if (version < REGION_VERSION_MIN || version > REGION_VERSION_MAX)
        return -EPROTONOSUPPORT;
    if (n < REGION_BYTES)
        return -EBADMSG;
    if (version >= 4 && get_u32(bytes + AT_INIT_STATE) != INIT_READY)
        return -EAGAIN;
    struct region_view view = {
        .version = version,
        .device_id = get_u32(bytes + AT_DEVICE_ID),
        .asic_id = get_u64(bytes + AT_ASIC_ID),
        .updated_ns = get_u64(bytes + AT_UPDATED),
    };
    if (view.asic_id != asic_id || view.device_id > INT32_MAX)
        return -EBADMSG;
    (void)counts_get(bytes + AT_TOTALS, view.totals); /* for comparison only */
    slots_parse(bytes, &view);
    *ret_view = view;
    return 0;
}

int region_open(int dirfd, const char *name, struct region_file *ret_file)
{
    MEMOIR_CLEANUP(closep)
    int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ELOOP ? -EPERM : -errno;
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_mode & (S_IWGRP | S_IWOTH))
        return -EPERM;
    *ret_file = (struct region_file){.uid = st.st_uid, .dev = st.st_dev, .ino = st.st_ino};
    return MEMOIR_TAKE_FD(fd);
}

int region_read(int fd, uint64_t asic_id, struct region_view *ret_view)
{
    uint8_t bytes[REGION_BYTES];
    size_t n = 0;
    while (n < sizeof(bytes)) {
        ssize_t got = pread(fd, bytes + n, sizeof(bytes) - n, (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return region_parse(bytes, n, asic_id, ret_view);
}
