/* Where CPython keeps what a stack of Python calls is made of, version by version.
 *
 * None of it is promised by CPython; each minor version settles it for all of its patch releases. The
 * offsets are those of the headers that come with the versions (64-bit, not free-threaded), checked by a
 * test against every set of headers that is installed. A version that is not in the table has no Python
 * frames: nothing here is ever guessed.
 *
 * How a version links its frames to the C stack:
 *  - up to 3.9 every Python call is a call of the evaluation loop, and frames are objects: a frame and a
 *    C frame of the loop correspond by their order alone;
 *  - 3.10 threads a record through the C stack, one for each call of the loop, and so do 3.11 and 3.12;
 *    its address tells in which C frame it lies;
 *  - from 3.11 on one call of the loop runs many Python calls. In 3.11 a flag marks the outermost of them;
 *    from 3.12 on there is a frame more, which lies in the C frame of the loop and runs nothing. */
#pragma once

#include <stdint.h>

enum python_link {
    PYTHON_LINK_ORDER,  /* frame objects, one for each call of the loop */
    PYTHON_LINK_RECORD, /* the same, and a record on the C stack for each */
    PYTHON_LINK_FLAG,   /* records, and a flag in the outermost frame of each */
    PYTHON_LINK_SHIM,   /* the outermost frame of each call of the loop is on the C stack */
};

enum python_lines {
    PYTHON_LINES_PAIRS,     /* co_lnotab: 3.8, 3.9 */
    PYTHON_LINES_RANGES,    /* co_linetable of 3.10 */
    PYTHON_LINES_LOCATIONS, /* co_linetable from 3.11 on */
};

/* Offsets in bytes; 0 for what a version does not have (nothing wanted lies at 0 but frame_code). */
struct python_layout {
    uint16_t version; /* 0x030b */
    uint8_t link;     /* enum python_link */
    uint8_t lines;    /* enum python_lines */
    /* _PyRuntime: its size where that is the only mark of the version, and who finalizes. */
    uint16_t runtime_bytes;
    uint16_t runtime_finalizing;
    /* PyThreadState: the record or the frame to begin with, its thread, where frames are stacked. */
    uint16_t thread_record;
    uint16_t thread_frame;
    uint16_t thread_id;
    uint16_t thread_chunk;
    /* The record on the C stack. */
    uint16_t record_frame;
    uint16_t record_previous;
    /* A frame. `frame_instr` is an address in the code, or up to 3.10 a number (f_lasti). */
    uint16_t frame_code;
    uint16_t frame_previous;
    uint16_t frame_instr;
    uint16_t frame_owner;
    uint16_t frame_flag;
    /* PyCodeObject. */
    uint16_t code_first_line;
    uint16_t code_version; /* a number that no two code objects share, unless it is 0 */
    uint16_t code_file;
    uint16_t code_name; /* the qualified one where there is one */
    uint16_t code_lines;
    uint16_t code_start; /* of the instructions, where they are in the object */
    /* Strings: where the bytes of an ASCII one begin, and of another one. */
    uint16_t text_ascii;
    uint16_t text_wide;
};

/* The same in all of them. */
enum {
    PYTHON_OBJECT_COUNT = 0, /* references; 32 bits of it from 3.12 on */
    PYTHON_OBJECT_TYPE = 8,
    PYTHON_TEXT_LENGTH = 16,
    PYTHON_TEXT_HASH = 24, /* -1: not computed */
    PYTHON_TEXT_STATE = 32,
    PYTHON_BYTES_LENGTH = 16,
    PYTHON_BYTES_START = 32,
    PYTHON_TSS_KEY = 4, /* in Py_tss_t, after a word that is 1 if there is a key */
    PYTHON_CHUNK_PREVIOUS = 0,
    PYTHON_CHUNK_BYTES = 8,
    PYTHON_OWNER_C_STACK = 3,
};

/* The first bytes of _PyRuntime in 3.13: a mark, the version, and whether there is no GIL. */
#define PYTHON_DEBUG_MARK "xdebugpy"
enum { PYTHON_DEBUG_FREE_THREADED = 16 };

/* The layout of a version as Py_Version has it (0x030b02f0); NULL if it is not known. */
const struct python_layout *python_layout_of(uint64_t version);

/* The layout of versions that do not tell theirs, by the size of _PyRuntime. */
const struct python_layout *python_layout_sized(uint64_t runtime_bytes);

/* All of them, for tests; ends with version 0. */
extern const struct python_layout python_layouts[];
