/* Attaching probes to library files: one session link for all entries and returns, or one
 * uprobe_multi link for all entries and one for all returns, where the kernel has no sessions. A
 * link for each function would take 20 seconds to detach. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "bpf/object.h"
#include "observe/elf_file.h"
#include "observe/kernel_internal.h"
#include "observe/probe_table.h"
#include "observe/uprobe_link.h"

enum { SYMBOLS_MAX = 512 };

/* The functions of a table that a library exports. */
struct symbols {
    const struct probe_table *table;
    struct {
        char name[PROBE_NAME_MAX];
        uint32_t number;
    } wanted[SYMBOLS_MAX];
    size_t n_wanted;
    uint64_t offsets[SYMBOLS_MAX], cookies[SYMBOLS_MAX];
    size_t n;
};

static int wanted_add(void *context, const struct probe_symbol *symbol)
{
    struct symbols *s = context;
    if (s->n_wanted == SYMBOLS_MAX)
        return -E2BIG;
    snprintf(s->wanted[s->n_wanted].name, PROBE_NAME_MAX, "%s", symbol->name);
    s->wanted[s->n_wanted++].number = symbol->number;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b); /* the name comes first */
}

/* Two names of one function are one probe. */
static void export_take(void *context, const struct elf_function *function)
{
    struct symbols *s = context;
    const char *name = function->name;
    uint64_t offset = function->offset;
    char key[PROBE_NAME_MAX];
    if (strlen(name) >= sizeof(key) || s->n == SYMBOLS_MAX)
        return;
    snprintf(key, sizeof(key), "%s", name);
    const uint32_t *found = NULL;
    const char *row = bsearch(key, s->wanted, s->n_wanted, sizeof(s->wanted[0]), by_name);
    if (!row)
        return;
    found = (const uint32_t *)(row + PROBE_NAME_MAX);
    for (size_t i = 0; i < s->n; i++)
        if (s->offsets[i] == offset)
            return;
    s->offsets[s->n] = offset;
    s->cookies[s->n++] = *found;
}

static int link_make(const struct bpf_program *program, int fd, const struct symbols *s, bool leave,
                     enum uprobe_link_type type)
{
    uint64_t offsets[SYMBOLS_MAX], cookies[SYMBOLS_MAX];
    struct uprobe_places places = {offsets, cookies, 0};
    for (size_t i = 0; i < s->n; i++) {
        const struct probe_function *f = probe_function_get((uint32_t)s->cookies[i]);
        if (leave && f && !wire_op_returns(f->wire.op))
            continue;
        offsets[places.n] = s->offsets[i];
        cookies[places.n++] = s->cookies[i];
    }
    return uprobe_link_make(bpf_program__fd(program), fd, type, &places, leave, 0);
}

static void pin_path(const struct kernel *k, const struct attached *a, const char *what,
                     char path[static PINS_PATH_MAX + KERNEL_NAME_MAX])
{
    snprintf(path, PINS_PATH_MAX + KERNEL_NAME_MAX, "%s/probes-%lx-%lx-%d-%s", k->pins,
             (unsigned long)a->device, (unsigned long)a->inode, a->functions, what);
}

static int link_pin(const struct kernel *k, const struct attached *a, int link, const char *what)
{
    char path[PINS_PATH_MAX + KERNEL_NAME_MAX];
    pin_path(k, a, what, path);
    if (bpf_obj_pin(link, path) == 0)
        return 0;
    if (errno != EEXIST || unlink(path) < 0) /* of an observer that was killed between the two */
        return -errno;
    return bpf_obj_pin(link, path) < 0 ? -errno : 0;
}

static void link_unpin(const struct kernel *k, const struct attached *a, const char *what)
{
    char path[PINS_PATH_MAX + KERNEL_NAME_MAX];
    pin_path(k, a, what, path);
    unlink(path);
}

static struct attached *attached_find(struct kernel *k, const struct stat *st)
{
    for (size_t i = 0; i < k->n_attached; i++)
        if (k->attached[i].device == st->st_dev && k->attached[i].inode == st->st_ino)
            return &k->attached[i];
    return NULL;
}

