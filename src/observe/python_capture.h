/* python_capture.h: what the kernel needs to walk CPython's frames of the current thread, and what it captured.
 *
 * Shared by the BPF program (python.bpf.h) and the code outside (python_remote.h): fixed-width fields only, no includes
 * besides the types. A capture lists entries innermost first. An entry with a code object is a Python call. An entry without
 * one ends a run of the evaluation loop: its `at` is an address in the C frame of that run (python.h: struct python_run). */
#pragma once

#ifndef __bpf__
#include <assert.h>
#include <stdint.h>
#endif

enum {
    PYTHON_CAPTURE_ENTRIES = 48, /* calls and ends of runs together */
};

enum python_capture_flags {
    PYTHON_CAPTURE_CUT = 1u << 0, /* there are more calls than fit */
    /* A frame could not be read. What was captured until then holds. */
    PYTHON_CAPTURE_BROKEN = 1u << 1,
};

struct python_capture_entry {
    uint64_t code; /* address of the code object; 0: the end of a run */
    /* The call's instruction as the frame has it: an address; up to 3.10 a number. Or an address in the C frame of the run, 0 if
     * that is not known. */
    uint64_t at;
    uint64_t
        check; /* python_code_check() of the code object at that moment; 0: it could not be read */
};

struct python_capture {
    uint64_t hash; /* of the entries; 0: the thread runs no Python code, and there are none */
    uint32_t n;
    uint32_t flags; /* enum python_capture_flags */
    struct python_capture_entry entries[PYTHON_CAPTURE_ENTRIES];
};

/* Bytes of a code object that tell it from another one at the same address. They hold the first line, or what comes before it, the
 * addresses of the names, and from 3.12 on the number of the object. In no version does any of them change. */
enum { PYTHON_CODE_CHECK_AT = 56, PYTHON_CODE_CHECK_WORDS = 9 };

static inline __attribute__((always_inline)) uint64_t python_code_check(const uint64_t *words)
{
    uint64_t check = 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < PYTHON_CODE_CHECK_WORDS; i++) {
        check = (check ^ words[i]) * 0xbf58476d1ce4e5b9ull;
        check ^= check >> 32;
    }
    return check | 1;
}

/* Memory for the walk itself: in a map, too. */
struct python_scratch {
    uint64_t block[16]; /* the front of a frame */
    uint64_t frame, record;
};

/* Where the frames of a process are: one per process, in a map by tgid. Addresses of the process, then offsets in bytes. */
struct python_kernel_facts {
    uint64_t runtime;    /* _PyRuntime */
    uint64_t key_at;     /* the Py_tss_t in it: a word that is 1 if there is a key, then the key */
    uint64_t finalizing; /* address of the pointer to the thread that finalizes the interpreter */
    /* In a thread's descriptor, to which the thread pointer points: pthread's array of pointers to blocks of keys. */
    uint32_t specific;
    uint32_t key_bytes;  /* size of one entry of a block */
    uint32_t key_data;   /* the value in such an entry */
    uint32_t block_keys; /* entries in a block */
    uint32_t spare_word;
    uint16_t version; /* 0x030b; 0: no facts */
    uint8_t link;     /* enum python_link of site/python_layout.h */
    uint8_t owner_c_stack;
    uint16_t thread_record, thread_frame, thread_id;
    uint16_t record_frame, record_previous;
    uint16_t frame_code, frame_previous, frame_instr, frame_owner, frame_flag;
    uint16_t spare[2];
};

#ifndef __bpf__
static_assert(sizeof(struct python_kernel_facts) == 72, "shared with the kernel");
static_assert(sizeof(struct python_capture_entry) == 24, "shared with the kernel");
static_assert(sizeof(struct python_capture) == 16 + 24 * PYTHON_CAPTURE_ENTRIES,
              "shared with the kernel");
#endif
