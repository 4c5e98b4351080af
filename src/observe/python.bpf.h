/* python.bpf.h: the Python calls of the current thread, walked in the kernel.
 *
 * For programs that run in the context of the thread (uprobes). Include it after bpf_helpers.h
 * and bpf_core_read.h. Everything is read by bpf_probe_read_user(), which fails where memory is
 * absent and waits for nothing. No loop depends on what is read. The thread's state is found by
 * its own key, as site/python_stack.c does, and believed only if it says that it belongs to this
 * thread.
 *
 * About 0.3 us, and 0.08 us a call. Stack: less than 100 bytes. The verifier sees about 35,000
 * instructions: positions are kept in the maps, where it takes them for any number, so that ways
 * through the loop's body meet again. */
#pragma once

#include "observe/python_capture.h"

/* As site/python_layout.h has them. */
enum {
    PYTHON_BPF_LINK_ORDER = 0,
    PYTHON_BPF_LINK_RECORD = 1,
    PYTHON_BPF_LINK_FLAG = 2,
    PYTHON_BPF_LINK_SHIM = 3,
    PYTHON_BPF_FRAME_NEW = 72,  /* bytes of a frame that are read, from 3.11 on */
    PYTHON_BPF_FRAME_OLD = 112, /* and before */
};

struct thread_struct___python {
    unsigned long fsbase;
} __attribute__((preserve_access_index));

struct task_struct___python {
    struct thread_struct___python thread;
} __attribute__((preserve_access_index));

/* The thread pointer of the current thread: the address of its descriptor, which is
 * pthread_self(). */
static __attribute__((always_inline)) inline uint64_t python_thread_pointer(void)
{
    struct task_struct___python *task = (void *)bpf_get_current_task();
    return BPF_CORE_READ(task, thread.fsbase);
}

static __attribute__((always_inline)) inline uint64_t python_read(uint64_t address)
{
    uint64_t value = 0;
    bpf_probe_read_user(&value, sizeof(value), (const void *)address);
    return value;
}

/* The PyThreadState of the current thread; 0 if it has none that may be read. */
static __attribute__((always_inline)) inline uint64_t python_state(
    const struct python_kernel_facts *facts)
{
    uint64_t thread = python_thread_pointer(), word = python_read(facts->key_at);
    uint32_t key = word >> 32, per_block = facts->block_keys;
    if (!thread || (uint32_t)word != 1 || !per_block || key >= 1024)
        return 0;
    uint64_t block = python_read(thread + facts->specific + (uint64_t)(key / per_block) * 8);
    if (!block)
        return 0;
    uint64_t state =
        python_read(block + (uint64_t)(key % per_block) * facts->key_bytes + facts->key_data);
    if (!state || python_read(state + facts->thread_id) != thread)
        return 0;
    /* While another thread finalizes the interpreter, states are freed. */
    uint64_t finalizing = python_read(facts->finalizing);
    return finalizing == 0 || finalizing == state ? state : 0;
}

static __attribute__((always_inline)) inline void python_push(struct python_capture *capture,
                                                              uint64_t code, uint64_t at,
                                                              uint64_t check)
{
    uint32_t n = *(volatile uint32_t *)&capture->n;
    if (n >= PYTHON_CAPTURE_ENTRIES)
        return;
    capture->entries[n].code = code;
    capture->entries[n].at = at;
    capture->entries[n].check = check;
    uint64_t hash = capture->hash ^ code ^ check;
    hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9ull + at;
    hash = (hash ^ hash >> 29) * 0x94d049bb133111ebull;
    capture->hash = hash;
    *(volatile uint32_t *)&capture->n = n + 1;
}

static __attribute__((always_inline)) inline uint64_t python_word(
    const struct python_scratch *scratch, uint16_t offset)
{
    return scratch->block[offset / 8 & 15];
}

static __attribute__((always_inline)) inline uint8_t python_byte(
    const struct python_scratch *scratch, uint16_t offset)
{
    return python_word(scratch, offset) >> (offset & 7) * 8;
}