/* Users may have files of that name, too: they leave room for the driver's and for each other's. */
static bool owner_admitted(const struct kernel *k, uid_t owner)
{
    size_t own = 0, users = 0;
    for (size_t i = 0; i < k->n_attached; i++) {
        own += k->attached[i].owner == owner;
        users += k->attached[i].owner != 0;
    }
    return owner == 0 || (own < LIBRARIES_OWNER_MAX && users < LIBRARIES_USERS_MAX);
}

static bool was_refused(const struct kernel *k, const struct stat *st)
{
    for (size_t i = 0; i < k->n_refused && i < REFUSED_MAX; i++) {
        const struct refused *r = &k->refused[i];
        if (r->device == st->st_dev && r->inode == st->st_ino &&
            r->changed.tv_sec == st->st_ctim.tv_sec && r->changed.tv_nsec == st->st_ctim.tv_nsec)
            return true;
    }
    return false;
}

static void refuse(struct kernel *k, const struct stat *st)
{
    k->refused[k->n_refused++ % REFUSED_MAX] =
        (struct refused){st->st_dev, st->st_ino, st->st_ctim};
}

static void attached_drop(struct kernel *k, struct attached *a)
{
    link_unpin(k, a, "enter");
    link_unpin(k, a, "leave");
    closep(&a->enter);
    closep(&a->leave);
    *a = k->attached[--k->n_attached];
}

void kernel_attached_unmark(struct kernel *k)
{
    for (size_t i = 0; i < k->n_attached; i++)
        k->attached[i].used = k->attached[i].keep;
}

void kernel_attached_mark(struct kernel *k, int fd)
{
    struct stat st;
    struct attached *a = fstat(fd, &st) == 0 ? attached_find(k, &st) : NULL;
    if (a)
        a->used = true;
}

void kernel_attached_keep(struct kernel *k, int fd)
{
    struct stat st;
    struct attached *a = fstat(fd, &st) == 0 ? attached_find(k, &st) : NULL;
    if (a)
        a->keep = true;
}

void kernel_attached_mark_all(struct kernel *k)
{
    for (size_t i = 0; i < k->n_attached; i++)
        k->attached[i].used = true;
}

void kernel_attached_release(struct kernel *k, int fd)
{
    struct stat st;
    struct attached *a = fstat(fd, &st) == 0 ? attached_find(k, &st) : NULL;
    if (a)
        a->used = false;
}

size_t kernel_attached_evict(struct kernel *k)
{
    size_t n = 0;
    for (size_t i = k->n_attached; i > 0 && n < LIBRARIES_EVICTED_MAX; i--) {
        if (k->attached[i - 1].used)
            continue;
        attached_drop(k, &k->attached[i - 1]);
        n++;
    }
    return n;
}

bool kernel_attached_passing(const struct kernel *k)
{
    for (size_t i = 0; i < k->n_attached; i++)
        if (!k->attached[i].keep)
            return true;
    return false;
}

size_t kernel_attached_age(struct kernel *k)
{
    for (size_t i = 0; i < k->n_attached; i++) {
        struct attached *a = &k->attached[i];
        a->idle = a->used ? 0 : (uint8_t)(a->idle + 1);
        a->used |= a->idle < LIBRARIES_IDLE_ROUNDS;
    }
    return kernel_attached_evict(k);
}

/* Returns first: a call between the two is then told as one whose entry was not seen, and not
 * kept open for ever. */
static int both_attach(struct kernel *k, struct attached *a, int fd, const struct symbols *s)
{
    a->leave = link_make(k->leave, fd, s, true, UPROBE_LINK_MULTI);
    if (a->leave < 0)
        return a->leave;
    a->enter = link_make(k->enter, fd, s, false, UPROBE_LINK_MULTI);
    if (a->enter < 0) {
        close(a->leave);
        return a->enter;
    }
    int r = link_pin(k, a, a->leave, "leave");
    if (r == 0)
        r = link_pin(k, a, a->enter, "enter");
    if (r < 0) {
        link_unpin(k, a, "leave");
        close(a->leave);
        close(a->enter);
    }
    return r;
}

