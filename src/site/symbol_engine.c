/* Modules by elfutils: open, keep a few, look addresses up in symbol tables and DWARF. */
#include "site/symbol_engine.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "site/demangle.h"
#include "site/symbol_debug.h"
#include "site/symbol_scope.h"

/* Which file this is; a file that is replaced or changed gets another one. */
struct file_id {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

struct module {
    struct module *next; /* more recently used first */
    struct file_id id;
    uint32_t owner;            /* of the query: debug files are found with this user's rights */
    struct symbol_debug debug; /* where its debug information may be */
    Dwarf *alternate;          /* that its debug information refers to (dwz), or NULL */
    int alternate_fd;
    bool alternate_tried;
    Dwfl *dwfl;
    Dwfl_Module *dwfl_module;
    struct symbol_units *units; /* made when it is needed */
    GElf_Addr bias;             /* libdwfl's addresses minus the file's */
    int error;                  /* the file is none of ours: stays so */
};

struct symbol_engine {
    struct module *modules;
    unsigned count;
    unsigned max;
    symbol_give *give;
    void *context; /* of `give` */
};

int symbol_engine_new(unsigned modules_max, symbol_give *give, void *context,
                      struct symbol_engine **ret_engine)
{
    struct symbol_engine *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->max = modules_max > 0 ? modules_max : 1;
    e->give = give;
    e->context = context;
    elf_version(EV_CURRENT);
    *ret_engine = e;
    return 0;
}

static void module_free(struct module *m)
{
    if (!m)
        return;
    symbol_units_free(m->units);
    if (m->dwfl)
        dwfl_end(m->dwfl);
    if (m->alternate)
        dwarf_end(m->alternate);
    if (m->alternate_fd >= 0)
        close(m->alternate_fd);
    symbol_debug_release(&m->debug);
    free(m);
}

void symbol_engine_free(struct symbol_engine *engine)
{
    if (!engine)
        return;
    for (struct module *m = engine->modules, *next; m; m = next) {
        next = m->next;
        module_free(m);
    }
    free(engine);
}

static int file_id_of(int fd, struct file_id *ret_id)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    *ret_id = (struct file_id){
        .dev = st.st_dev, .ino = st.st_ino, .size = st.st_size, .mtime = st.st_mtim};
    return 0;
}

