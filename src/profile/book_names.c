/* Words of a book. See book_names.h. */
#include "profile/book_names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"

enum { TEXT_MAX = 4096 };

int book_names_load(const struct ledger_book *book, struct book_names *ret_names)
{
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book);
    if (fd < 0)
        return fd;
    struct book_names names = {.book = book};
    int r = book_reader_sites(book->reader, fd, &names.copy);
    if (r < 0)
        return r;
    names.sites = calloc(names.copy.n_sites + 1, sizeof(*names.sites));
    if (!names.sites) {
        book_sites_release(&names.copy);
        return -ENOMEM;
    }
    *ret_names = names;
    return 0;
}

void book_names_release(struct book_names *names)
{
    for (size_t i = 0; names->sites && i < names->copy.n_sites; i++) {
        free(names->sites[i].text);
        free(names->sites[i].frame);
        free(names->sites[i].function);
        free(names->sites[i].file);
    }
    free(names->sites);
    if (names->book)
        book_sites_release(&names->copy);
    *names = (struct book_names){0};
}

const char *book_names_tag(const struct book_names *names, uint32_t tag)
{
    if (tag == 0 || tag >= names->copy.n_tags || !names->copy.tags[tag].name[0])
        return NULL;
    return names->copy.tags[tag].name;
}

static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A line of a script needs no symbols: the book has it. */
static void script_fill(const struct book_script *script, uint32_t line, struct book_site_name *to)
{
    if (asprintf(&to->text, "%s:%u in %s", base(script->file), line, script->function) < 0)
        to->text = NULL;
    if (asprintf(&to->frame, "%s:%u", script->file, line) < 0)
        to->frame = NULL;
    to->function = strdup(script->function);
    to->file = strdup(script->file);
    to->line = line;
}

static void frame_fill(const struct book_names *names, uint64_t frame, struct site_names *symbols,
                       struct book_site_name *to)
{
    const struct book_script *script = book_sites_script(&names->copy, frame);
    if (script) {
        script_fill(script, BOOK_FRAME_LINE(frame), to);
        return;
    }
    const struct book_module *module = book_sites_module(&names->copy, frame);
    const struct ledger_process *p = names->book->process;
    if (!module)
        return;
    struct site_code code = {
        .path = module->path[0] ? module->path : names->book->identity->exe,
        .build_id = module->build_id,
        .build_id_len = module->build_id_len <= sizeof(module->build_id) ? module->build_id_len : 0,
        .offset = BOOK_FRAME_OFFSET(frame),
        .started_real_ns = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : 0,
        .pid = names->book->dirfd < 0 ? p->pid : 0, /* a container's path is not ours */
        .map_start = module->map_start,
    };
    struct site_name name = site_names_find_code(symbols, &code);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    if (name.file)
        buffer_printf(&text, "%s:%u ", base(name.file), name.line);
    if (name.function)
        buffer_append_str(&text, name.function);
    else
        buffer_printf(&text, "%s+0x%" PRIx64, base(code.path), code.offset);
    to->text = strdup(buffer_string(&text));
    if (asprintf(&to->frame, "%s+0x%" PRIx64, code.path, code.offset) < 0)
        to->frame = NULL;
    to->function = name.function ? strdup(name.function) : NULL;
    to->file = name.file ? strdup(name.file) : NULL;
    to->line = name.line;
}

char *book_names_frame(const struct book_names *names, uint64_t frame, struct site_names *symbols)
{
    struct book_site_name name = {0};
    frame_fill(names, frame, symbols, &name);
    free(name.frame);
    free(name.function);
    free(name.file);
    return name.text;
}

const struct book_site_name *book_names_site(struct book_names *names, uint32_t site,
                                             struct site_names *symbols)
{
    if (site == 0 || site >= names->copy.n_sites || names->copy.sites[site].frames == 0)
        return NULL;
    struct book_site_name *name = &names->sites[site];
    if (!name->text)
        frame_fill(names, book_sites_frame(&names->copy, &names->copy.sites[site]), symbols, name);
    return name->text ? name : NULL;
}
