/* Finding CPython in another process, and its calls. See python_remote.h. */
#include "observe/python_remote.h"

#include <errno.h>

#include "observe/elf_parser_internal.h"
#include "observe/parser_pool.h"

enum { CODE_UNIT = 2, PYTHON_TSS_BYTES = 8 };

int python_remote_ask(struct python_remote *r, struct elf_question *question)
{
    struct elf_parser *parser = r->pool ? parser_pool_get(r->pool, r->owner) : r->parser;
    return parser ? elf_parser_ask_process(parser, question, r->deaths) : -EBUSY;
}

/* ---- the interpreter ---- */

static const struct python_layout *layout_find(struct module *module,
                                               const struct elf_symbol *runtime)
{
    struct elf_file *elf = &module->file->elf;
    struct elf_symbol symbol;
    uint64_t version;
    if (elf_file_symbol(elf, "Py_Version", &symbol) < 0)
        return python_layout_sized(runtime->bytes);
    if (elf_image_read(&elf->image, symbol.vaddr, &version, sizeof(version)) < 0)
        return NULL;
    return python_layout_of(version);
}

int python_remote_look(struct python_remote *r, struct module *module)
{
    static const char *const names[] = {"_PyEval_EvalFrameDefault", "_PyRuntime", "PyCode_Type",
                                        "PyUnicode_Type", "PyBytes_Type"};
    struct elf_symbol s[sizeof(names) / sizeof(names[0])];
    if (!module->file)
        return -ENOENT;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (elf_file_symbol(&module->file->elf, names[i], &s[i]) < 0)
            return -ENOENT;
    const struct python_layout *layout = layout_find(module, &s[1]);
    uint64_t bias = module->bias;
    if (!layout || (s[1].vaddr + bias) % sizeof(uint64_t) != 0)
        return -ENOENT;
    r->py.facts = (struct python_facts){
        .layout = *layout,
        .runtime = s[1].vaddr + bias,
        .runtime_bytes = s[1].bytes < PYTHON_RUNTIME_MAX ? s[1].bytes : PYTHON_RUNTIME_MAX,
        .code_type = s[2].vaddr + bias,
        .text_type = s[3].vaddr + bias,
        .bytes_type = s[4].vaddr + bias,
        .eval_start = s[0].vaddr + bias,
        .eval_end = s[0].vaddr + bias + s[0].bytes,
        .map_start = module->info.map_start,
        .map_end = module->info.map_end,
    };
    r->py.state = PYTHON_SEEN;
    return 0;
}

/* ---- threads ---- */

/* What glibc tells debuggers of a field: bits of an element, number of elements, offset in bytes. */
struct thread_db_field {
    uint32_t bits, count, offset;
};

static int libc_read(struct module *libc, const char *name, void *to, size_t bytes)
{
    struct elf_symbol symbol;
    int r = elf_file_symbol(&libc->file->elf, name, &symbol);
    return r < 0 ? r : elf_image_read(&libc->file->elf.image, symbol.vaddr, to, bytes);
}

/* Where pthread_getspecific() looks. */
static int specific_find(struct module *libc, struct python_kernel_facts *k)
{
    struct thread_db_field specific, data, block;
    uint32_t bytes;
    if (!libc->file ||
        libc_read(libc, "_thread_db_pthread_specific", &specific, sizeof(specific)) < 0 ||
        libc_read(libc, "_thread_db_pthread_key_data_data", &data, sizeof(data)) < 0 ||
        libc_read(libc, "_thread_db_pthread_key_data_level2_data", &block, sizeof(block)) < 0 ||
        libc_read(libc, "_thread_db_sizeof_pthread_key_data", &bytes, sizeof(bytes)) < 0)
        return -ENOENT;
    if (specific.bits % 64 != 0 || data.bits != 64 || block.count == 0 ||
        block.count > PYTHON_KEYS_MAX || bytes < 8 || bytes > 64 || data.offset > bytes - 8 ||
        block.offset != 0 || specific.offset > 16384 || specific.offset % 8 != 0)
        return -ENOENT;
    k->specific = specific.offset;
    k->key_bytes = bytes;
    k->key_data = data.offset;
    k->block_keys = block.count;
    return 0;
}

