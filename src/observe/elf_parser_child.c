/* The child that parses. See elf_parser.h. It trusts the observer, but not what it reads of files and of memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/deadline.h"
#include "observe/elf_parser.h"
#include "observe/elf_parser_child.h"
#include "site/symbol_confine.h"

enum {
    SOCKET = 0,       /* helper.h */
    BUSY_MS = 60000,  /* for one question; the observer loses patience much earlier */
    IDLE_MS = 600000, /* without a question: the observer hangs or was stopped */
};

/* A file that is open here. */
struct parsed {
    struct elf_image image;
};

static struct parsed *files[ELF_PARSER_FILES_MAX];
static _Alignas(8) uint8_t payload[ELF_WIRE_PAYLOAD_MAX];

/* ---- the socket; without the observer there is nothing more to do ---- */

void elf_child_send(const void *data, size_t len)
{
    const uint8_t *at = data;
    while (len > 0) {
        ssize_t n = send(SOCKET, at, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0);
        at += n;
        len -= (size_t)n;
    }
}

void elf_child_receive(void *data, size_t len)
{
    while (len > 0) {
        ssize_t n = recv(SOCKET, data, len, MSG_WAITALL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0);
        data = (uint8_t *)data + n;
        len -= (size_t)n;
    }
}

/* Bytes of the file that the question at hand is about: an elf_read_fn. */
int64_t elf_child_read(void *context, uint64_t offset, void *to, size_t n)
{
    (void)context;
    struct elf_tell tell = {
        .kind = ELF_TELL_READ,
        .offset = offset,
        .bytes = n < ELF_WIRE_READ_MAX ? (uint32_t)n : ELF_WIRE_READ_MAX,
    };
    int64_t got;
    if (n == 0)
        return 0;
    elf_child_send(&tell, sizeof(tell));
    elf_child_receive(&got, sizeof(got));
    if (got > (int64_t)tell.bytes)
        _exit(1);
    if (got > 0)
        elf_child_receive(to, (size_t)got);
    return got;
}

static void done(int result, const struct parsed *file, bool beyond, const void *told, size_t bytes)
{
    struct elf_tell tell = {
        .kind = ELF_TELL_DONE,
        .result = result,
        .bytes = result == 0 ? (uint32_t)bytes : 0,
        .beyond = beyond,
        .loaded_bytes = file ? elf_image_loaded_bytes(&file->image) : 0,
    };
    elf_child_send(&tell, sizeof(tell));
    elf_child_send(told, tell.bytes);
}

void elf_child_done(int result, const void *told, size_t bytes)
{
    done(result, NULL, false, told, bytes);
}

/* ---- files ---- */

static void file_close(uint32_t slot)
{
    if (!files[slot])
        return;
    elf_image_release(&files[slot]->image);
    free(files[slot]);
    files[slot] = NULL;
}

static void file_open(const struct elf_ask *ask)
{
    static struct elf_told_open told;
    file_close(ask->slot);
    struct parsed *file = calloc(1, sizeof(*file));
    int r = file ? elf_image_init(&file->image, elf_child_read, NULL, ask->cluster) : -ENOMEM;
    if (r < 0) {
        if (file)
            elf_image_release(&file->image);
        free(file);
        done(r, NULL, false, NULL, 0);
        return;
    }
    files[ask->slot] = file;
    const struct elf_image *image = &file->image;
    memset(&told, 0, sizeof(told));
    memcpy(told.segments, image->segments, sizeof(told.segments));
    told.n_segments = image->n_segments;
    told.dynamic = image->dynamic;
    told.dynamic_bytes = image->dynamic_bytes;
    told.build_id_len = image->build_id_len;
    memcpy(told.build_id, image->build_id, sizeof(told.build_id));
    done(0, file, false, &told, sizeof(told));
}

static void step(const struct elf_ask *ask, struct parsed *file)
{
    const struct elf_stack copied = {.lo = ask->lo, .bytes = payload, .n = ask->payload_bytes};
    struct elf_frame frame = {.regs = ask->regs};
    int r = elf_image_step(&file->image, ask->vaddr, &copied, &frame);
    struct elf_told_step told;
    memset(&told, 0, sizeof(told));
    told.regs = frame.regs;
    told.signal_frame = frame.signal_frame;
    told.cfa_is_expression = frame.cfa_is_expression;
    done(r, file, frame.beyond, &told, sizeof(told));
}

