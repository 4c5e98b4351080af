/* An ELF file of a stranger's, and what the symbol engine answers of it: records that can be taken apart. The first two bytes of the input choose the
 * addresses. The engine itself runs in a process of its own, since it uses libdw; here it is looked at for what it adds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fs.h"
#include "site/symbol_engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static size_t check_text(const struct buffer *record, size_t at, uint32_t len)
{
    demand(len <= record->len - at);
    demand(len == 0 ||
           (record->data[at + len - 1] == '\0' && strnlen(record->data + at, len) == len - 1));
    return at + len;
}

static void check_record(const struct buffer *record)
{
    struct symbol_record head;
    size_t at = sizeof(head);
    demand(!record->error && record->len >= sizeof(head));
    memcpy(&head, record->data, sizeof(head));
    demand(head.result <= 0 && head.frames <= SYMBOL_FRAMES_MAX &&
           (head.result == 0) == (head.frames > 0));
    for (uint32_t i = 0; i < head.frames; i++) {
        struct symbol_record_frame frame;
        demand(record->len - at >= sizeof(frame));
        memcpy(&frame, record->data + at, sizeof(frame));
        at = check_text(record, at + sizeof(frame), frame.function_len);
        at = check_text(record, at, frame.file_len);
    }
    demand(at == record->len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct symbol_engine *engine = NULL;
    if (size < 2 || symbol_engine_new(2, NULL, NULL, &engine) < 0)
        return 0;
    uint64_t offset = (uint64_t)data[0] << 4 | (uint64_t)data[1] << 8;
    for (int i = 0; i < 4; i++, offset += 0x1000) {
        struct buffer record = BUFFER_INIT(SYMBOL_RECORD_MAX);
        int fd = memfd_create("fuzz", MFD_CLOEXEC);
        if (fd < 0 || fs_write_all(fd, (const char *)data + 2, size - 2) < 0)
            abort();
        struct symbol_files files = {.main_fd = fd, .debug_fd = -1};
        symbol_engine_resolve(
            engine,
            &(struct symbol_query){.path = "/fuzz", .offset = offset, .is_return_address = i & 1},
            &files, &record);
        check_record(&record);
        buffer_release(&record);
    }
    symbol_engine_free(engine);
    return 0;
}
