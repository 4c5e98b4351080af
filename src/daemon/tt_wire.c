/* Bytes of Tenstorrent's allocation messages. See tt_wire.h. */
#include "daemon/tt_wire.h"

#include <errno.h>
#include <string.h>

const uint16_t tt_sizes[TT_SIZES] = {72, 112, 128, 144};

#define STORE(bytes, offset, value)                          \
    do {                                                     \
        __typeof__(value) value_ = (value);                  \
        memcpy((bytes) + (offset), &value_, sizeof(value_)); \
    } while (0)

/* 40 bytes: what the original calls device info. */
static void encode_info(const struct tt_answer *a, uint8_t *bytes)
{
    STORE(bytes, 0, a->total_dram);
    STORE(bytes, 8, a->total_l1);
    STORE(bytes, 16, a->arch);
    STORE(bytes, 20, a->dram_channels);
    STORE(bytes, 24, a->dram_per_channel);
    STORE(bytes, 28, a->l1_per_core);
    STORE(bytes, 32, a->available);
    STORE(bytes, 36, a->devices);
}

void tt_encode(const struct tt_answer *a, size_t size, uint8_t *bytes)
{
    memset(bytes, 0, size);
    bytes[TT_AT_TYPE] = a->head.type;
    bytes[TT_AT_BUFFER_TYPE] = a->head.buffer_type;
    STORE(bytes, TT_AT_DEVICE, a->head.device);
    STORE(bytes, TT_AT_SIZE, a->head.size);
    STORE(bytes, TT_AT_PID, a->head.pid);
    STORE(bytes, TT_AT_BUFFER_ID, a->head.buffer_id);
    STORE(bytes, TT_AT_TIMESTAMP, a->head.timestamp);
    STORE(bytes, TT_AT_ALLOCATED, a->dram);
    STORE(bytes, TT_AT_ALLOCATED + 8, a->l1);
    STORE(bytes, TT_AT_ALLOCATED + 16, a->l1_small);
    STORE(bytes, TT_AT_ALLOCATED + 24, a->trace);
    if (size == 112) /* before circular buffers and kernels were counted */
        encode_info(a, bytes + 72);
    if (size < 128)
        return;
    STORE(bytes, 72, a->cb);
    STORE(bytes, 80, a->kernel);
    encode_info(a, bytes + 88);
    if (size < 144)
        return;
    STORE(bytes, 128, a->ring_total);
    STORE(bytes, 132, a->ring_used);
    STORE(bytes, 136, a->programs);
}

/* ---- which size? ---- */

bool tt_plausible(const uint8_t *bytes, size_t n)
{
    if (n > TT_AT_TYPE && !tt_is_request(bytes[TT_AT_TYPE]))
        return false;
    if (n >= TT_AT_DEVICE + 4) {
        int32_t device = tt_load32(bytes, TT_AT_DEVICE);
        if (device < -1 || device >= TT_DEVICES_MAX)
            return false;
    }
    return n <= TT_AT_BUFFER_TYPE || bytes[TT_AT_TYPE] != TT_ALLOC || bytes[TT_AT_BUFFER_TYPE] < 16;
}

enum verdict { VERDICT_OPEN, VERDICT_OUT, VERDICT_PROVED };

static enum verdict second_look(const struct tt_framing *f, const uint8_t *bytes, size_t n,
                                tt_pid_fn *pid_ok, void *context)
{
    if (!tt_plausible(bytes, n))
        return VERDICT_OUT;
    if (n < TT_HEAD)
        return VERDICT_OPEN;
    int32_t pid = tt_load32(bytes, TT_AT_PID);
    /* A pid of 0 is the sender's. The figures of an answer that a client sends back could look like such a
     * message, but their padding behind the type is not zero. */
    bool of_sender = pid == 0 && !bytes[1] && !bytes[2] && !bytes[3];
    bool known = of_sender || (pid > 0 && (pid == f->pid || pid_ok(context, pid)));
    return known ? VERDICT_PROVED : VERDICT_OUT;
}

int tt_framing_look(struct tt_framing *f, const uint8_t *bytes, size_t n, tt_pid_fn *pid_ok,
                    void *context)
{
    if (f->proved)
        return 0;
    if (f->base == 0) {
        if (!tt_plausible(bytes, n))
            return -EBADMSG;
        if (n >= TT_HEAD)
            f->pid = tt_load32(bytes, TT_AT_PID);
    }
    int left = 0, last = 0;
    for (int i = 0; i < TT_SIZES; i++) {
        enum verdict verdict = VERDICT_OPEN;
        if (f->out >> i & 1)
            continue;
        if (tt_sizes[i] < f->base)
            verdict = VERDICT_OUT; /* would have been seen before */
        else if (tt_sizes[i] - f->base < (int)n)
            verdict = second_look(f, bytes + (tt_sizes[i] - f->base),
                                  n - (size_t)(tt_sizes[i] - f->base), pid_ok, context);
        if (verdict == VERDICT_PROVED) {
            f->size = tt_sizes[i];
            f->proved = true;
            return 0;
        }
        if (verdict == VERDICT_OUT) {
            f->out |= (uint8_t)(1u << i);
            continue;
        }
        left++;
        last = i;
    }
    if (left == 0)
        return -EBADMSG;
    if (left == 1) {
        f->size = tt_sizes[last];
        f->proved = true;
    } else if (n > 0 && tt_framing_guess(f, n) == 0) {
        f->pieces = true;
    }
    return 0;
}

uint16_t tt_framing_guess(const struct tt_framing *f, size_t n)
{
    for (int i = 0; i < TT_SIZES; i++)
        if (!(f->out >> i & 1) && f->base + n == tt_sizes[i])
            return tt_sizes[i];
    return 0;
}
