/* What the observer's parser (memoir-parse) answers, as if its child were hostile: files, functions,
 * places for probes, Python names and keys, libraries. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"
#include "observe/code_file.h"
#include "observe/elf_file.h"
#include "observe/elf_parser_internal.h"
#include "observe/link_map.h"
#include "observe/python_remote.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 65536, ANSWER_MAX = 64 };

/* Short answers, so that the socket, which nobody reads, never fills up. */
static void read_memory(void *context, struct remote_piece *pieces, size_t n)
{
    (void)context;
    for (size_t i = 0; i < n; i++) {
        pieces[i].done = pieces[i].bytes <= ANSWER_MAX;
        if (pieces[i].done)
            memset(pieces[i].to, (int)pieces[i].address, pieces[i].bytes);
    }
}

static int64_t read_file(void *context, uint64_t offset, void *to, size_t n)
{
    (void)context;
    n = n < ANSWER_MAX ? n : ANSWER_MAX;
    memset(to, (int)offset, n);
    return (int64_t)n;
}

static void is_text(const char *text, size_t size)
{
    size_t len = strnlen(text, size), n;
    if (len == size)
        abort();
    for (size_t i = 0; i < len; i += n)
        if ((n = utf8_sequence(text + i, len - i)) == 0)
            abort();
}

static void names_try(struct elf_parser *parser)
{
    static struct python_remote *r;
    uint32_t deaths = 0;
    if (!r && !(r = malloc(sizeof(*r))))
        return;
    memset(r, 0, sizeof(*r));
    r->read = read_memory;
    r->parser = parser;
    r->deaths = &deaths;
    r->py.facts.layout = *python_layout_of(0x030b0000);
    r->py.state = PYTHON_READY;
    r->stack.n = 3;
    for (uint32_t i = 0; i < 3; i++)
        r->stack.frames[i] = (struct python_frame){0x1000 * (i + 1), 2};
    for (int round = 0; round < 2; round++) {
        if (python_remote_names(r, 3) > 3)
            abort();
        for (uint32_t i = 0; i < 3; i++) {
            is_text(r->scripts[i].function, sizeof(r->scripts[i].function));
            is_text(r->scripts[i].file, sizeof(r->scripts[i].file));
            if (r->lines[i] > BOOK_SCRIPT_LINE_MAX)
                abort();
        }
    }
}

static void function_look(void *context, const struct elf_function *function)
{
    if (strlen(function->name) >= ELF_FUNCTION_NAME_MAX)
        abort();
    *(uint64_t *)context += function->offset;
}

static void file_try(struct elf_parser *parser)
{
    struct elf_file file;
    struct elf_rule rule;
    struct elf_symbol symbol;
    uint64_t bytes[2], lo, hi, bias;
    const uint8_t stack[64] = {0};
    struct elf_stack copied = {0x7000, stack, sizeof(stack)};
    struct elf_frame frame = {.regs = {.valid = 1u << ARCH_REG_SP}};
    if (elf_file_init(&file, parser, read_file, NULL, ELF_CLUSTER) == 0) {
        if (file.image.n_segments > ELF_SEGMENTS_MAX ||
            file.image.build_id_len > MODULE_BUILD_ID_MAX)
            abort();
        elf_image_span(&file.image, &lo, &hi);
        elf_image_bias(&file.image, 0x7f0000000000, 0x1000, &bias);
        elf_image_read(&file.image, lo + 16, bytes, sizeof(bytes));
        elf_file_rule(&file, 0x1000, &rule);
        elf_file_step(&file, 0x1000, &copied, &frame);
        elf_file_symbol(&file, "name", &symbol);
        elf_file_drop(&file);
    }
    elf_file_release(&file);
}

static void code_try(struct elf_parser *parser)
{
    struct probe_place place;
    static struct code_return places[CODE_RETURNS_MAX];
    code_file_place(parser, read_file, NULL, 0x1000, 20, 3, &place);
    if (place.offset >= 20 || place.at[0] > 15 || place.at[1] > 15 || place.at[2] > 15)
        abort();
    int n = code_file_returns(parser, read_file, NULL, 0x1000, places);
    for (int i = 0; i < n; i++)
        if (places[i].result > 15 || places[i].condition > 15 || places[i].up / 8 > 255)
            abort();
    if (code_file_first(parser, read_file, NULL, 0x1000).bytes > CODE_INSTRUCTION_MAX)
        abort();
}

static void base_look(void *context, uint64_t base, size_t order)
{
    if (order >= LINK_MAP_MAX)
        abort();
    *(uint64_t *)context += base;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    struct elf_parser *parser;
    uint64_t sum = 0;
    if (size == 0 || size > INPUT_MAX ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return 0;
    log_set_level(LOG_LEVEL_ERROR);
    /* All that the child will ever say. */
    if (send(fds[1], data + 1, size - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        abort();
    shutdown(fds[1], SHUT_WR);
    if (elf_parser_for_test(fds[0], &parser) < 0)
        abort();
    switch (data[0] % 5) {
    case 0:
        names_try(parser);
        break;
    case 1:
        file_try(parser);
        break;
    case 2:
        elf_file_exports(parser, read_file, NULL, function_look, &sum);
        break;
    case 4:
        code_try(parser);
        break;
    case 3:
        link_map_each(getpid(), parser, base_look, &sum);
        break;
    }
    elf_parser_free(parser);
    close(fds[1]);
    return 0;
}
