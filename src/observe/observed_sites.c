/* Call sites of a traced process. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "observe/kernel.h"
#include "observe/observed_internal.h"
#include "trace/sites.h"
#include "trace/stream.h"

enum { BUCKETS = sizeof((struct observed){0}.buckets) / sizeof(uint32_t) };

/* ---- stacks that were copied ---- */

static struct observed_pending *pending_find(struct observed *o, uint32_t tid, uint64_t call)
{
    for (size_t i = 0; i < o->n_pending; i++)
        if (o->pending[i].tid == tid && o->pending[i].call == call)
            return &o->pending[i];
    return NULL;
}

/* Memory of one that was used serves the next. Full, the first one is given up: its event was
 * most likely lost. */
static struct observed_pending *pending_make(struct observed *o, uint32_t tid)
{
    struct observed_pending *p = NULL;
    for (size_t i = 0; i < o->n_pending && !p; i++)
        if (!o->pending[i].call)
            p = &o->pending[i];
    if (!p && o->n_pending < OBSERVED_PENDING_MAX)
        p = &o->pending[o->n_pending++];
    if (!p) {
        struct observed_pending first = o->pending[0];
        memmove(&o->pending[0], &o->pending[1], (o->n_pending - 1) * sizeof(first));
        p = &o->pending[o->n_pending - 1];
        *p = first;
    }
    if (!p->head)
        p->head = malloc(sizeof(*p->head));
    if (!p->bytes)
        p->bytes = malloc(OBSERVED_STACK_BYTES);
    p->tid = tid;
    p->call = 0;
    return p->head && p->bytes ? p : NULL;
}

void observed_stack(struct observed *o, const struct wire_stack *stack)
{
    struct observed_pending *p = pending_make(o, stack->tid);
    if (!p || stack->n_bytes > WIRE_PAGE)
        return;
    memcpy(p->head, stack, offsetof(struct wire_stack, bytes));
    memcpy(p->bytes, stack->bytes, stack->n_bytes);
    p->n_bytes = stack->n_bytes;
    p->call = stack->call;
}

void observed_more(struct observed *o, const struct wire_more *more)
{
    struct observed_pending *p = pending_find(o, more->tid, more->call);
    if (!p || more->n_bytes > WIRE_PAGE || more->address != p->head->sp + p->n_bytes ||
        p->n_bytes + more->n_bytes > OBSERVED_STACK_BYTES)
        return;
    memcpy(p->bytes + p->n_bytes, more->bytes, more->n_bytes);
    p->n_bytes += more->n_bytes;
}

/* ---- sites ---- */

static uint32_t site_find(const struct observed *o, uint64_t key)
{
    uint32_t site = o->buckets[key % BUCKETS];
    while (site && o->sites[site].key != key)
        site = o->sites[site].next;
    return site;
}

static bool sites_reserve(struct observed *o)
{
    if (o->n_sites + 2 <= o->cap_sites)
        return true;
    uint32_t cap = o->cap_sites ? o->cap_sites * 2 : 64;
    struct observed_site *sites =
        cap <= TRACE_SITES_MAX ? realloc(o->sites, cap * sizeof(*sites)) : NULL;
    if (!sites)
        return false;
    o->sites = sites;
    o->cap_sites = cap;
    return true;
}

/* Frames lead to scripts that live until the next stack is resolved: keep copies. */
static bool frames_copy(struct observed_site *site, const struct stack_result *result)
{
    size_t scripts = 0;
    for (uint32_t i = 0; i < result->n; i++)
        scripts += result->frames[i].script != NULL;
    site->frames = malloc(result->n * sizeof(site->frames[0]) + 1);
    site->scripts = scripts ? malloc(scripts * sizeof(site->scripts[0])) : NULL;
    if (!site->frames || (scripts && !site->scripts))
        return false;
    site->n = result->n;
    scripts = 0;
    for (uint32_t i = 0; i < result->n; i++) {
        site->frames[i] = result->frames[i];
        if (!result->frames[i].script)
            continue;
        site->scripts[scripts] = *result->frames[i].script;
        site->frames[i].script = &site->scripts[scripts++];
    }
    return true;
}

/* Tell the history and the reader of the stream what the number means. */
static void site_tell(struct observed *o, uint32_t number)
{
    const struct observed_site *site = &o->sites[number];
    struct trace_module modules[STACK_FRAMES_MAX];
    struct trace_line lines[STACK_FRAMES_MAX];
    struct trace_frame frames[STACK_FRAMES_MAX];
    for (uint32_t i = 0; i < site->n; i++) {
        const struct book_frame *f = &site->frames[i];
        frames[i] = (struct trace_frame){.offset = f->offset};
        if (f->script) {
            lines[i] =
                (struct trace_line){f->script->function, f->script->file, (uint32_t)f->offset};
            frames[i] = (struct trace_frame){.lines = &lines[i], .n_lines = 1};
        } else if (f->module) {
            modules[i] = (struct trace_module){.path = f->module->path,
                                               .build_id_len = f->module->build_id_len};
            memcpy(modules[i].build_id, f->module->build_id, sizeof(modules[i].build_id));
            frames[i].module = &modules[i];
        }
    }
    struct trace_site told = {
        .number = number,
        .n_frames = (uint16_t)site->n,
        .cut = site->flags & BOOK_SITE_CUT ? 1 : 0,
        .key = site->key,
        .frames = frames,
    };
    trace_sites_define(trace_history_sites(o->history), &told);
    if (o->options.stream)
        trace_stream_site(o->options.stream, o->pid, &told);
}

