/* Tenstorrent's allocation messages: bytes, and how long they are. doc/tt-protocol.md tells the same for
 * people. Nothing here knows of sockets.
 *
 * A message has no length, no version and no magic, and clients were built with four sizes of it. The first
 * TT_COMMON bytes are the same in all; what follows is only for answers, so a request can be understood
 * before its size is known. Where the next one begins tells the size: see struct tt_framing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    TT_COMMON = 72, /* bytes that all sizes share */
    TT_SIZES = 4,
    TT_SIZE_MAX = 144,
    TT_HEAD = 24, /* bytes that tell a message from something else: up to the pid */
    TT_DEVICES_MAX = 1024,
};
extern const uint16_t tt_sizes[TT_SIZES]; /* 72, 112, 128, 144 */

enum tt_type {
    TT_ALLOC = 1,
    TT_FREE = 2,
    TT_QUERY = 3,
    TT_RESPONSE = 4,
    TT_DUMP_REMAINING = 5,
    TT_DEVICE_INFO_QUERY = 6,
    TT_DEVICE_INFO_RESPONSE = 7,
    TT_CB_ALLOC = 8,
    TT_CB_FREE = 9,
    TT_KERNEL_LOAD = 10,
    TT_KERNEL_UNLOAD = 11,
    TT_DUMP_KERNELS = 12,
};

enum tt_buffer_type {
    TT_BUFFER_DRAM = 0,
    TT_BUFFER_L1 = 1,
    TT_BUFFER_SYSTEM = 2,
    TT_BUFFER_L1_SMALL = 3,
    TT_BUFFER_TRACE = 4,
    TT_BUFFER_TYPES = 5,
};

enum tt_arch {
    TT_ARCH_UNKNOWN = 0,
    TT_ARCH_GRAYSKULL,
    TT_ARCH_WORMHOLE,
    TT_ARCH_BLACKHOLE,
    TT_ARCH_QUASAR
};

/* In buffer_id of a dump: the client wants the answer. "MEMOIRDP" in the bytes of a little-endian machine. */
#define TT_DUMP_MARK UINT64_C(0x504452494f4d454d)

struct tt_message {
    uint8_t type;
    uint8_t buffer_type;
    int32_t device;
    int32_t pid;
    uint64_t size, buffer_id, timestamp;
};

/* What answers hold besides; each size of message has the part of it that its clients know. */
struct tt_answer {
    struct tt_message head;
    uint64_t dram, l1, l1_small, trace, cb, kernel; /* allocated */
    uint64_t total_dram, total_l1;
    uint32_t arch, dram_channels, dram_per_channel, l1_per_core, available, devices;
    uint32_t ring_total, ring_used, programs;
};

static inline bool tt_is_request(uint8_t type)
{
    return type >= TT_ALLOC && type <= TT_DUMP_KERNELS && type != TT_RESPONSE &&
           type != TT_DEVICE_INFO_RESPONSE;
}

/* Gets an answer or makes a report? */
static inline bool tt_is_question(uint8_t type)
{
    return type == TT_QUERY || type == TT_DUMP_REMAINING || type == TT_DEVICE_INFO_QUERY ||
           type == TT_DUMP_KERNELS;
}

/* A dump that is answered, with many messages. */
static inline bool tt_is_dump(const struct tt_message *m)
{
    return (m->type == TT_DUMP_REMAINING || m->type == TT_DUMP_KERNELS) &&
           m->buffer_id == TT_DUMP_MARK;
}

/* A dump as the original clients send it: it goes to the log, with all devices, and is not answered. */
static inline bool tt_is_log_dump(const struct tt_message *m)
{
    return (m->type == TT_DUMP_REMAINING || m->type == TT_DUMP_KERNELS) &&
           m->buffer_id != TT_DUMP_MARK;
}

/* Where the fields of a request are. The bytes are in the machine's order: both ends are on one machine. */
enum tt_offset {
    TT_AT_TYPE = 0,
    TT_AT_DEVICE = 4,
    TT_AT_SIZE = 8,
    TT_AT_BUFFER_TYPE = 16,
    TT_AT_PID = 20,
    TT_AT_BUFFER_ID = 24,
    TT_AT_TIMESTAMP = 32,
    TT_AT_ALLOCATED = 40, /* dram, l1, l1_small, trace */
};

static inline int32_t tt_load32(const uint8_t *bytes, size_t at)
{
    int32_t value;
    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

static inline uint64_t tt_load64(const uint8_t *bytes, size_t at)
{
    uint64_t value;
    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

/* From TT_COMMON bytes. */
static inline struct tt_message tt_decode(const uint8_t *bytes)
{
    return (struct tt_message){
        .type = bytes[TT_AT_TYPE],
        .device = tt_load32(bytes, TT_AT_DEVICE),
        .size = tt_load64(bytes, TT_AT_SIZE),
        .buffer_type = bytes[TT_AT_BUFFER_TYPE],
        .pid = tt_load32(bytes, TT_AT_PID),
        .buffer_id = tt_load64(bytes, TT_AT_BUFFER_ID),
        .timestamp = tt_load64(bytes, TT_AT_TIMESTAMP),
    };
}

/* `size` bytes, one of tt_sizes. */
void tt_encode(const struct tt_answer *answer, size_t size, uint8_t *ret_bytes);

/* ---- which size? ----
 *
 * The first message of a connection begins at byte 0. For each size that is still possible, the second one
 * begins there: if its bytes cannot be a message, the size is out; if they are one by every sign (type,
 * device, pid), the size is proved, the smallest first. As what lies beyond TT_COMMON is zero in requests,
 * a client with 144 bytes proves it by its first message: zero is no type. Clients with smaller messages
 * prove it by their second one. Until then, when the stream rests at the end of a possible message, the
 * size may be guessed by tt_framing_guess(); what comes later confirms the guess or changes it. */
struct tt_framing {
    uint16_t size; /* 0: not known */
    bool proved;   /* it will not change any more */
    uint8_t out;   /* bit i: tt_sizes[i] is impossible */
    bool pieces;   /* something arrived that ended in the middle of every possible message */
    uint16_t base; /* bytes of the first message that were taken away already, by a guess */
    int32_t pid;   /* of the first message */
};

/* May this pid stand in a message of this client? */
typedef bool tt_pid_fn(void *context, int32_t pid);

/* Look at `n` bytes, the first of which is number `base` of the first message. 0, or -EBADMSG when no size
 * is possible. Afterwards `size` may be set, and proved. Does nothing when it was proved before. */
int tt_framing_look(struct tt_framing *framing, const uint8_t *bytes, size_t n, tt_pid_fn *pid_ok,
                    void *context);

/* The stream rests after `n` more bytes: which size would end exactly here? 0: none. */
uint16_t tt_framing_guess(const struct tt_framing *framing, size_t n);

/* Could `bytes` be the beginning of a request? Looks at as much as there is of TT_HEAD. */
bool tt_plausible(const uint8_t *bytes, size_t n);
