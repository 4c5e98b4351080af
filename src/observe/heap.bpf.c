/* Probes on the allocator of one process.
 *
 * The live table is kept here, and counters by caller, so that the observer has nothing to do for a
 * call: it reads the counters a few times a second. The order of things makes the table exact:
 *  - a block enters at the return of its allocation, before the program has the address;
 *  - it leaves at the entry of its free, before the allocator can give the address out again;
 *  - realloc takes it out at entry, and puts it back at return if the call failed.
 *
 * An allocation is seen at its entry (the size) and at its return (the block). Nothing that can throw
 * has a return probe: an exception cannot pass the kernel's trampoline. operator new is seen at its
 * ret instructions instead (code_returns.h). Frees are seen at entry alone. Of most calls only the return address is looked at; the whole stack is copied for a random
 * sample of all bytes. */
#include "observe/heap_wire.h"
#include "observe/wire.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "observe/machine.bpf.h"
#include "observe/python.bpf.h"

enum { NOEXIST = 1, ANY = 0, MMAPABLE = 1 << 10, E_EXIST = 17, RING_NO_WAKEUP = 1 };

struct heap_state state = {};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, HEAP_BLOCKS_MAX);
    __type(key, uint64_t);
    __type(value, struct heap_block);
} blocks SEC(".maps");

/* The number of a node by its place. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, HEAP_NODES_MAX);
    __type(key, struct heap_key);
    __type(value, uint32_t);
} callers SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, MMAPABLE);
    __uint(max_entries, HEAP_NODES_MAX);
    __type(key, uint32_t);
    __type(value, struct heap_node);
} nodes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, HEAP_RING_BYTES);
} ring SEC(".maps");

/* What a thread keeps from the entry of a call to its return. */
struct kept {
    uint64_t size, address;    /* posix_memalign: where the block is told; realloc: the old one */
    struct heap_block removed; /* by realloc; node 0: none */
    uint64_t begun;
};