static void kernel_fill(struct python_remote *r, struct python_kernel_facts *k)
{
    const struct python_layout *l = &r->py.facts.layout;
    k->runtime = r->py.facts.runtime;
    k->key_at = r->py.facts.key_at;
    k->finalizing = r->py.facts.runtime + l->runtime_finalizing;
    k->version = l->version;
    k->link = l->link;
    k->owner_c_stack = PYTHON_OWNER_C_STACK;
    k->thread_record = l->thread_record;
    k->thread_frame = l->thread_frame;
    k->thread_id = l->thread_id;
    k->record_frame = l->record_frame;
    k->record_previous = l->record_previous;
    k->frame_code = l->frame_code;
    k->frame_previous = l->frame_previous;
    k->frame_instr = l->frame_instr;
    k->frame_owner = l->frame_owner;
    k->frame_flag = l->frame_flag;
}

static int key_ask(struct python_remote *r, const struct python_key_ask *ask,
                   struct python_key_told *ret_told)
{
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_PYTHON_KEY, .payload_bytes = sizeof(*ask)},
        .payload = ask,
        .memory = r->read,
        .memory_context = r->context,
        .memory_left = PYTHON_KEY_BYTES,
        .pieces_left = PYTHON_KEY_PIECES,
        .told = ret_told,
        .told_bytes = sizeof(*ret_told),
    };
    if (python_remote_is_here(r))
        return python_objects_key(ask, r->read, r->context, ret_told);
    int error = python_remote_ask(r, &q);
    if (error == -EBADMSG)
        return *r->deaths < ELF_FILE_DEATHS_MAX ? -EAGAIN : -ENOENT;
    return error == 0 || error == -ENOENT ? error : -EAGAIN;
}

int python_remote_key(struct python_remote *r, struct module *libc)
{
    struct python_kernel_facts k = {0};
    struct python_key_told told;
    struct python_facts *facts = &r->py.facts;
    int error = specific_find(libc, &k);
    if (error < 0)
        return error;
    const struct python_key_ask ask = {
        .runtime = facts->runtime,
        .runtime_bytes = (uint32_t)facts->runtime_bytes,
        .version = facts->layout.version,
        .specific = k.specific,
        .key_bytes = k.key_bytes,
        .key_data = k.key_data,
        .block_keys = k.block_keys,
    };
    error = key_ask(r, &ask, &told);
    if (error < 0)
        return error;
    if (told.at % sizeof(uint32_t) != 0 || facts->runtime_bytes < PYTHON_TSS_BYTES ||
        told.at > facts->runtime_bytes - PYTHON_TSS_BYTES)
        return -ENOENT;
    facts->key_at = facts->runtime + told.at;
    kernel_fill(r, &k);
    r->kernel = k;
    r->py.state = PYTHON_READY;
    return 0;
}

/* ---- calls ---- */

/* As frame_at() of site/python_stack.c. */
static int64_t call_at(const struct python_layout *l, uint64_t code, uint64_t instr)
{
    if (l->code_start)
        return (int64_t)(instr - (code + l->code_start));
    int32_t number = (int32_t)instr;
    return l->link == PYTHON_LINK_RECORD ? (int64_t)number * CODE_UNIT : number;
}

static void run_push(struct python_stack *s, uint64_t stack)
{
    if (s->n_runs < PYTHON_FRAMES_MAX)
        s->runs[s->n_runs++] = (struct python_run){stack, s->n};
}

bool python_remote_stack(struct python_remote *r, const struct python_capture *capture)
{
    const struct python_layout *l = &r->py.facts.layout;
    struct python_stack *s = &r->stack;
    uint64_t last = 0;
    s->n = s->n_runs = 0;
    s->cut = capture->flags & PYTHON_CAPTURE_CUT;
    if (r->py.state != PYTHON_READY || capture->n > PYTHON_CAPTURE_ENTRIES)
        return false;
    for (uint32_t i = 0; i < capture->n; i++) {
        const struct python_capture_entry *e = &capture->entries[i];
        if (e->code != 0) {
            r->checks[s->n] = e->check;
            s->frames[s->n++] = (struct python_frame){e->code, call_at(l, e->code, e->at)};
            if (l->link == PYTHON_LINK_ORDER)
                run_push(s, 0);
        } else {
            if (e->at != 0 && e->at <= last) /* runs lead outwards */
                break;
            run_push(s, e->at);
            last = e->at ? e->at : last;
        }
    }
    /* What came after the last run that is whole belongs to none. */
    s->n = s->n_runs ? s->runs[s->n_runs - 1].end : 0;
    return s->n > 0;
}
