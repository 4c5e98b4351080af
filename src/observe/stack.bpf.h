/* stack.bpf.h: the call site of a probed call, at its entry.
 *
 * The observer unwinds a stack from a copy of its bytes. That is needed once for each stack:
 * afterwards the kernel knows at which places of the stack the return addresses lie and compares
 * them, and the event carries the site's number. Included by probe.bpf.c alone. */
#pragma once

/* Most words lie near the stack pointer, and are read all at once. */
static __always_inline bool stack_matches(const struct at *at, const struct wire_known *k,
                                          uint64_t sp)
{
    uint32_t n = k->n;
    for (uint32_t i = 0; i < WIRE_KNOWN_WORDS; i++) {
        uint64_t word = 0;
        uint32_t offset = k->offset[i];
        if (i >= n)
            break;
        if (offset < STACK_WORDS * 8)
            word = at->thread->stack[offset / 8 & (STACK_WORDS - 1)];
        else if (bpf_probe_read_user(&word, sizeof(word), (void *)(sp + offset)) < 0)
            return false;
        if (word != k->value[i])
            return false;
    }
    return true;
}

/* May the stack be the thread's last one? Nothing of it is read. */
static __always_inline bool stack_may_be_recent(const struct at *at, uint16_t function, uint64_t sp,
                                                uint64_t python)
{
    const struct recent *r = &at->thread->recent;
    return r->known.site && r->key.function == function && r->key.sp == sp &&
           r->key.python == python && r->key.epoch == at->settings->epoch;
}

/* Is it? Only the part that has the words to compare is read. */
static __always_inline bool stack_is_recent(const struct at *at, uint64_t sp)
{
    struct thread *t = at->thread;
    uint32_t span = t->recent.span;
    if (span < 8 || span > sizeof(t->stack))
        return false;
    return bpf_probe_read_user(t->stack, span, (void *)sp) == 0 &&
           t->stack[0] == t->recent.key.caller && stack_matches(at, &t->recent.known, sp);
}

static __noinline void recent_set(struct thread *t, const struct wire_known_key *key,
                                  const struct wire_known *known)
{
    uint32_t span = 8;
    t->recent.key = *key;
    t->recent.known = *known;
    for (uint32_t i = 0; i < WIRE_KNOWN_WORDS; i++) {
        uint32_t end = known->offset[i] + 8;
        if (i < known->n && end > span && end <= STACK_WORDS * 8)
            span = end;
    }
    t->recent.span = span;
}

static __noinline uint32_t stack_known(const struct at *at, uint16_t function, uint64_t caller,
                                       uint64_t sp, uint64_t python)
{
    struct wire_known_key key = {
        .pid = at->pid,
        .generation = at->generation,
        .epoch = at->settings->epoch,
        .function = function,
        .caller = caller,
        .sp = sp,
        .python = python,
    };
    for (uint16_t variant = 0; variant < WIRE_KNOWN_VARIANTS; variant++) {
        key.variant = variant;
        const struct wire_known *k = bpf_map_lookup_elem(&known, &key);
        if (!k)
            break;
        if (stack_matches(at, k, sp)) {
            recent_set(at->thread, &key, k);
            return k->site;
        }
    }
    return 0;
}

/* Up to the end of the page that `from` lies in: a read across the end of the stack fails as a
 * whole. */
static __always_inline uint32_t page_rest(uint64_t from)
{
    return WIRE_PAGE - (uint32_t)(from & (WIRE_PAGE - 1));
}

static __always_inline bool page_copy(uint8_t *to, uint64_t from, uint32_t *ret_n)
{
    uint32_t n = page_rest(from);
    if (n > WIRE_PAGE)
        n = WIRE_PAGE;
    *ret_n = n;
    return bpf_probe_read_user(to, n, (void *)from) == 0;
}

/* False: the stack ends here, or there is no room. */
static __noinline bool stack_more(const struct at *at, const struct call *call, uint64_t from)
{
    if (!stacks_have_room(at, sizeof(struct wire_more)))
        return false;
    struct wire_more *m = bpf_ringbuf_reserve(&stacks, sizeof(*m), 0);
    if (!m)
        return false;
    m->record = WIRE_RECORD_MORE;
    m->pid = at->pid;
    m->tid = at->tid;
    m->call = call->number;
    m->address = from;
    if (!page_copy(m->bytes, from, &m->n_bytes)) {
        bpf_ringbuf_discard(m, 0);
        return false;
    }
    __sync_fetch_and_add(&at->process->stacks.produced, sizeof(*m));
    bpf_ringbuf_submit(m, RING_NO_WAKEUP);
    return true;
}

static __always_inline bool stack_copy(const struct at *at, const struct pt_regs *regs,
                                       const struct call *call, uint64_t caller)
{
    struct wire_stack *s = 0;
    if (stacks_have_room(at, sizeof(*s)))
        s = bpf_ringbuf_reserve(&stacks, sizeof(*s), 0);
    if (!s)
        return false;
    s->record = WIRE_RECORD_STACK;
    s->pid = at->pid;
    s->tid = at->tid;
    s->generation = at->generation;
    s->call = call->number;
    s->function = call->function;
    s->caller = caller;
    REGISTERS_TAKE(s, regs);
    bpf_probe_read_kernel(&s->python, sizeof(s->python),
                          &at->thread->python); /* too large for the compiler */
    uint64_t sp = s->sp;
    if (!page_copy(s->bytes, sp, &s->n_bytes)) {
        bpf_ringbuf_discard(s, 0);
        return false;
    }
    __sync_fetch_and_add(&at->process->stacks.produced, sizeof(*s));
    bpf_ringbuf_submit(s, RING_NO_WAKEUP); /* its event wakes the observer */
    uint64_t from = sp + page_rest(sp);
    for (int i = 1; i < WIRE_STACK_PAGES; i++) {
        if (!stack_more(at, call, from))
            break;
        from += WIRE_PAGE;
    }
    return true;
}

/* The Python frames of the thread, and their hash. */
static __always_inline uint64_t python_take(const struct at *at)
{
    uint32_t changes = at->settings->pythons + 1;
    if (at->thread->pythons == changes)
        return 0;
    const struct python_kernel_facts *facts = bpf_map_lookup_elem(&python_facts, &at->pid);
    if (facts)
        return python_capture_take(facts, &at->thread->python, &at->thread->scratch);
    at->thread->python.n = 0;
    at->thread->pythons = changes;
    return 0;
}

/* `python` is what python_take() gave. */
static __always_inline void stack_take(const struct at *at, const struct pt_regs *regs,
                                       struct call *call, uint64_t python)
{
    uint64_t caller = 0, sp = stack_pointer(regs);
    if (stack_may_be_recent(at, call->function, sp, python) && stack_is_recent(at, sp)) {
        call->site = at->thread->recent.known.site;
        return;
    }
    if (bpf_probe_read_user(at->thread->stack, sizeof(at->thread->stack), (void *)sp) == 0)
        caller = at->thread->stack[0];
    else if (bpf_probe_read_user(&caller, sizeof(caller), (void *)sp) < 0)
        return;
    else
        at->thread->stack[0] =
            caller; /* near the top of the stack: words further out do not match */
    call->site = stack_known(at, call->function, caller, sp, python);
    if (call->site)
        return;
    call->has_stack = stack_copy(at, regs, call, caller);
    if (!call->has_stack)
        __sync_fetch_and_add(&at->process->lost_stacks, 1);
}
