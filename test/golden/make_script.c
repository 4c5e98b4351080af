/* Call sites with lines of scripts between C frames: the fourth golden book. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "book/report.h"
#include "book/writer.h"

static uint32_t script_add(struct book_writer *w, struct book_thread *t, const char *file,
                           const char *function, uint32_t first_line, uint32_t flags)
{
    struct book_script script = {.first_line = first_line, .flags = flags};
    snprintf(script.file, sizeof(script.file), "%s", file);
    snprintf(script.function, sizeof(script.function), "%s", function);
    return book_script_add(w, t, &script);
}

static void report(struct book_writer *w, struct book_thread *t)
{
    static const char deep[] = "/site-packages/torch/utils/data/_utils/worker.py";
    uint32_t heap = (uint32_t)book_account_add(w, t, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, "heap");
    uint32_t load = script_add(w, t, "/srv/train.py", "Loader.load_batch", 38, 0);
    uint32_t module = script_add(w, t, "/srv/train.py", "<module>", 1, 0);
    uint32_t named = script_add(w, t, "/srv/évaluation.py", "prüfen_中文", 7, 0);
    uint32_t cut = script_add(w, t, deep, "f", 0, BOOK_SCRIPT_FUNCTION_CUT | BOOK_SCRIPT_FILE_CUT);
    uint64_t native = (uintptr_t)report + 1;
    uintptr_t stacks[][4] = {
        {native, BOOK_SCRIPT_FRAME(load, 41), BOOK_SCRIPT_FRAME(module, 90), native + 8},
        {BOOK_SCRIPT_FRAME(named, 8), BOOK_SCRIPT_FRAME(cut, 0), BOOK_SCRIPT_FRAME(module, 91)},
        {BOOK_SCRIPT_FRAME(load, BOOK_SCRIPT_LINE_MAX), BOOK_SCRIPT_FRAME(0, 0), native},
        {BOOK_SCRIPT_FRAME(4000, 1), native}, /* there is no such script: unknown */
    };
    static const size_t depths[] = {4, 3, 3, 2};
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t site = book_site_add(w, t, heap, stacks[i], depths[i], 0);
        book_alloc(w, t, 0x1000 + i, 1000 * (i + 1), heap | site << 12 | i << 32);
    }
    book_lose(w, BOOK_LOSS_SCRIPTS_FULL);
}

int main(void)
{
    struct book_writer *w = calloc(1, sizeof(*w));
    struct book_thread *t = calloc(1, sizeof(*t));
    struct book_writer_options options = {.source = BOOK_SOURCE_CLIENT};
    if (!w || !t || book_writer_init(w, &options) < 0) {
        fprintf(stderr, "make_script: no writer\n");
        return 1;
    }
    book_thread_init(w, t);
    int r = book_writer_publish(w);
    if (r < 0) {
        fprintf(stderr, "make_script: %s\n", strerror(-r));
        return 1;
    }
    report(w, t);
    return raise(SIGKILL);
}
