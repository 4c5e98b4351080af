/* Bounds of readable stacks; see the header for the reasoning. */
#include "site/stack.h"

#include <errno.h>
#include <sys/auxv.h>

#include "base/atomic.h"
#include "site/arch.h"

__thread struct stack_known stack_known __attribute__((tls_model("initial-exec")));

static uintptr_t page_of(uintptr_t addr)
{
    return addr & ~(uintptr_t)(STACK_PAGE - 1);
}

static bool page_readable(uintptr_t page)
{
    /* -1 is no valid `how`; EINVAL comes only after the set was copied from the page. */
    return arch_syscall4(SYS_rt_sigprocmask, -1, (long)page, 0, 8) == -EINVAL;
}

bool stack_probe(uintptr_t addr, uintptr_t len)
{
    if (len == 0)
        return true;
    uintptr_t last = addr + len - 1;
    if (last < addr)
        return false;
    for (uintptr_t page = page_of(addr); page <= page_of(last); page += STACK_PAGE)
        if (!page_readable(page))
            return false;
    return true;
}

/* The top of this thread's own stack. The main thread's descriptor is not on its stack (it may well
 * lie just above some coroutine's), so the two kinds of thread are told apart first. In a child forked
 * by another thread the surviving thread counts as main: its stack is then foreign, which is safe. */
static uintptr_t own_top(void)
{
    bool main_thread =
        arch_syscall4(SYS_gettid, 0, 0, 0, 0) == arch_syscall4(SYS_getpid, 0, 0, 0, 0);
    uintptr_t top = main_thread ? getauxval(AT_RANDOM) : arch_thread_pointer();
    return top & ~(sizeof(uintptr_t) - 1);
}

/* Probe from sp up to `to`; if there is a hole, remember what lies below it as foreign. */
static bool own_confirm(uintptr_t sp, uintptr_t to)
{
    uintptr_t from = page_of(sp);
    if (to <= from || (to - from) / STACK_PAGE > STACK_OWN_PAGES_MAX)
        return false;
    for (uintptr_t page = from; page < to; page += STACK_PAGE) {
        if (!page_readable(page)) {
            store_relaxed(&stack_known.foreign_lo, from);
            store_relaxed(&stack_known.foreign_hi, page);
            return false;
        }
    }
    return true;
}

bool stack_own_find(uintptr_t sp, struct stack_bounds *ret_bounds)
{
    uintptr_t lo = load_relaxed(&stack_known.own_lo), hi = load_relaxed(&stack_known.own_hi);
    if (lo == 0 || sp < lo || sp >= hi) {
        if (sp >= load_relaxed(&stack_known.foreign_lo) &&
            sp < load_relaxed(&stack_known.foreign_hi))
            return false;
        bool grown = lo != 0 && sp < lo;
        uintptr_t top = grown ? hi : own_top();
        if (sp >= top || !own_confirm(sp, grown ? lo : top))
            return false;
        lo = page_of(sp);
        hi = top;
        store_relaxed(&stack_known.own_hi, hi);
        fence_signal(); /* lo says that hi is there */
        store_relaxed(&stack_known.own_lo, lo);
    }
    *ret_bounds = (struct stack_bounds){.lo = lo, .hi = hi, .limit = hi};
    return true;
}

void stack_bounds_find(uintptr_t sp, struct stack_bounds *ret_bounds)
{
    if (stack_own_find(sp, ret_bounds))
        return;
    uintptr_t page = page_of(sp);
    uintptr_t span = (uintptr_t)STACK_FOREIGN_PAGES_MAX * STACK_PAGE;
    if (page > UINTPTR_MAX - span || !page_readable(page)) {
        *ret_bounds = (struct stack_bounds){0};
        return;
    }
    *ret_bounds = (struct stack_bounds){.lo = page, .hi = page + STACK_PAGE, .limit = page + span};
}

bool stack_reach(struct stack_bounds *bounds, uintptr_t addr)
{
    uintptr_t end = addr + sizeof(uintptr_t);
    if (addr < bounds->lo || end < addr || end > bounds->limit)
        return false;
    while (bounds->hi < end) {
        if (!page_readable(bounds->hi))
            return false;
        bounds->hi += STACK_PAGE;
    }
    return true;
}