static __attribute__((always_inline)) inline uint64_t python_check(struct python_scratch *scratch,
                                                                   uint64_t code)
{
    if (bpf_probe_read_user(scratch->block, PYTHON_CODE_CHECK_WORDS * sizeof(uint64_t),
                            (const void *)(code + PYTHON_CODE_CHECK_AT)))
        return 0;
    return python_code_check(scratch->block);
}

/* One frame. False: it was the last. */
static __attribute__((always_inline)) inline bool python_step(
    const struct python_kernel_facts *facts, struct python_capture *capture,
    struct python_scratch *scratch)
{
    uint64_t frame = *(volatile uint64_t *)&scratch->frame;
    uint8_t link = *(volatile uint8_t *)&facts->link;
    if (frame == 0)
        return false;
    /* The end of a run needs one more place than the call. */
    if (*(volatile uint32_t *)&capture->n + 2 > PYTHON_CAPTURE_ENTRIES) {
        capture->flags |= PYTHON_CAPTURE_CUT;
        if (link != PYTHON_BPF_LINK_ORDER)
            python_push(capture, 0, link == PYTHON_BPF_LINK_SHIM ? 0 : scratch->record, 0);
        return false;
    }
    long error;
    if (link >= PYTHON_BPF_LINK_FLAG)
        error = bpf_probe_read_user(scratch->block, PYTHON_BPF_FRAME_NEW, (const void *)frame);
    else
        error = bpf_probe_read_user(scratch->block, PYTHON_BPF_FRAME_OLD, (const void *)frame);
    if (error) {
        capture->flags |= PYTHON_CAPTURE_BROKEN;
        return false;
    }
    uint64_t code = python_word(scratch, facts->frame_code);
    uint64_t instr = python_word(scratch, facts->frame_instr);
    *(volatile uint64_t *)&scratch->frame = python_word(scratch, facts->frame_previous);
    if (link == PYTHON_BPF_LINK_SHIM &&
        python_byte(scratch, facts->frame_owner) == facts->owner_c_stack) {
        python_push(capture, 0, frame, 0);
        return true;
    }
    if (link < PYTHON_BPF_LINK_FLAG) /* a number of 32 bits */
        instr &= 0xffffffff;
    bool ends = link == PYTHON_BPF_LINK_RECORD ||
                (link == PYTHON_BPF_LINK_FLAG && python_byte(scratch, facts->frame_flag));
    if (code) /* the frame is not needed any more */
        python_push(capture, code, instr, python_check(scratch, code));
    if (ends) {
        uint64_t record = *(volatile uint64_t *)&scratch->record;
        python_push(capture, 0, record, 0);
        *(volatile uint64_t *)&scratch->record =
            record ? python_read(record + facts->record_previous) : 0;
    }
    return true;
}

/* Capture the calls of the current thread. `capture` and `scratch` are map values of the
 * caller's; of the capture only the first 16 + 24 * n bytes matter. Returns capture->hash: 0 if
 * the thread runs no Python code. A function of its own for the verifier, so that several places
 * may call it. */
static __attribute__((noinline)) uint64_t python_capture_take(
    const struct python_kernel_facts *facts, struct python_capture *capture,
    struct python_scratch *scratch)
{
    if (!facts || !capture || !scratch)
        return 0;
    capture->hash = 0;
    capture->n = 0;
    capture->flags = 0;
    uint64_t state = facts->version ? python_state(facts) : 0;
    if (!state)
        return 0;
    uint64_t record = 0, frame;
    if (facts->thread_record)
        record = python_read(state + facts->thread_record);
    if (facts->thread_record && facts->link >= PYTHON_BPF_LINK_FLAG)
        frame = record ? python_read(record + facts->record_frame) : 0;
    else
        frame = python_read(state + facts->thread_frame);
    *(volatile uint64_t *)&scratch->frame = frame;
    *(volatile uint64_t *)&scratch->record = record;
    for (int i = 0; i < PYTHON_CAPTURE_ENTRIES; i++)
        if (!python_step(facts, capture, scratch))
            break;
    if (*(volatile uint32_t *)&capture->n && !capture->hash)
        capture->hash = 1;
    return capture->hash;
}
