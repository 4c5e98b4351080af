/* A library whose function is probed, with C frames between it and its callers. The function also takes its own stack, as the tracker
 * does in a process, and keeps the key that a book of the process has for it. */
#include <stdint.h>

#include "book/script_stack.h"
#include "book/writer.h"

#define EXPORT __attribute__((visibility("default"), noinline))

EXPORT int probed(int argument);
EXPORT int probed_by_wrapper(int argument);
EXPORT int probed_call_back(int (*callback)(int), int argument);
EXPORT void probed_keep_keys(void);
EXPORT uint64_t probed_key(void);

static volatile int sink;
static uint64_t key;
static int keeps;

static struct book_writer writer;
static struct book_thread thread;
static struct script_thread scripts;
static struct python python;
static struct unwind_cache cache;

static void key_take(const struct unwind_state *from)
{
    uintptr_t frames[BOOK_SITE_FRAMES_MAX];
    struct unwind_trace trace;
    size_t n = 0;
    for (int round = 0; round < 2; round++) {
        n = script_stack(&writer, &thread, &scripts, &python, &cache, from, frames,
                         BOOK_SITE_FRAMES_MAX, &trace);
        if (python_ready(&python))
            break;
        python_find(&python, frames, n);
    }
    if (python_ready(&python))
        n = script_stack(&writer, &thread, &scripts, &python, &cache, from, frames,
                         BOOK_SITE_FRAMES_MAX, &trace);
    uint32_t site = book_site_add(&writer, &thread, 1, frames, n, 0);
    key = ((const struct book_site *)writer.at[BOOK_SECTION_SITES])[site].key;
}

void probed_keep_keys(void)
{
    keeps =
        book_writer_init(&writer, &(struct book_writer_options){.source = BOOK_SOURCE_TRACK}) == 0;
    book_thread_init(&writer, &thread);
}

uint64_t probed_key(void)
{
    return key;
}

int probed(int argument)
{
    if (keeps) {
        struct unwind_state from = UNWIND_STATE_CALLER();
        key_take(&from);
    }
    sink += argument;
    return sink;
}

int probed_by_wrapper(int argument)
{
    int r = probed(argument);
    sink++;
    return r;
}

int probed_call_back(int (*callback)(int), int argument)
{
    int r = callback(argument);
    sink++;
    return r;
}
