/* python_objects.h: objects of CPython in memory of another process, interpreted.
 *
 * Any user can write that memory, so in the observer this code runs in the child without rights (elf_parser.h), which asks for the
 * bytes; python_remote.h asks it and checks its answers. Tests and programs without rights of their own call it directly. What is read
 * is untrusted: sizes are bounded, pointers are only addresses to read from, and the number of reads has a limit.
 *
 * The structs travel between two processes of the same program. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "book/layout.h"
#include "observe/python_capture.h"
#include "observe/remote_memory.h"

enum {
    PYTHON_LINES_MAX = 16384,    /* bytes of a line table that are read */
    PYTHON_RUNTIME_MAX = 8192,   /* bytes of _PyRuntime in which keys and threads are looked for */
    PYTHON_KEYS_MAX = 1024,      /* PTHREAD_KEYS_MAX of glibc */
    PYTHON_KEY_TRIES_MAX = 256,  /* pairs of a key and a thread that are looked at */
    PYTHON_CODE_WORDS = 18,      /* of a code object: no field that is read lies further on */
    PYTHON_TEXT_WORDS = 5,       /* of the head of a string, */
    PYTHON_BYTES_WORDS = 4,      /* and of a line table */
    PYTHON_FUNCTION_CHARS = 128, /* characters of a name that are read, of up to 4 bytes each, */
    PYTHON_FILE_CHARS = 368,     /* and of a file's name */
};

/* What the answer to one question may need at most; the observer reads no more for it. */
enum {
    PYTHON_KEY_PIECES = 1 + PYTHON_RUNTIME_MAX / 8 + 3 * PYTHON_KEY_TRIES_MAX,
    PYTHON_KEY_BYTES = PYTHON_RUNTIME_MAX + PYTHON_RUNTIME_MAX / 8 * 24 + 24 * PYTHON_KEY_TRIES_MAX,
    PYTHON_CALL_PIECES = 1 + 3 + 3,
    PYTHON_CALL_BYTES = (PYTHON_CODE_WORDS + 2 * PYTHON_TEXT_WORDS + PYTHON_BYTES_WORDS) * 8 +
                        (PYTHON_FUNCTION_CHARS + PYTHON_FILE_CHARS) * 4 + PYTHON_LINES_MAX,
};

/* ---- where threads keep their states ---- */

struct python_key_ask {
    uint64_t runtime;       /* address of _PyRuntime */
    uint32_t runtime_bytes; /* at most PYTHON_RUNTIME_MAX */
    uint16_t version;       /* 0x030b: one of python_layouts */
    uint16_t spare;
    uint32_t specific, key_bytes, key_data, block_keys; /* as struct python_kernel_facts has them */
};
static_assert(sizeof(struct python_key_ask) == 32, "no holes");

struct python_key_told {
    uint32_t at; /* offset of the Py_tss_t in _PyRuntime */
};

/* 0; -EAGAIN: no thread has a state yet; -ENOENT: an unknown version or a free-threaded interpreter. */
int python_objects_key(const struct python_key_ask *ask, remote_read_fn *read, void *context,
                       struct python_key_told *ret_told);

/* ---- names of calls ---- */

struct python_call_ask {
    uint64_t code;
    int64_t at;        /* the instruction, in bytes from the first */
    uint64_t captured; /* python_code_check() when it was called; 0: not known */
};

struct python_names_ask {
    uint64_t code_type, text_type, bytes_type; /* addresses */
    uint16_t version;
    uint16_t n; /* calls; at most PYTHON_CAPTURE_ENTRIES */
    uint32_t spare;
    struct python_call_ask calls[PYTHON_CAPTURE_ENTRIES];
};

/* Bytes that a name was made from. */
struct python_witness {
    uint64_t address;
    uint32_t bytes;
    uint32_t spare;
};

enum { PYTHON_WITNESSES = 9 };

struct python_call_told {
    uint32_t named; /* 0: the code object is gone, or cannot be read */
    uint32_t line;
    uint32_t
        numbered; /* the code object has a number of its own, which is in python_code_check() */
    uint32_t n_witnesses;
    /* The name holds while these bytes are what they were: python_witness_add() of all, in their order. The first are those of
     * python_code_check(). So the asker can keep the name, and look whether it holds without understanding the bytes. */
    uint64_t check;
    struct python_witness witnesses[PYTHON_WITNESSES];
    struct book_script script;
};
static_assert(sizeof(struct python_call_told) ==
                  24 + PYTHON_WITNESSES * sizeof(struct python_witness) +
                      sizeof(struct book_script),
              "no holes");

static inline uint64_t python_witness_add(uint64_t check, const void *bytes, size_t n)
{
    return hash_bytes(bytes, n, check) | 1;
}

struct python_names_told {
    struct python_call_told calls[PYTHON_CAPTURE_ENTRIES];
};

/* Fills in told->calls[0 .. ask->n). 0, -ENOENT: an unknown version, -EINVAL, -ENOMEM. A few reads for all calls together. */
int python_objects_names(const struct python_names_ask *ask, remote_read_fn *read, void *context,
                         struct python_names_told *told);
