/* ELF files, here or in the parser. See elf_file.h. */
#include "observe/elf_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "observe/elf_parser_internal.h"

int64_t elf_file_pread(void *context, uint64_t offset, void *to, size_t n)
{
    const int *fd = context;
    ssize_t done;
    do
        done = pread(*fd, to, n, (off_t)offset);
    while (done < 0 && errno == EINTR);
    return done < 0 ? -errno : done;
}

/* ---- with a parser ---- */

/* One try. -EPIPE: the child died over it. */
static int ask_once(struct elf_file *f, struct elf_question *q)
{
    q->ask.slot = f->slot;
    q->read = f->image.read;
    q->read_context = f->image.context;
    int r = elf_parser_ensure(f->parser);
    if (r < 0)
        return r;
    uint32_t generation = elf_parser_generation(f->parser);
    r = elf_parser_ask(f->parser, q);
    if (r == -EPIPE) {
        f->deaths++;
        return r;
    }
    f->loaded_bytes = q->done.loaded_bytes;
    if (r == 0 && q->ask.kind == ELF_ASK_OPEN)
        f->generation = generation;
    return r;
}

static int open_ask(struct elf_file *f, struct elf_told_open *told)
{
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_OPEN, .cluster = f->image.cluster},
        .told = told,
        .told_bytes = sizeof(*told),
    };
    int r = -EPIPE;
    while (r == -EPIPE && f->deaths < ELF_FILE_DEATHS_MAX)
        r = ask_once(f, &q);
    return r == -EPIPE ? -EBADMSG : r;
}

/* A child that was started since does not know the file. */
static int ask(struct elf_file *f, struct elf_question *q)
{
    int r = -EPIPE;
    while (r == -EPIPE && f->deaths < ELF_FILE_DEATHS_MAX) {
        struct elf_told_open told;
        r = elf_parser_ensure(f->parser);
        if (r == 0 && f->generation != elf_parser_generation(f->parser))
            r = open_ask(f, &told);
        if (r == 0)
            r = ask_once(f, q);
    }
    return r == -EPIPE ? -EBADMSG : r;
}

static bool told_fits(const struct elf_told_open *t)
{
    return t->n_segments > 0 && t->n_segments <= ELF_SEGMENTS_MAX &&
           t->build_id_len <= MODULE_BUILD_ID_MAX;
}

static int remote_init(struct elf_file *f)
{
    struct elf_told_open told;
    int r = elf_parser_slot_take(f->parser, &f->slot);
    if (r < 0) {
        f->parser = NULL;
        return r;
    }
    r = open_ask(f, &told);
    if (r == 0 && !told_fits(&told))
        r = -EBADMSG;
    if (r < 0)
        return r;
    memcpy(f->image.segments, told.segments, sizeof(told.segments));
    f->image.n_segments = told.n_segments;
    f->image.dynamic = told.dynamic;
    f->image.dynamic_bytes = told.dynamic_bytes;
    f->image.build_id_len = told.build_id_len;
    memcpy(f->image.build_id, told.build_id, sizeof(told.build_id));
    return 0;
}

/* ---- files ---- */

int elf_file_init(struct elf_file *f, struct elf_parser *parser, elf_read_fn *read, void *context,
                  uint32_t cluster)
{
    *f = (struct elf_file){
        .parser = parser,
        .image = {.read = read, .context = context, .cluster = cluster},
    };
    return parser ? remote_init(f) : elf_image_init(&f->image, read, context, cluster);
}

void elf_file_release(struct elf_file *f)
{
    if (f->parser) {
        /* A child that does not know the file is not asked to forget it. */
        if (elf_parser_pid(f->parser) && f->generation == elf_parser_generation(f->parser)) {
            struct elf_question q = {.ask.kind = ELF_ASK_CLOSE};
            ask(f, &q);
        }
        elf_parser_slot_give(f->parser, f->slot);
    }
    elf_image_release(&f->image);
    *f = (struct elf_file){0};
}

int elf_file_rule(struct elf_file *f, uint64_t vaddr, struct elf_rule *ret_rule)
{
    struct elf_rule told;
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_RULE, .vaddr = vaddr},
        .told = &told,
        .told_bytes = sizeof(told),
    };
    if (!f->parser)
        return elf_image_rule(&f->image, vaddr, ret_rule);
    int r = ask(f, &q);
    if (r == 0)
        *ret_rule = told;
    return r;
}

int elf_file_step(struct elf_file *f, uint64_t vaddr, const struct elf_stack *stack,
                  struct elf_frame *frame)
{
    struct elf_told_step told;
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_STEP,
                .vaddr = vaddr,
                .lo = stack->lo,
                .payload_bytes = stack->n,
                .regs = frame->regs},
        .payload = stack->bytes,
        .told = &told,
        .told_bytes = sizeof(told),
    };
    if (!f->parser)
        return elf_image_step(&f->image, vaddr, stack, frame);
    int r = ask(f, &q);
    frame->beyond |= q.done.beyond != 0;
    if (r < 0)
        return r;
    frame->regs = told.regs;
    frame->signal_frame = told.signal_frame != 0;
    frame->cfa_is_expression = told.cfa_is_expression != 0;
    return 0;
}

int elf_file_symbol(struct elf_file *f, const char *name, struct elf_symbol *ret_symbol)
{
    struct elf_symbol told;
    struct elf_question q = {
        .ask.kind = ELF_ASK_SYMBOL,
        .told = &told,
        .told_bytes = sizeof(told),
    };
    if (!f->parser)
        return elf_image_symbol(&f->image, name, ret_symbol);
    if (strlen(name) >= sizeof(q.ask.name))
        return -EINVAL;
    snprintf(q.ask.name, sizeof(q.ask.name), "%s", name);
    int r = ask(f, &q);
    if (r == 0)
        *ret_symbol = told;
    return r;
}

void elf_file_drop(struct elf_file *f)
{
    struct elf_question q = {.ask.kind = ELF_ASK_DROP};
    if (!f->parser)
        elf_image_drop(&f->image);
    else if (f->loaded_bytes > 0)
        ask(f, &q);
}

uint64_t elf_file_loaded_bytes(const struct elf_file *f)
{
    return f->parser ? f->loaded_bytes : elf_image_loaded_bytes(&f->image);
}

/* ---- functions ---- */

static int functions_ask(struct elf_parser *parser, uint32_t kind, elf_read_fn *read,
                         void *read_context, elf_function_fn *each, void *context)
{
    struct elf_question q = {
        .ask.kind = kind,
        .read = read,
        .read_context = read_context,
        .each = each,
        .each_context = context,
    };
    int r = elf_parser_ensure(parser);
    if (r == 0)
        r = elf_parser_ask(parser, &q);
    return r == -EPIPE ? -EBADMSG : r;
}

int elf_file_exports(struct elf_parser *parser, elf_read_fn *read, void *read_context,
                     elf_function_fn *each, void *context)
{
    return parser ? functions_ask(parser, ELF_ASK_EXPORTS, read, read_context, each, context)
                  : elf_exports(read, read_context, each, context);
}

int elf_file_functions(struct elf_parser *parser, elf_read_fn *read, void *read_context,
                       elf_function_fn *each, void *context)
{
    return parser ? functions_ask(parser, ELF_ASK_FUNCTIONS, read, read_context, each, context)
                  : elf_functions(read, read_context, each, context);
}
