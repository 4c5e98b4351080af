/* Frames of CPython in memory that holds anything: an interpreter that another module has written over, or a version that is not what it says. What is
 * read are words of the input. A word that begins with 0xb0b0 is an address in them, one that begins with 0xb1b1 an address on this thread's stack. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "site/python.h"
#include "site/python_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Where the parts are in the memory. What a thread's state says of its own memory is believed, since nobody else stores there: a list of one chunk. */
enum {
    BYTES = 1 << 16,
    AT_TYPES = 0x100,
    AT_STATE = 0x1000,
    AT_CHUNK = 0x8000,
    CHUNK_BYTES = BYTES - AT_CHUNK,
    STACK_WORDS = 512,
    MARK_SHIFT = 48,
    MARK_MEMORY = 0xb0b0,
    MARK_STACK = 0xb1b1,
};

static uint8_t *memory;
static pthread_key_t key;
static struct {
    uint32_t made, key;
} tss;

static void begin(void)
{
    if (memory)
        return;
    /* What lies behind it cannot be read: else a probe would find memory of the sanitizer. */
    memory = mmap(NULL, 2 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, BYTES, PROT_READ | PROT_WRITE) < 0 ||
        pthread_key_create(&key, NULL) != 0)
        abort();
    tss.made = 1;
    tss.key = key;
    pthread_setspecific(key, memory + AT_STATE);
}

static void store(size_t at, uint64_t word)
{
    memcpy(memory + at, &word, sizeof(word));
}

static void fill(const uint8_t *data, size_t size, uint64_t *stack, const struct python_layout *l)
{
    memset(memory, 0, BYTES);
    for (size_t i = 0; i + 10 <= size; i += 10) { /* where, and what */
        uint64_t word;
        size_t at = ((size_t)data[i] | (size_t)data[i + 1] << 8) & ~(size_t)7;
        memcpy(&word, data + i + 2, sizeof(word));
        if (word >> MARK_SHIFT == MARK_MEMORY)
            word = (uintptr_t)memory + (word & (BYTES - 1));
        else if (word >> MARK_SHIFT == MARK_STACK)
            word = (uintptr_t)&stack[(word / 8) % STACK_WORDS];
        store(at, word);
        stack[at / 8 % STACK_WORDS] = word;
    }
    store(AT_STATE + l->thread_id, (uintptr_t)pthread_self());
    store(l->runtime_finalizing & ~7u, 0);
    if (l->thread_chunk) {
        store(AT_STATE + l->thread_chunk, (uintptr_t)memory + AT_CHUNK);
        store(AT_CHUNK + PYTHON_CHUNK_PREVIOUS, 0);
        store(AT_CHUNK + PYTHON_CHUNK_BYTES, CHUNK_BYTES);
    }
}

static void look(struct python *py)
{
    static struct python_stack stack;
    static struct python_joined joined[2 * PYTHON_FRAMES_MAX];
    uintptr_t pcs[8], sps[8];
    bool cut = false;
    if (!python_stack_get(py, &stack))
        return;
    if (stack.n > PYTHON_FRAMES_MAX || stack.n_runs > PYTHON_FRAMES_MAX)
        abort();
    for (size_t i = 0; i < 8; i++) {
        pcs[i] = py->facts.map_start + 1 + i;
        sps[i] = stack.n_runs ? stack.runs[i % stack.n_runs].stack + 8 * i : 0;
    }
    size_t n = python_join(py, &stack, pcs, sps, 8, joined, 2 * PYTHON_FRAMES_MAX, &cut);
    if (n > 2 * PYTHON_FRAMES_MAX)
        abort();
    for (uint32_t i = 0; i < stack.n && i < 16; i++) {
        struct python_name name;
        if (!python_frame_name(py, &stack.frames[i], &name))
            continue;
        if (strnlen(name.function, sizeof(name.function)) == sizeof(name.function) ||
            strnlen(name.file, sizeof(name.file)) == sizeof(name.file))
            abort();
        (void)python_frame_check(py, &stack.frames[i], name.lines_used);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t stack[STACK_WORDS] = {0};
    size_t versions = 0, used;
    if (size < 4)
        return 0;
    begin();
    for (unsigned kind = PYTHON_LINES_PAIRS; kind <= PYTHON_LINES_LOCATIONS; kind++) {
        (void)python_line(kind, data + 4, size - 4, (int8_t)data[1] * 2, data[2], &used);
        if (used > size - 4)
            abort();
    }
    while (python_layouts[versions].version)
        versions++;
    const struct python_layout *l = &python_layouts[data[0] % versions];
    fill(data + 4, size - 4, stack, l);
    struct python py = {
        .state = PYTHON_READY,
        .facts = {.layout = *l,
                  .runtime = (uintptr_t)memory,
                  .runtime_bytes = BYTES,
                  .key_at = (uintptr_t)&tss,
                  .code_type = (uintptr_t)memory + AT_TYPES,
                  .text_type = (uintptr_t)memory + AT_TYPES + 8,
                  .bytes_type = (uintptr_t)memory + AT_TYPES + 16,
                  .map_start = (uintptr_t)memory,
                  .map_end = (uintptr_t)memory + BYTES},
    };
    look(&py);
    return 0;
}