static bool file_id_equal(const struct file_id *a, const struct file_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* libdwfl asks for debug information: answer from what came with the query, then from what the symbolizer can open;
 * never from a server. */
static int find_debuginfo(Dwfl_Module *dwfl_module, void **userdata, const char *name,
                          Dwarf_Addr base, const char *file, const char *debuglink,
                          GElf_Word debuglink_crc, char **debuginfo_name)
{
    struct module *m = *userdata;
    const unsigned char *id = NULL;
    GElf_Addr vaddr;
    int len = m ? dwfl_module_build_id(dwfl_module, &id, &vaddr) : -1;
    if (!m)
        return -1;
    return symbol_debug_find(&m->debug, id, len > 0 ? (size_t)len : 0, debuglink, debuglink_crc);
}

/* Everything is reported by descriptor: there is nothing to look for. */
static int find_elf(Dwfl_Module *dwfl_module, void **userdata, const char *name, Dwarf_Addr base,
                    char **file_name, Elf **elf)
{
    return -1;
}

static const Dwfl_Callbacks callbacks = {
    .find_elf = find_elf,
    .find_debuginfo = find_debuginfo,
    .section_address = dwfl_offline_section_address,
};

static int module_open(struct module *m, int fd)
{
    void **userdata;
    m->dwfl = dwfl_begin(&callbacks);
    if (!m->dwfl) {
        close(fd);
        return -ENOMEM;
    }
    dwfl_report_begin(m->dwfl);
    /* The name decides nothing, but a name ending in .a or .ko would be treated specially. */
    m->dwfl_module = dwfl_report_offline(m->dwfl, "module", "module", fd);
    dwfl_report_end(m->dwfl, NULL, NULL);
    if (!m->dwfl_module) {
        close(fd); /* kept by us if it was not accepted */
        return -EBADMSG;
    }
    Elf *elf = dwfl_module_getelf(m->dwfl_module, &m->bias);
    GElf_Ehdr ehdr;
    if (!elf || !gelf_getehdr(elf, &ehdr) || (ehdr.e_type != ET_DYN && ehdr.e_type != ET_EXEC))
        return -EBADMSG;
    dwfl_module_info(m->dwfl_module, &userdata, NULL, NULL, NULL, NULL, NULL, NULL);
    *userdata = m;
    return 0;
}

/* Drop the least recently used beyond the limit. */
static void modules_trim(struct symbol_engine *e)
{
    while (e->count > e->max) {
        struct module **last = &e->modules;
        while ((*last)->next)
            last = &(*last)->next;
        module_free(*last);
        *last = NULL;
        e->count--;
    }
}

static void module_add(struct symbol_engine *e, struct module *m)
{
    m->next = e->modules;
    e->modules = m;
    e->count++;
    modules_trim(e);
}

/* Debug information may refer to a file that several share, which libdw would open by its path. */
static void alternate_set(struct module *m)
{
    Dwarf_Addr bias;
    const char *name;
    const void *id;
    if (m->alternate_tried)
        return;
    m->alternate_tried = true;
    Dwarf *dwarf = dwfl_module_getdwarf(m->dwfl_module, &bias);
    ssize_t len = dwarf ? dwelf_dwarf_gnu_debugaltlink(dwarf, &name, &id) : 0;
    if (len <= 0)
        return;
    m->alternate_fd = symbol_debug_alternate(&m->debug, id, (size_t)len, name);
    m->alternate = m->alternate_fd >= 0 ? dwarf_begin(m->alternate_fd, DWARF_C_READ) : NULL;
    if (m->alternate)
        dwarf_setalt(dwarf, m->alternate);
}

/* The module for an open file, which is taken; moved to the front of the list. */
static int module_get(struct symbol_engine *e, int *fd, int *debug_fd, uint32_t owner,
                      struct module **ret_module)
{
    struct file_id id;
    int r = file_id_of(*fd, &id);
    if (r < 0)
        return r;
    for (struct module **at = &e->modules; *at; at = &(*at)->next) {
        struct module *m = *at;
        if (m->owner != owner || !file_id_equal(&m->id, &id))
            continue;
        *at = m->next;
        m->next = e->modules;
        e->modules = m;
        *ret_module = m;
        return m->error;
    }
    struct module *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    m->id = id;
    m->owner = owner;
    m->alternate_fd = -1;
    symbol_debug_init(&m->debug, debug_fd ? MEMOIR_TAKE_FD(*debug_fd) : -1, e->give, e->context);
    m->error = module_open(m, MEMOIR_TAKE_FD(*fd));
    module_add(e, m);
    *ret_module = m;
    return m->error;
}

/* Has this file the wanted build-id? True if none is wanted. */
static bool build_is(const struct module *m, const struct symbol_query *q)
{
    const unsigned char *id;
    GElf_Addr vaddr;
    if (q->build_id_len == 0)
        return true;
    int len = dwfl_module_build_id(m->dwfl_module, &id, &vaddr);
    return len > 0 && (size_t)len == q->build_id_len &&
           memcmp(id, q->build_id, q->build_id_len) == 0;
}

/* The file to ask: the module itself if it is the right build, or else the debug file of that build,
 * which has symbols at the same addresses. */
static int module_choose(struct symbol_engine *e, const struct symbol_query *q,
                         struct symbol_files *files, struct module **ret_module)
{
    int r = files->main_error;
    if (files->main_fd >= 0) {
        int *debug = &files->debug_fd;
        struct module *m = NULL;
        /* The debug file is lent to the module only if that is what it belongs to: a copy. */
        int copy = *debug >= 0 ? dup(*debug) : -1;
        r = module_get(e, &files->main_fd, &copy, q->owner, &m);
        if (copy >= 0)
            close(copy);
        if (r == 0 && build_is(m, q)) {
            *ret_module = m;
            return 0;
        }
        if (r == 0)
            r = -ESTALE;
    }
    if (files->debug_fd >= 0) {
        struct module *m = NULL;
        int d = module_get(e, &files->debug_fd, NULL, q->owner, &m);
        if (d == 0 && build_is(m, q)) {
            *ret_module = m;
            return 0;
        }
    }
    return r < 0 ? r : -ENOENT;
}

struct symbol_lookup symbol_engine_find(struct symbol_engine *engine,
                                        const struct symbol_query *query,
                                        struct symbol_files *files)
{
    struct module *m = NULL;
    int r = module_choose(engine, query, files, &m);
    symbol_files_close(files);
    return (struct symbol_lookup){r == 0 ? m : NULL, r, query->is_return_address};
}

void symbol_engine_look_up(const struct symbol_lookup *lookup, uint64_t offset,
                           struct buffer *record)
{
    size_t start = record->len;
    struct symbol_record header = {0};
    int r = lookup->error;
    buffer_append(record, &header, sizeof(header));
    if (lookup->module) {
        struct module *m = lookup->module;
        alternate_set(m);
        struct symbol_place place = {.module = m->dwfl_module,
                                     .units = &m->units,
                                     .address = offset + m->bias,
                                     .is_return_address = lookup->is_return_address};
        r = symbol_scope_resolve(&place, record);
    }
    header.result = r < 0 ? r : 0;
    header.frames = r < 0 ? 0 : (uint32_t)r;
    if (!record->error && record->len >= start + sizeof(header)) {
        if (r < 0)
            record->len = start + sizeof(header);
        memcpy(record->data + start, &header, sizeof(header));
    }
}

void symbol_engine_resolve(struct symbol_engine *engine, const struct symbol_query *query,
                           struct symbol_files *files, struct buffer *record)
{
    struct symbol_lookup lookup = symbol_engine_find(engine, query, files);
    symbol_engine_look_up(&lookup, query->offset, record);
}