static int session_attach(struct kernel *k, struct attached *a, int fd, const struct symbols *s)
{
    a->enter = link_make(k->session, fd, s, false, UPROBE_LINK_SESSION);
    if (a->enter < 0)
        return a->enter;
    int r = link_pin(k, a, a->enter, "enter");
    if (r < 0)
        closep(&a->enter);
    return r;
}

void kernel_parser_set(struct kernel *k, struct elf_parser *parser)
{
    k->parser = parser;
}

int kernel_attach(struct kernel *k, const struct probe_table *table, int fd, char *why)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return object_fail(why, -errno, "looking at the library");
    struct attached *there = attached_find(k, &st);
    if (there) {
        there->owner = accountable_uid(st.st_uid); /* not known of one that was taken over */
        return there->functions;
    }
    if (!S_ISREG(st.st_mode) || was_refused(k, &st))
        return -EALREADY;
    if (k->n_attached == LIBRARIES_MAX || !owner_admitted(k, accountable_uid(st.st_uid)))
        return object_fail(why, -EUSERS, "attaching to one more library");
    MEMOIR_CLEANUP(freep)
    struct symbols *s = calloc(1, sizeof(*s));
    if (!s)
        return object_fail(why, -ENOMEM, "attaching");
    s->table = table;
    int r = probe_table_each(table, wanted_add, s);
    if (r == 0) {
        qsort(s->wanted, s->n_wanted, sizeof(s->wanted[0]), by_name);
        r = elf_file_exports(k->parser, elf_file_pread, &fd, export_take, s);
    }
    if (r == 0 && s->n == 0)
        r = -ENOENT;
    if (r < 0) {
        if (r != -EBUSY) /* the parser does not run now */
            refuse(k, &st);
        return object_fail(why, r, "finding functions to probe");
    }
    struct attached *a = &k->attached[k->n_attached];
    *a = (struct attached){.device = st.st_dev,
                           .inode = st.st_ino,
                           .functions = (int)s->n,
                           .owner = accountable_uid(st.st_uid),
                           .enter = -1,
                           .leave = -1};
    uint64_t start_ns = clock_monotonic_ns();
    r = k->has_session ? session_attach(k, a, fd, s) : both_attach(k, a, fd, s);
    k->attach_ns += clock_monotonic_ns() - start_ns;
    if (r < 0) {
        refuse(k, &st);
        return uprobe_link_fail(why, KERNEL_WHY_MAX, r);
    }
    k->n_attached++;
    return a->functions;
}

size_t kernel_attached(const struct kernel *k)
{
    return k->n_attached;
}

uint64_t kernel_attach_ns(const struct kernel *k)
{
    return k->attach_ns;
}

void attach_adopt(struct kernel *k)
{
    DIR *dir = opendir(k->pins);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        unsigned long device, inode;
        int functions, end = 0;
        if (sscanf(entry->d_name, "probes-%lx-%lx-%d-enter%n", &device, &inode, &functions, &end) !=
                3 ||
            end == 0 || entry->d_name[end] || k->n_attached == LIBRARIES_MAX)
            continue;
        k->attached[k->n_attached++] = (struct attached){
            .device = device, .inode = inode, .enter = -1, .leave = -1, .functions = functions};
    }
    if (dir)
        closedir(dir);
}

uint64_t kernel_detach(struct kernel *k)
{
    uint64_t start_ns = clock_monotonic_ns();
    for (size_t i = 0; i < k->n_attached; i++) {
        link_unpin(k, &k->attached[i], "enter");
        link_unpin(k, &k->attached[i], "leave");
    }
    attach_release(k);
    return clock_monotonic_ns() - start_ns;
}

void attach_release(struct kernel *k)
{
    for (size_t i = 0; i < k->n_attached; i++) {
        closep(&k->attached[i].enter);
        closep(&k->attached[i].leave);
    }
    k->n_attached = 0;
}
