/* Suspects, and what their books tell of them. See suspects.h. */
#include "profile/suspects.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "profile/book_names.h"
#include "profile/headline.h"
#include "profile/names.h"
#include "profile/site_names.h"
#include "profile/words.h"

enum { TEXT_MAX = 4096, LABEL_MAX = 128 };

void suspect_release(struct suspect *s)
{
    char **texts[] = {&s->program, &s->user,   &s->device,   &s->device_name, &s->device_uid,
                      &s->space,   &s->reason, &s->why,      &s->limit,       &s->site,
                      &s->via,     &s->frame,  &s->function, &s->file};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        free(*texts[i]);
    for (unsigned i = 0; i < s->n_stack; i++)
        free(s->stack[i]);
    free(s->points);
    *s = (struct suspect){0};
}

void suspects_release(struct suspects *suspects)
{
    for (size_t i = 0; i < suspects->n; i++)
        suspect_release(&suspects->rows[i]);
    free(suspects->rows);
    *suspects = (struct suspects){0};
}

/* ---- of a watch of our own ---- */

static char *copy(const char *text)
{
    return text && *text ? strdup(text) : NULL;
}

static char *why_of(const struct leak *leak)
{
    const struct detect_result *result = &leak->result;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    detect_explain(result, &text);
    if (leak->outside)
        buffer_append_str(&text, " It is resident and not served by malloc, so no line of code "
                                 "holds it.");
    return copy(buffer_string(&text));
}

/* "0 H200" */
static const char *device_label(char text[static LABEL_MAX], const struct ledger_device *device)
{
    snprintf(text, LABEL_MAX, "%d%s%s", device->ordinal, *device->name ? " " : "", device->name);
    return text;
}

static void fill(struct suspect *s, const struct leak *leak)
{
    const struct ledger_process *p = leak->process;
    const struct ledger_account *a = leak->account;
    const struct detect_result *r = &leak->result;
    char label[LABEL_MAX], uid[16];
    snprintf(uid, sizeof(uid), "%u", p->uid);
    *s = (struct suspect){
        .pid = p->valid & LEDGER_HAS_PID ? (uint64_t)p->pid : 0,
        .uid = p->uid,
        .program = copy(p->name),
        .user = copy(p->valid & LEDGER_HAS_USER ? p->user : uid),
        .device = copy(a->device ? device_label(label, a->device) : "host"),
        .ordinal = a->device ? a->device->ordinal : -1,
        .device_name = a->device ? copy(a->device->name) : NULL,
        .device_uid = a->device ? copy(a->device->uid) : NULL,
        .space = copy(*a->name ? a->name : ledger_space_name(a->space)),
        .verdict = r->verdict,
        .reason = copy(detect_reason_word(r->reason)),
        .why = why_of(leak),
        .confidence = r->confidence,
        .bytes_per_s = r->bytes_per_s,
        .blocks_per_s = r->blocks_per_s,
        .ever_freed = r->ever_freed,
        .live_bytes = leak->live_bytes,
        .live_blocks = leak->live_blocks,
        .span_ns = r->span_ns,
        .left_ns = leak->left_ns,
        .limit_bytes = leak->headroom.limit_bytes,
        .limit = copy(headroom_word(leak->headroom.kind)),
        .n_spark = leak->n_spark,
        .book_ino = leak->book->identity->st_ino,
        .site_number = leak->site,
        .key = leak->key,
        .frame = copy(leak->frame),
    };
    s->growing_ns = leak->growing_ns;
    memcpy(s->spark, leak->spark, sizeof(s->spark));
    if (!leak->outside)
        return;
    s->resident = s->outside = true;
    free(s->space);
    s->space = copy("outside malloc");
    free(s->reason);
    s->reason = copy("outside malloc");
    s->ever_freed = -1;
}

int suspects_from(const struct leaks *leaks, struct suspects *ret_suspects)
{
    struct suspect *rows = calloc(leaks->n + 1, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < leaks->n; i++)
        fill(&rows[i], &leaks->rows[i]);
    *ret_suspects = (struct suspects){
        .rows = rows,
        .n = leaks->n,
        .sites = leaks->judged,
        .span_ns = leaks->span_ns,
        .incomplete = leaks->incomplete,
    };
    memcpy(ret_suspects->verdicts, leaks->verdicts, sizeof(leaks->verdicts));
    return 0;
}

/* ---- from the books ---- */

static const struct ledger_book *book_of(const struct ledger *ledger, const struct suspect *s)
{
    const struct ledger_process *p = ledger_process_find(ledger, (pid_t)s->pid);
    for (size_t i = 0; p && i < p->n_books; i++)
        if (p->books[i]->identity->st_ino == s->book_ino)
            return p->books[i];
    return NULL;
}

/* Frames of code made at run time that has no name tell nothing by their number. */
static bool is_unnamed_made_code(const struct profile *p, uint32_t frame)
{
    const struct profile_frame *f = &p->frames[frame];
    return f->n_lines == 0 && p->modules[f->module].kind == PROFILE_MODULE_ADDRESS;
}

void suspect_stack(struct suspect *s, const struct profile *p, const struct book_stack *stack)
{
    for (size_t i = 0; stack->n > 1 && i < stack->n; i++) {
        uint32_t frame = stack->frames[i];
        for (size_t k = 0; k < words_lines(p, frame); k++) {
            MEMOIR_CLEANUP(buffer_release)
            struct buffer text = BUFFER_INIT(TEXT_MAX);
            if (s->n_stack == SUSPECT_FRAMES)
                return;
            words_frame(p, frame, k, &text);
            if (i == stack->headline && k == headline_line(p, frame))
                s->n_inside = s->n_stack;
            if (s->n_stack && is_unnamed_made_code(p, frame) &&
                strcmp(s->stack[s->n_stack - 1], buffer_string(&text)) == 0)
                continue;
            s->stack[s->n_stack] = copy(buffer_string(&text));
            s->n_stack += s->stack[s->n_stack] != NULL;
        }
    }
}