static void rule(const struct elf_ask *ask, struct parsed *file)
{
    struct elf_rule told = {0};
    int r = elf_image_rule(&file->image, ask->vaddr, &told);
    done(r, file, false, &told, sizeof(told));
}

static void symbol(const struct elf_ask *ask, struct parsed *file)
{
    struct elf_symbol told = {0};
    int r = elf_image_symbol(&file->image, ask->name, &told);
    done(r, file, false, &told, sizeof(told));
}

/* ---- functions ---- */

static struct {
    size_t n;
    uint8_t bytes[ELF_WIRE_BATCH_MAX];
} batch;

static void batch_send(void)
{
    struct elf_tell tell = {.kind = ELF_TELL_FUNCTIONS, .bytes = (uint32_t)batch.n};
    if (batch.n == 0)
        return;
    elf_child_send(&tell, sizeof(tell));
    elf_child_send(batch.bytes, batch.n);
    batch.n = 0;
}

static void function_add(void *context, const struct elf_function *function)
{
    (void)context;
    size_t len = strnlen(function->name, ELF_FUNCTION_NAME_MAX - 1);
    struct elf_told_function told = {
        .offset = function->offset,
        .address = function->address,
        .bytes = function->bytes,
        .name_bytes = (uint16_t)(len + 1),
        .exported = function->exported,
        .global = function->global,
    };
    if (sizeof(batch.bytes) - batch.n < sizeof(told) + len + 1)
        batch_send();
    memcpy(batch.bytes + batch.n, &told, sizeof(told));
    memcpy(batch.bytes + batch.n + sizeof(told), function->name, len);
    batch.bytes[batch.n + sizeof(told) + len] = '\0';
    batch.n += sizeof(told) + len + 1;
}

static void functions(const struct elf_ask *ask)
{
    batch.n = 0;
    int r = ask->kind == ELF_ASK_EXPORTS ? elf_exports(elf_child_read, NULL, function_add, NULL)
                                         : elf_functions(elf_child_read, NULL, function_add, NULL);
    batch_send();
    done(r, NULL, false, NULL, 0);
}

/* ---- the loop ---- */

static void answer(const struct elf_ask *ask)
{
    struct parsed *file = files[ask->slot];
    switch (ask->kind) {
    case ELF_ASK_OPEN:
        file_open(ask);
        return;
    case ELF_ASK_EXPORTS:
    case ELF_ASK_FUNCTIONS:
        functions(ask);
        return;
    case ELF_ASK_CLOSE:
        file_close(ask->slot);
        done(0, NULL, false, NULL, 0);
        return;
    case ELF_ASK_PLACE:
    case ELF_ASK_RETURNS:
    case ELF_ASK_FIRST:
        elf_child_code(ask);
        return;
    case ELF_ASK_PYTHON_KEY:
    case ELF_ASK_PYTHON_NAMES:
    case ELF_ASK_LINK_MAP:
        elf_child_process(ask, payload);
        return;
    }
    if (!file) {
        done(-EBADF, NULL, false, NULL, 0);
        return;
    }
    switch (ask->kind) {
    case ELF_ASK_RULE:
        rule(ask, file);
        return;
    case ELF_ASK_STEP:
        step(ask, file);
        return;
    case ELF_ASK_SYMBOL:
        symbol(ask, file);
        return;
    case ELF_ASK_DROP:
        elf_image_drop(&file->image);
        done(0, file, false, NULL, 0);
        return;
    }
    _exit(1);
}

int elf_parser_main(void)
{
    const struct rlimit none = {0, 0};
    const uint32_t ready = ELF_WIRE_READY;
    prctl(PR_SET_NAME, "memoir-parse");
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_FSIZE, &none);
    if (deadline_make() < 0 || symbol_confine_alone() < 0)
        return 1;
    elf_child_send(&ready, sizeof(ready));
    for (;;) {
        struct elf_ask ask;
        deadline_set(IDLE_MS);
        elf_child_receive(&ask, sizeof(ask));
        if (ask.slot >= ELF_PARSER_FILES_MAX || ask.payload_bytes > sizeof(payload))
            return 1;
        ask.name[sizeof(ask.name) - 1] = '\0';
        elf_child_receive(payload, ask.payload_bytes);
        deadline_set(BUSY_MS);
        answer(&ask);
    }
}