struct thread {
    /* An outer call (realloc, posix_memalign) may call malloc: each has its place. */
    struct kept outer, inner;
    struct {
        uint64_t sp, caller, size; /* of operator new; sp 0: none is under way */
    } news;
    uint64_t freed; /* the last block, where operator delete is probed */
    struct python_capture python;
    struct python_scratch scratch;
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct thread *thread_here(bool make)
{
    return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0,
                                make ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
}

static __always_inline struct heap_node *node_at(uint32_t number)
{
    return bpf_map_lookup_elem(&nodes, &number);
}

/* ---- callers ---- */

/* A new one. Two threads that meet it at the same time may both take a number: one stays empty. */
static __noinline uint32_t node_make(struct heap_key *key)
{
    uint32_t number = __sync_fetch_and_add(&state.n_nodes, 1) + 1;
    struct heap_node *node = number < HEAP_NODES_MAX ? node_at(number) : 0;
    if (!node) {
        __sync_fetch_and_add(&state.lost_nodes, 1);
        return key->parent;
    }
    node->parent = key->parent;
    if (bpf_map_update_elem(&callers, key, &number, NOEXIST) == 0) {
        node->pc = key->pc; /* last: it is there now */
        return number;
    }
    const uint32_t *other = bpf_map_lookup_elem(&callers, key);
    return other ? *other : key->parent;
}

/* The node of a call that has returned. */
static __always_inline uint32_t node_of(uint64_t pc, uint64_t sp)
{
    struct heap_key key = {.pc = pc};
    uint32_t number = 0;
    for (int level = 0; level < HEAP_LEVELS_MAX; level++) {
        const uint32_t *found = bpf_map_lookup_elem(&callers, &key);
        number = found ? *found : node_make(&key);
        const struct heap_node *node = node_at(number);
        uint32_t hop = node ? node->hop : 0;
        if (!hop || bpf_probe_read_user(&key.pc, sizeof(key.pc), (void *)(sp + hop)) < 0)
            break;
        key.parent = number;
        sp += hop + 8;
    }
    return number;
}

/* ---- stacks ---- */

/* Page by page: a read across the end of the stack fails as a whole. */
static __always_inline void bytes_take(struct heap_stack *s)
{
    uint64_t sp = s->sp;
    uint32_t n = HEAP_PAGE - (uint32_t)(sp & (HEAP_PAGE - 1));
    s->n_bytes = 0;
    if (n > HEAP_PAGE || bpf_probe_read_user(s->bytes, n, (void *)sp) < 0)
        return;
    for (int i = 0; i < HEAP_STACK_PAGES - 1; i++) {
        if (n > HEAP_STACK_BYTES - HEAP_PAGE ||
            bpf_probe_read_user(s->bytes + n, HEAP_PAGE, (void *)(sp + n)) < 0)
            break;
        n += HEAP_PAGE;
    }
    s->n_bytes = n;
}

static __noinline void python_take(struct heap_stack *s)
{
    struct thread *t = thread_here(true);
    s->python.n = 0;
    s->python.hash = 0;
    if (!t || !python_capture_take(&state.python, &t->python, &t->scratch))
        return;
    bpf_probe_read_kernel(&s->python, sizeof(s->python), &t->python);
}

/* A block of n bytes is taken with probability n / mean, and stands for `mean` bytes then. */
static __always_inline bool is_sampled(const struct heap_node *node, uint64_t size,
                                       uint32_t *ret_mean)
{
    uint32_t mean = node->mean ? node->mean : state.mean;
    *ret_mean = mean;
    return mean && (size >= mean || (bpf_get_prandom_u32() & 0x7fffffff) < (size << 31) / mean);
}

/* Where a call comes back to: registers after the return. */
struct caller {
    const struct pt_regs *regs;
    uint64_t ip, sp;
};

static __always_inline bool stack_tell(const struct caller *caller, uint64_t address, uint64_t size,
                                       uint32_t number, uint32_t mean)
{
    struct heap_stack *s = bpf_ringbuf_reserve(&ring, sizeof(*s), 0);
    if (!s) {
        __sync_fetch_and_add(&state.lost_samples, 1);
        return false;
    }
    s->record = HEAP_RECORD_STACK;
    s->tid = (uint32_t)bpf_get_current_pid_tgid();
    s->address = address;
    s->size = size;
    s->time_ns = bpf_ktime_get_ns();
    s->node = number;
    s->mean = mean;
    REGISTERS_TAKE(s, caller->regs);
    s->ip = caller->ip;
    s->sp = caller->sp;
    bytes_take(s);
    if (state.has_python)
        python_take(s);
    else
        s->python.n = 0;
    bpf_ringbuf_submit(s, 0);
    return true;
}

static __noinline void gone_tell(uint32_t record, uint64_t address)
{
    struct heap_gone *g = bpf_ringbuf_reserve(&ring, sizeof(*g), 0);
    if (!g) {
        __sync_fetch_and_add(&state.lost_samples, 1);
        return;
    }
    g->record = record;
    g->tid = (uint32_t)bpf_get_current_pid_tgid();
    g->address = address;
    bpf_ringbuf_submit(g, record == HEAP_RECORD_GONE ? RING_NO_WAKEUP : 0);
}

/* ---- blocks ---- */

static __always_inline uint32_t time_now(void)
{
    return (uint32_t)(bpf_ktime_get_ns() >> HEAP_TIME_SHIFT);
}

/* A block of an age that came and went in one window stands for others of that age whose free the end of the window hid: of all that
 * are allocated in it, (units - age) / units are freed in it. What it stands for beyond itself, in 256ths. */
static __always_inline uint32_t extra_of(uint32_t age, uint32_t units)
{
    uint32_t left = age < units ? units - age : 0;
    if (left * HEAP_EXTRA_MAX < units)
        return (HEAP_EXTRA_MAX - 1) * 256;
    return left ? age * 256 / left : 0;
}

/* Was the block allocated in the window that is open now? */
static __always_inline bool is_young(const struct heap_block *block)
{
    return (block->size_flags & HEAP_WINDOWED) && (int32_t)(block->time - state.window_start) >= 0;
}

static __noinline void freed_count_windowed(const struct heap_block *block, struct heap_node *node)
{
    uint64_t size = block->size_flags & HEAP_SIZE_MASK;
    if (!is_young(block)) {
        __sync_fetch_and_add(&node->old_bytes, size);
        __sync_fetch_and_add(&node->old_blocks, 1);
        return;
    }
    __sync_fetch_and_add(&node->freed_bytes, size);
    __sync_fetch_and_add(&node->freed_blocks, 1);
    uint32_t extra = extra_of(time_now() - block->time, state.window_units);
    if (!extra)
        return;
    __sync_fetch_and_add(&node->extra_bytes, (size * extra) >> 8);
    __sync_fetch_and_add(&node->extra_blocks, extra);
}

static __always_inline void freed_count(const struct heap_block *block)
{
    struct heap_node *node = node_at(block->node);
    if (!node)
        return;
    if (state.windowed) {
        freed_count_windowed(block, node);
        return;
    }
    __sync_fetch_and_add(&node->freed_bytes, block->size_flags & HEAP_SIZE_MASK);
    __sync_fetch_and_add(&node->freed_blocks, 1);
}

/* Take a block out of the table, without counting that. False: it is not there. */
static __always_inline bool block_remove(uint64_t address, struct heap_block *ret_block)
{
    const struct heap_block *block = bpf_map_lookup_elem(&blocks, &address);
    if (!block)
        return false;
    *ret_block = *block;
    if (bpf_map_delete_elem(&blocks, &address) < 0)
        return false; /* freed twice, by two threads */
    if (ret_block->size_flags & HEAP_SAMPLED)
        gone_tell(HEAP_RECORD_GONE, address);
    return true;
}

static __always_inline bool block_take(uint64_t address, struct heap_block *ret_block)
{
    if (!block_remove(address, ret_block))
        return false;
    freed_count(ret_block);
    return true;
}

/* A block that is there already. realloc() and others (`outer`) call malloc() themselves, which has put it there: it was never
 * allocated. Else its free was not seen: between two windows, where other frees stand for it, or by a call that has no probe. */
static __noinline void block_replace(uint64_t address, bool outer)
{
    struct heap_block old;
    if (!block_remove(address, &old) || (state.windowed && !is_young(&old)))
        return;
    struct heap_node *node = node_at(old.node);
    freed_count(&old);
    if (!outer) {
        __sync_fetch_and_add(&state.replaced, 1);
    } else if (node) {
        uint64_t size = old.size_flags & HEAP_SIZE_MASK;
        __sync_fetch_and_add(&node->alloc_bytes, -size);
        __sync_fetch_and_add(&node->alloc_blocks, -1);
        __sync_fetch_and_add(&node->freed_bytes, -size);
        __sync_fetch_and_add(&node->freed_blocks, -1);
    }
}

static __always_inline bool block_put(uint64_t address, const struct heap_block *block, bool outer)
{
    long r = bpf_map_update_elem(&blocks, &address, block, NOEXIST);
    if (r == -E_EXIST) {
        block_replace(address, outer);
        r = bpf_map_update_elem(&blocks, &address, block, NOEXIST);
    }
    if (r == 0)
        return true;
    __sync_fetch_and_add(&state.lost_blocks, 1);
    __sync_fetch_and_add(&state.lost_bytes, block->size_flags & HEAP_SIZE_MASK);
    return false;
}

static __always_inline void allocated(const struct caller *caller, uint64_t address, uint64_t size,
                                      bool outer)
{
    uint32_t mean = 0, number = node_of(caller->ip, caller->sp);
    struct heap_node *node = node_at(number);
    if (!node)
        return;
    size &= HEAP_SIZE_MASK;
    struct heap_block block = {
        .size_flags = size,
        .node = number,
        .time = time_now(),
    };
    if (state.windowed)
        block.size_flags |= HEAP_WINDOWED;
    if (is_sampled(node, size, &mean) && stack_tell(caller, address, size, number, mean))
        block.size_flags |= HEAP_SAMPLED;
    if (!block_put(address, &block, outer))
        return;
    __sync_fetch_and_add(&node->alloc_bytes, size);
    __sync_fetch_and_add(&node->alloc_blocks, 1);
}

/* A block that realloc could not move is where it was. */
static __noinline void restore(struct kept *kept)
{
    struct heap_node *node = node_at(kept->removed.node);
    struct heap_block block = kept->removed;
    block.size_flags &= ~HEAP_SAMPLED; /* its stack was taken back */
    if (!kept->removed.node)
        return;
    if (!node || !block_put(kept->address, &block, false))
        return;
    __sync_fetch_and_add(&node->freed_bytes, -(block.size_flags & HEAP_SIZE_MASK));
    __sync_fetch_and_add(&node->freed_blocks, -1);
}

/* ---- entries and returns ---- */

/* A register by its number: for the few functions that are probed after they have moved their arguments. */
static __noinline uint64_t register_get(struct pt_regs *regs, uint32_t number)
{
    /* Taken all at once: the verifier refuses a context pointer that the compiler has computed with. */
    const volatile struct pt_regs *r = regs;
    volatile uint64_t all[16] = {r->ax, r->cx, r->dx,  r->bx,  0,      r->bp,  r->si,  r->di,
                                 r->r8, r->r9, r->r10, r->r11, r->r12, r->r13, r->r14, r->r15};
    return all[number & 15];
}

static __always_inline uint32_t cookie_of(void *regs)
{
    return (uint32_t)bpf_get_attach_cookie(regs);
}

static __always_inline void freed(uint64_t address)
{
    struct heap_block block;
    if (!address)
        return;
    bool known = block_take(address, &block);
    if (known && !state.has_news)
        return;
    struct thread *t = thread_here(state.has_news);
    if (known) {
        if (t)
            t->freed = address;
        return;
    }
    /* realloc(p, 0) calls free(p), and operator delete may */
    if (t && (t->outer.address == address || (state.has_news && t->freed == address)))
        return;
    __sync_fetch_and_add(&state.unknown_frees, 1);
}

/* Keeps more than a size until its return, and may call malloc itself. */
static __always_inline bool is_outer(uint32_t role)
{
    return role == HEAP_REALLOC || role == HEAP_POSIX_MEMALIGN || role == HEAP_REALLOCARRAY;
}

/* Returns the size that is asked for. */
static __noinline uint64_t outer_begin(uint32_t role, uint64_t first, uint64_t second,
                                       uint64_t third)
{
    struct thread *t = thread_here(true);
    if (!t)
        return 0;
    struct kept *kept = &t->outer;
    kept->address = first;
    kept->removed.node = 0;
    kept->begun = 1;
    kept->size = role == HEAP_REALLOC ? second : role == HEAP_REALLOCARRAY ? second * third : third;
    if (role != HEAP_POSIX_MEMALIGN && first) {
        struct heap_block block;
        if (block_take(first, &block))
            kept->removed = block;
        else
            __sync_fetch_and_add(&state.unknown_frees, 1);
    }
    return kept->size;
}

static __always_inline uint64_t begun(struct pt_regs *regs, uint32_t cookie)
{
    const volatile struct pt_regs *r = regs;
    uint64_t first = r->di, second = r->si, third = r->dx;
    if ((cookie & ~0xffu) != HEAP_COOKIE_USUAL) {
        first = register_get(regs, HEAP_COOKIE_AT(cookie, 0));
        second = register_get(regs, HEAP_COOKIE_AT(cookie, 1));
        third = register_get(regs, HEAP_COOKIE_AT(cookie, 2));
    }
    switch (HEAP_COOKIE_ROLE(cookie)) {
    case HEAP_MALLOC:
        return first;
    case HEAP_CALLOC:
        return first * second;
    case HEAP_ALIGNED:
        return second;
    default:
        return outer_begin(HEAP_COOKIE_ROLE(cookie), first, second, third);
    }
}

static __noinline uint64_t outer_end(uint32_t role, uint64_t result, uint64_t size)
{
    struct thread *t = thread_here(false);
    uint64_t block = result;
    if (!t)
        return 0;
    if (role == HEAP_POSIX_MEMALIGN &&
        ((uint32_t)result != 0 ||
         bpf_probe_read_user(&block, sizeof(block), (void *)t->outer.address) < 0))
        block = 0;
    if (role != HEAP_POSIX_MEMALIGN && !block && size)
        restore(&t->outer);
    t->outer.address = 0;
    t->outer.begun = 0;
    return block;
}

static __always_inline void ended(struct pt_regs *regs, uint32_t role, uint64_t size)
{
    uint64_t block = regs->ax;
    if (is_outer(role))
        block = outer_end(role, block, size);
    struct caller caller = {regs, regs->ip, regs->sp};
    if (block)
        allocated(&caller, block, size, role != HEAP_MALLOC);
    else if (size)
        __sync_fetch_and_add(&state.failed, 1);
}

extern bool bpf_session_is_return(void) __ksym __weak;
extern uint64_t *bpf_session_cookie(void) __ksym __weak;

/* Linux 6.13 and later: one program at both ends, and a word between them. */
SEC("uprobe")
int heap_session(struct pt_regs *regs)
{
    if (!bpf_session_is_return || !bpf_session_cookie || !state.on || state.ended)
        return 1;
    uint64_t *size = bpf_session_cookie();
    uint32_t cookie = cookie_of(regs);
    if (!size)
        return 1;
    if (bpf_session_is_return())
        ended(regs, HEAP_COOKIE_ROLE(cookie), *size);
    else
        *size = begun(regs, cookie);
    return 0;
}

/* Earlier kernels: two links. */
SEC("uprobe")
int heap_enter(struct pt_regs *regs)
{
    uint32_t cookie = cookie_of(regs), role = HEAP_COOKIE_ROLE(cookie);
    if (!state.on || state.ended)
        return 0;
    uint64_t size = begun(regs, cookie);
    if (is_outer(role))
        return 0;
    struct thread *t = thread_here(true);
    if (t) {
        t->inner.size = size;
        t->inner.begun = 1;
    }
    return 0;
}

SEC("uprobe")
int heap_leave(struct pt_regs *regs)
{
    uint32_t role = HEAP_COOKIE_ROLE(cookie_of(regs));
    struct thread *t = thread_here(false);
    if (!state.on || state.ended || !t)
        return 0;
    if (is_outer(role)) {
        if (t->outer.begun)
            ended(regs, role, t->outer.size);
    } else if (t->inner.begun) { /* else its entry was not seen */
        t->inner.begun = 0;
        ended(regs, role, t->inner.size);
    }
    return 0;
}

SEC("uprobe")
int heap_free(struct pt_regs *regs)
{
    uint32_t cookie = cookie_of(regs);
    if (!state.on || state.ended)
        return 0;
    if ((cookie & ~0xffu) == HEAP_COOKIE_USUAL)
        freed(regs->di);
    else
        freed(register_get(regs, HEAP_COOKIE_AT(cookie, 0)));
    return 0;
}

/* operator new: what it was asked for, and by which call. One that threw before is forgotten. */
SEC("uprobe")
int heap_new(struct pt_regs *regs)
{
    uint32_t cookie = cookie_of(regs);
    if (!state.on || state.ended)
        return 0;
    struct thread *t = thread_here(true);
    uint64_t sp = regs->sp, caller = 0;
    if (!t || bpf_probe_read_user(&caller, sizeof(caller), (void *)sp) < 0)
        return 0;
    if (t->news.sp)
        __sync_fetch_and_add(&state.unseen_news, 1);
    t->news.sp = sp;
    t->news.caller = caller;
    t->news.size = (cookie & ~0xffu) == HEAP_COOKIE_USUAL
                       ? regs->di
                       : register_get(regs, HEAP_COOKIE_AT(cookie, 0));
    return 0;
}

/* Will a jump with this condition (as its code has it) be taken? */
static __always_inline bool jump_taken(uint64_t flags, uint32_t condition)
{
    bool carry = flags & 1, parity = flags >> 2 & 1, zero = flags >> 6 & 1, sign = flags >> 7 & 1,
         overflow = flags >> 11 & 1, holds = false;
    switch (condition >> 1) {
    case 0:
        holds = overflow;
        break;
    case 1:
        holds = carry;
        break;
    case 2:
        holds = zero;
        break;
    case 3:
        holds = carry || zero;
        break;
    case 4:
        holds = sign;
        break;
    case 5:
        holds = parity;
        break;
    case 6:
        holds = sign != overflow;
        break;
    default:
        holds = zero || sign != overflow;
    }
    return holds != (condition & 1);
}

/* A place from which operator new returns. Other functions come here, too: only one whose return address lies where it did at the
 * entry of operator new returns from that. */
SEC("uprobe")
int heap_new_return(struct pt_regs *regs)
{
    uint32_t cookie = cookie_of(regs);
    struct thread *t = thread_here(false);
    uint64_t sp = regs->sp + HEAP_RETURN_UP(cookie), caller = 0;
    if (!state.on || state.ended)
        return 0;
    if (cookie & HEAP_RETURN_SLOW)
        __sync_fetch_and_add(&state.slow_calls, 1);
    if (!t || t->news.sp != sp ||
        ((cookie & HEAP_RETURN_CONDITIONAL) &&
         jump_taken(regs->flags, HEAP_RETURN_CONDITION(cookie)) != !!(cookie & HEAP_RETURN_TAKEN)))
        return 0;
    if (bpf_probe_read_user(&caller, sizeof(caller), (void *)sp) < 0 || caller != t->news.caller)
        return 0;
    t->news.sp = 0;
    uint64_t block = register_get(regs, HEAP_COOKIE_AT(cookie, 0));
    struct caller back = {regs, caller, sp + RETURN_ADDRESS_BYTES};
    if (block)
        allocated(&back, block, t->news.size, true);
    else
        __sync_fetch_and_add(&state.failed, 1);
    return 0;
}

/* Another program, perhaps with other rights: what was counted is final. */
SEC("raw_tp/sched_process_exec")
int heap_exec(void *args)
{
    if ((uint32_t)(bpf_get_current_pid_tgid() >> 32) != state.pid)
        return 0;
    state.ended = 1;
    gone_tell(HEAP_RECORD_EXEC, 0);
    return 0;
}

/* A process that it forks. One that shares its memory (vfork, posix_spawn) is about to execute another program. */
SEC("raw_tp/sched_process_fork")
int heap_fork(uint64_t *args)
{
    uint32_t own = (uint32_t)(bpf_get_current_pid_tgid() >> 32);
    if (own != state.pid || state.ended)
        return 0;
    const struct task_struct *parent = (const struct task_struct *)args[0];
    const struct task_struct *child = (const struct task_struct *)args[1];
    uint32_t pid = (uint32_t)BPF_CORE_READ(child, tgid);
    if (pid == own || BPF_CORE_READ(child, mm) == BPF_CORE_READ(parent, mm))
        return 0;
    gone_tell(HEAP_RECORD_FORK, pid);
    return 0;
}

const char licence[] SEC("license") = "GPL";
