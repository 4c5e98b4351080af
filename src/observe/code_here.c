/* Decoding instructions of a file in this process: in the parser, or in tests. See code_file.h. */
#include <string.h>

#include "observe/code_file.h"

enum { WINDOWS = 16, WINDOW_BYTES = 4096 };

/* Pages of the file that were read last: code is looked at instruction by instruction. */
struct windows {
    elf_read_fn *read;
    void *context;
    struct window {
        uint64_t at; /* 1 + its number; 0: unused */
        size_t n;
        uint8_t bytes[WINDOW_BYTES];
    } all[WINDOWS];
};

static const struct window *window_of(struct windows *w, uint64_t number)
{
    struct window *one = &w->all[number % WINDOWS];
    if (one->at == number + 1)
        return one;
    int64_t n = w->read(w->context, number * WINDOW_BYTES, one->bytes, WINDOW_BYTES);
    one->at = number + 1;
    one->n = n > 0 && n <= WINDOW_BYTES ? (size_t)n : 0;
    return one;
}

/* A code_read_fn. */
static size_t windows_read(void *context, uint64_t at, uint8_t *to, size_t n)
{
    size_t done = 0;
    while (done < n && at + done <= INT64_MAX) {
        uint64_t from = at + done;
        const struct window *one = window_of(context, from / WINDOW_BYTES);
        size_t skip = from % WINDOW_BYTES, left = one->n > skip ? one->n - skip : 0;
        if (left == 0)
            break;
        left = left < n - done ? left : n - done;
        memcpy(to + done, one->bytes + skip, left);
        done += left;
    }
    return done;
}

void code_place_here(elf_read_fn *read, void *context, uint64_t offset, uint64_t bytes,
                     uint32_t needs, struct probe_place *ret_place)
{
    uint8_t code[PROBE_PLACE_BYTES];
    size_t most = bytes && bytes < sizeof(code) ? (size_t)bytes : sizeof(code);
    int64_t n = offset > INT64_MAX ? 0 : read(context, offset, code, most);
    probe_place_find(code, n > 0 ? (size_t)n : 0, needs, ret_place);
}

int code_returns_here(elf_read_fn *read, void *context, uint64_t offset,
                      struct code_return ret_places[static CODE_RETURNS_MAX])
{
    static struct windows w; /* one thread */
    for (int i = 0; i < WINDOWS; i++)
        w.all[i].at = 0;
    w.read = read;
    w.context = context;
    return code_returns_find(windows_read, &w, offset, ret_places);
}

struct code_instruction code_first_here(elf_read_fn *read, void *context, uint64_t offset)
{
    uint8_t code[CODE_INSTRUCTION_MAX];
    int64_t n = offset > INT64_MAX ? 0 : read(context, offset, code, sizeof(code));
    return code_instruction_read(code, n > 0 ? (size_t)n : 0);
}