static uint32_t site_make(struct observed *o, const struct stack_result *result)
{
    uint64_t key = stack_result_key(result);
    uint32_t number = site_find(o, key);
    if (number || result->n == 0)
        return number;
    if (!sites_reserve(o))
        return 0;
    number = o->n_sites + 1;
    struct observed_site *site = &o->sites[number];
    *site =
        (struct observed_site){.key = key, .flags = result->flags & STACK_CUT ? BOOK_SITE_CUT : 0};
    if (!frames_copy(site, result)) {
        free(site->frames);
        free(site->scripts);
        return 0;
    }
    o->n_sites = number;
    site->next = o->buckets[key % BUCKETS];
    o->buckets[key % BUCKETS] = number;
    site_tell(o, number);
    return number;
}

/* Let the kernel recognise this stack, so that it need not be copied again. */
static void stack_remember(struct observed *o, const struct wire_stack *head, uint32_t site,
                           const struct stack_result *result)
{
    if (result->flags & STACK_UNNAMED)
        return;
    struct wire_known_key key = {
        .pid = (uint32_t)o->pid,
        .generation = o->generation,
        .function = head->function,
        .caller = head->caller,
        .sp = head->sp,
        .python = head->python.hash,
    };
    struct wire_known value = {.site = site};
    for (uint32_t i = 0; i < result->n_words && i < WIRE_KNOWN_WORDS; i++) {
        value.value[i] = result->words[i].value;
        value.offset[i] = result->words[i].offset;
        value.n++;
    }
    kernel_known_add(o->options.kernel, &key, &value);
}

void observed_python_follow(struct observed *o)
{
    struct python_kernel_facts facts;
    if (o->stacks && stack_process_python(o->stacks, &facts) == 1)
        kernel_python_set(o->options.kernel, o->pid, &facts);
}

static uint32_t site_resolve(struct observed *o, const struct observed_pending *p)
{
    const struct wire_stack *h = p->head;
    struct stack_input input = {
        .registers = {h->ip, h->sp, h->bp, h->bx, h->r12, h->r13, h->r14, h->r15},
        .bytes = p->bytes,
        .n_bytes = p->n_bytes,
        .python = h->python.n ? &h->python : NULL,
    };
    struct stack_result result;
    if (!o->stacks)
        return 0;
    observed_python_follow(o);
    int r = stack_resolve(o->stacks, &input, &result);
    if (r < 0 && result.n == 0)
        return 0;
    uint32_t site = site_make(o, &result);
    if (site)
        stack_remember(o, h, site, &result);
    return site;
}

uint32_t observed_site_of(struct observed *o, const struct wire_event *event)
{
    if (event->site) {
        uint32_t number = kernel_site_number(o->options.kernel, event->site);
        return number <= o->n_sites ? number : 0;
    }
    struct observed_pending *p = NULL;
    if (event->has_stack && event->call)
        p = pending_find(o, event->tid, event->call);
    if (!p)
        return 0;
    p->call = 0;
    return site_resolve(o, p);
}

uint32_t observed_site_in_book(struct observed *o, uint32_t number, uint32_t account)
{
    if (!number || number > o->n_sites || !o->book.w)
        return BOOK_SITE_NONE;
    struct observed_site *site = &o->sites[number];
    enum { ENTERED = sizeof(site->entered) / sizeof(site->entered[0]) };
    for (uint32_t i = 0; i < site->n_entered && i < ENTERED; i++)
        if (site->entered[i].account == account)
            return site->entered[i].site;
    uint32_t entered = book_site_add_frames(o->book.w, o->book.thread, account, site->frames,
                                            site->n, site->flags);
    uint32_t slot = site->n_entered++ % ENTERED;
    site->entered[slot].account = account;
    site->entered[slot].site = entered;
    return entered;
}

void observed_sites_release(struct observed *o)
{
    for (uint32_t i = 1; i <= o->n_sites; i++) {
        free(o->sites[i].frames);
        free(o->sites[i].scripts);
    }
    free(o->sites);
    for (size_t i = 0; i < o->n_pending; i++) {
        free(o->pending[i].head);
        free(o->pending[i].bytes);
    }
}

void observed_code_changed(struct observed *o)
{
    if (o->stacks)
        stack_process_changed(o->stacks);
}