static void name_one(struct suspect *s, struct book_names *names, struct site_names *symbols,
                     const uint32_t *samples, struct suspect **of)
{
    struct book_stack stack;
    if (!book_names_stack(names, s->site_number, symbols, samples, SUSPECT_SAMPLES_MIN, &stack))
        return;
    free(s->frame);
    s->site = MEMOIR_TAKE(stack.name.text);
    s->via = MEMOIR_TAKE(stack.name.via);
    s->frame = MEMOIR_TAKE(stack.name.frame);
    s->function = MEMOIR_TAKE(stack.name.function);
    s->file = MEMOIR_TAKE(stack.name.file);
    s->line = stack.name.line;
    s->samples = stack.of;
    s->stack_samples = stack.k;
    s->by_samples = stack.sampled && stack.headline > 0;
    for (size_t i = 0; i < stack.n && i < SUSPECT_FRAMES; i++)
        profile_name(names->profile, site_names_symbolizer(symbols), stack.frames[i]);
    suspect_stack(s, names->profile, &stack);
    book_stack_release(&stack);
    for (size_t i = 1; i < names->copy.n_sites; i++)
        if (book_names_is_stack_of(names, i, s->site_number))
            of[i] = s;
}

/* The oldest block of each suspect, the newest, and the one nearest to the middle of its time. */
struct blocks_take {
    struct suspect **of; /* of this book, by number of the site; NULL where it is none */
    size_t n_sites;
    uint64_t now_ns;
    void (*keep)(struct suspect *s, const struct suspect_block *block);
};

/* In the first pass: blocks[0] and, where there are two, blocks[1]. */
static void ends_keep(struct suspect *s, const struct suspect_block *block)
{
    struct suspect_block *b = s->blocks;
    if (s->n_blocks == 0)
        b[0] = b[1] = *block;
    else if (block->age_ns > b[0].age_ns)
        b[0] = *block;
    else if (block->age_ns <= b[1].age_ns)
        b[1] = *block;
    s->n_blocks = b[0].id == b[1].id ? 1 : 2;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* In the second pass: the third block, between them. */
static void middle_keep(struct suspect *s, const struct suspect_block *block)
{
    struct suspect_block *b = s->blocks;
    if (s->n_blocks < 2 || block->id == b[0].id || block->id == b[s->n_blocks - 1].id)
        return;
    if (s->n_blocks == 2) {
        b[2] = b[1];
        b[1] = *block;
        s->n_blocks = 3;
        return;
    }
    uint64_t middle = b[2].age_ns + (b[0].age_ns - b[2].age_ns) / 2;
    if (distance(block->age_ns, middle) < distance(b[1].age_ns, middle))
        b[1] = *block;
}

static int each_block(const struct book_block_view *block, void *context)
{
    const struct blocks_take *take = context;
    struct suspect *s = block->site < take->n_sites ? take->of[block->site] : NULL;
    if (!s)
        return 0;
    struct suspect_block kept = {
        .id = block->id,
        .bytes = block->bytes,
        .age_ns = take->now_ns > block->time_ns ? take->now_ns - block->time_ns : 0,
    };
    take->keep(s, &kept);
    return 0;
}

struct samples_count {
    uint32_t *of; /* by number of the site */
    size_t n_sites;
};

static int each_sample(const struct book_block_view *block, void *context)
{
    const struct samples_count *count = context;
    if (block->site < count->n_sites)
        count->of[block->site]++;
    return 0;
}

static void book_read(struct suspects *suspects, size_t n, const struct ledger_book *book,
                      struct site_names *symbols)
{
    struct book_names names = {0};
    if (book_names_load(book, &names) < 0)
        return;
    MEMOIR_CLEANUP(freep)
    struct suspect **of = calloc(names.copy.n_sites, sizeof(*of));
    MEMOIR_CLEANUP(freep)
    uint32_t *samples = calloc(names.copy.n_sites, sizeof(*samples));
    MEMOIR_CLEANUP(closep)
    int fd = of && samples ? ledger_book_open(book) : -1;
    if (fd >= 0)
        (void)book_reader_blocks(book->reader, fd, each_sample,
                                 &(struct samples_count){samples, names.copy.n_sites}, NULL);
    for (size_t i = 0; of && samples && i < n; i++) {
        struct suspect *s = &suspects->rows[i];
        if (s->site || s->pid != (uint64_t)book->process->pid ||
            s->book_ino != book->identity->st_ino || s->site_number >= names.copy.n_sites)
            continue;
        name_one(s, &names, symbols, samples, of);
        of[s->site_number] = s;
    }
    struct blocks_take take = {of, names.copy.n_sites, proc_monotonic_ns(), ends_keep};
    if (fd >= 0)
        (void)book_reader_blocks(book->reader, fd, each_block, &take, NULL);
    take.keep = middle_keep;
    if (fd >= 0)
        (void)book_reader_blocks(book->reader, fd, each_block, &take, NULL);
    book_names_release(&names);
}

void suspects_name(struct suspects *suspects, size_t n, const struct ledger *ledger,
                   struct site_names *symbols)
{
    size_t wanted = n < suspects->n ? n : suspects->n;
    for (size_t i = 0; i < wanted; i++) {
        const struct ledger_book *book = book_of(ledger, &suspects->rows[i]);
        if (book && !suspects->rows[i].site && !suspects->rows[i].outside)
            book_read(suspects, wanted, book, symbols);
    }
}
