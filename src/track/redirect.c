/* redirect.c: see redirect.h. */
#include "track/redirect.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "site/module.h"
#include "site/module_symbol.h"
#include "track/chosen.h"
#include "track/real.h"

/* Those of them that our library has are redirected. */
static const char names[][20] = {
    "malloc",         "free",        "calloc",   "realloc",   "reallocarray",       "memalign",
    "aligned_alloc",  "valloc",      "pvalloc",  "mallopt",   "malloc_usable_size", "malloc_trim",
    "posix_memalign", "malloc_info", "mallinfo", "mallinfo2", "malloc_stats",       "mmap",
    "mmap64",         "munmap",      "mremap",
};
enum { N_NAMES = sizeof(names) / sizeof(names[0]), WAITS_MAX = 100000 };

/* One thread makes the pages writable, stores and protects them again; others wait. */
enum state { STATE_NEW, STATE_BUSY, STATE_DONE, STATE_OTHERS, STATE_FAILED };
static uint32_t state;

struct change {
    ElfW(Sym) * symbol;
    ElfW(Addr) value;
};

/* Does the program's malloc() lead to us, perhaps by a library in front of us, and does nothing come between us and libc? A library there
 * would find ours when it looks for libc's, and ours calls that library. */
static enum redirect is_wanted(const struct module_object *own, const struct module_object *libc)
{
    struct module_symbol ours, theirs;
    uintptr_t chosen = chosen_symbol("malloc");
    if (module_symbol_find(own, "malloc", &ours) < 0 ||
        (chosen != ours.addr && !real_is_below((void *)chosen, (void *)chosen_symbol("free"))))
        return REDIRECT_OTHERS;
    if (module_symbol_find(libc, "malloc", &theirs) < 0)
        return REDIRECT_FAILED;
    return real_is_over((void *)theirs.addr) ? REDIRECT_DONE : REDIRECT_FAILED;
}

/* Each of our names comes to what the program itself calls by it. */
static uint32_t changes_find(const struct module_object *own, const struct module_object *libc,
                             struct change *ret)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_NAMES; i++) {
        struct module_symbol ours, theirs;
        if (module_symbol_find(own, names[i], &ours) < 0 ||
            module_symbol_find(libc, names[i], &theirs) < 0 ||
            ELF64_ST_TYPE(theirs.entry->st_info) != STT_FUNC)
            continue;
        ret[n++] =
            (struct change){(ElfW(Sym) *)theirs.entry, chosen_symbol(names[i]) - libc->map->l_addr};
    }
    return n;
}

/* Code may run in pages of a segment that has some, so these stay as they are. */
static bool changes_store(const struct module_object *libc, const struct change *changes,
                          uint32_t n)
{
    uintptr_t page = getauxval(AT_PAGESZ), lo = UINTPTR_MAX, hi = 0;
    for (uint32_t i = 0; i < n; i++) {
        uintptr_t at = (uintptr_t)changes[i].symbol, end = at + sizeof(*changes[i].symbol);
        lo = at < lo ? at : lo;
        hi = end > hi ? end : hi;
    }
    if (n == 0 || page == 0 || module_segment_flags(libc, lo) != PF_R ||
        module_segment_flags(libc, hi - 1) != PF_R)
        return false;
    lo &= ~(page - 1);
    hi = (hi + page - 1) & ~(page - 1);
    if (mprotect((void *)lo, hi - lo, PROT_READ | PROT_WRITE) < 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        store_relaxed(&changes[i].symbol->st_value, changes[i].value);
    (void)mprotect((void *)lo, hi - lo, PROT_READ);
    return true;
}

/* By functions that we import anyway. The address of one may be that of a stub in a program which is linked at a fixed address. */
bool redirect_libc_find(struct module_object *ret_libc)
{
    const uintptr_t inside[] = {(uintptr_t)syscall, (uintptr_t)pthread_sigmask,
                                (uintptr_t)getauxval};
    struct module_symbol symbol;
    for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
        if (module_object_find(inside[i], ret_libc) == 0 &&
            module_symbol_find(ret_libc, "gnu_get_libc_version", &symbol) == 0)
            return true;
    return false;
}

static enum redirect redirect_now(void)
{
    struct module_object own, libc;
    struct change changes[N_NAMES];
    if (module_object_find((uintptr_t)&state, &own) < 0 || !redirect_libc_find(&libc))
        return REDIRECT_FAILED;
    enum redirect wanted = is_wanted(&own, &libc);
    if (wanted != REDIRECT_DONE)
        return wanted;
    uint32_t n = changes_find(&own, &libc, changes);
    return changes_store(&libc, changes, n) ? REDIRECT_DONE : REDIRECT_FAILED;
}

bool redirect_has(const char *name)
{
    for (uint32_t i = 0; i < N_NAMES; i++)
        if (name[0] == names[i][0] && strcmp(name, names[i]) == 0)
            return true;
    return false;
}

enum redirect redirect_libc(void)
{
    uint32_t before = STATE_NEW;
    if (cas_acquire(&state, &before, STATE_BUSY)) {
        int saved = errno;
        before = STATE_DONE + redirect_now();
        errno = saved;
        store_release(&state, before);
    }
    /* In a child that was forked meanwhile nobody ends it. */
    for (unsigned i = 0; before == STATE_BUSY && i < WAITS_MAX; i++) {
        sched_yield();
        before = load_acquire(&state);
    }
    return before == STATE_BUSY ? REDIRECT_FAILED : (enum redirect)(before - STATE_DONE);
}
