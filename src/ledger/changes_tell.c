/* Telling changes: what each does to the sums, and what the counters know beyond the blocks. See changes.h. */
#include "base/clock.h"
#include "base/sum.h"
#include "ledger/changes_rows.h"

enum { MISSING_MS = 1000 }; /* a block that is counted and not entered for so long never will be */

static void add(uint64_t *sum, uint64_t came, uint64_t went)
{
    sum_add(sum, came);
    *sum = *sum > went ? *sum - went : 0; /* lies must not wrap */
}

int changes_tell(struct changes *c, const struct change *change)
{
    return c->each ? c->each(change, c->context) : 0;
}

int changes_tell_block(struct changes *c, const struct snapshot *s, enum change_kind kind,
                       const struct event *event)
{
    struct tally *t = &s->tallies[event->tally];
    const struct blockset_entry *b = &event->block;
    t->has_blocks = true;
    if (kind == CHANGE_ALLOC) {
        t->told_came++;
        t->told_came_bytes += b->bytes;
        add(&t->place->bytes[t->space], b->bytes, 0);
    } else {
        t->told_went++;
        t->told_went_bytes += b->bytes;
        add(&t->place->bytes[t->space], 0, b->bytes);
    }
    return changes_tell(c, &(struct change){
                               .kind = kind,
                               .process = &s->about,
                               .place = t->place,
                               .space = t->space,
                               .id = b->id,
                               .bytes = b->bytes,
                               .time_ns = b->time_ns,
                               .tag = b->tag,
                               .book = event->book,
                           });
}

/* How far the counters are ahead of what was told; 0 when they are behind: the blocks were newer. */
static uint64_t ahead(uint64_t counter, uint64_t told)
{
    return counter > told ? counter - told : 0;
}

bool changes_moved(const struct book_totals *a, const struct book_totals *b)
{
    return a->alloc_blocks != b->alloc_blocks || a->freed_blocks != b->freed_blocks ||
           a->alloc_bytes != b->alloc_bytes || a->freed_bytes != b->freed_bytes;
}

static int tell_counted(struct changes *c, const struct snapshot *s, struct tally *t,
                        struct change change)
{
    if (!change.came && !change.went && !change.came_bytes && !change.went_bytes)
        return 0;
    change.kind = CHANGE_UNSEEN;
    change.process = &s->about;
    change.place = t->place;
    change.space = t->space;
    t->told_came += change.came;
    t->told_came_bytes += change.came_bytes;
    t->told_went += change.went;
    t->told_went_bytes += change.went_bytes;
    add(&t->place->bytes[t->space], change.came_bytes, change.went_bytes);
    return changes_tell(c, &change);
}

/* What the counters are ahead by, all of it: for books without a table of blocks, and at the end. */
static int tell_rest(struct changes *c, const struct snapshot *s, struct tally *t)
{
    return tell_counted(c, s, t,
                        (struct change){
                            .came = ahead(t->last.alloc_blocks, t->told_came),
                            .came_bytes = ahead(t->last.alloc_bytes, t->told_came_bytes),
                            .went = ahead(t->last.freed_blocks, t->told_went),
                            .went_bytes = ahead(t->last.freed_bytes, t->told_went_bytes),
                        });
}

/* How much has been missing in every look since the first of them, once that is long enough ago. */
static struct change long_missing(struct tally *t, uint64_t blocks, uint64_t bytes)
{
    struct change change = {0};
    uint64_t now_ns = clock_monotonic_ns();
    if (!blocks && !bytes) {
        t->missing_ns = 0;
        return change;
    }
    if (!t->missing_ns) {
        t->missing_ns = now_ns;
        t->missing = blocks;
        t->missing_bytes = bytes;
    }
    t->missing = blocks < t->missing ? blocks : t->missing;
    t->missing_bytes = bytes < t->missing_bytes ? bytes : t->missing_bytes;
    if (now_ns - t->missing_ns < MISSING_MS * NS_PER_MS)
        return change;
    change.came = t->missing;
    change.came_bytes = t->missing_bytes;
    /* What is missing beyond the least of it has been so for less long: its time begins now. */
    t->missing = blocks - change.came;
    t->missing_bytes = bytes - change.came_bytes;
    t->missing_ns = t->missing || t->missing_bytes ? now_ns : 0;
    return change;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What came and went unseen. Counters are compared as they were one look ago, since a writer counts a block
 * and then enters it; blocks that are newer than them have been told already and make the differences
 * smaller than they are. So while counters move, that much is told as certainly came and went, less one
 * block, with which what is left of the bytes is told when they stand still: then differences are exact.
 * What came beyond what went is on its way into the table, unless it stays missing: that is told in either
 * case, since a program that is always busy never stands still. */
int changes_tell_unseen(struct changes *c, const struct snapshot *s, struct tally *t)
{
    uint64_t came = ahead(t->settled.alloc_blocks, t->told_came);
    uint64_t came_bytes = ahead(t->settled.alloc_bytes, t->told_came_bytes);
    uint64_t went = ahead(t->settled.freed_blocks, t->told_went);
    uint64_t went_bytes = ahead(t->settled.freed_bytes, t->told_went_bytes);
    uint64_t both = lesser(came, went), both_bytes = lesser(came_bytes, went_bytes);
    struct change change = {0};
    if (t->tableless)
        return tell_rest(c, s, t);
    change = long_missing(t, ahead(came, went), ahead(came_bytes, went_bytes));
    if (changes_moved(&t->settled, &t->last)) {
        if (both >= 2) {
            uint64_t bytes = (uint64_t)((unsigned __int128)both_bytes * (both - 1) / both);
            change.came += both - 1;
            change.came_bytes += bytes;
            change.went = both - 1;
            change.went_bytes = bytes;
        }
        return tell_counted(c, s, t, change);
    }
    change.came += both;
    change.came_bytes += both_bytes;
    change.went = went;
    change.went_bytes = went_bytes;
    return tell_counted(c, s, t, change);
}

static int tell_held(struct changes *c, const struct snapshot *s, struct tally *t,
                     enum ledger_state state)
{
    struct change change = {
        .kind = CHANGE_HELD,
        .process = &s->about,
        .place = t->place,
        .space = t->space,
        .bytes = ahead(t->told_came_bytes, t->told_went_bytes),
        .blocks = ahead(t->told_came, t->told_went),
        .state = state,
    };
    add(&t->place->bytes[t->space], 0, change.bytes);
    return change.bytes || change.blocks ? changes_tell(c, &change) : 0;
}

int changes_tell_gone(struct changes *c, struct snapshot *s, enum ledger_state state)
{
    struct change change = {.kind = CHANGE_GONE, .process = &s->about, .state = state};
    for (size_t i = 0; i < s->n_tallies; i++) {
        int r = tell_rest(c, s, &s->tallies[i]);
        if (r != 0)
            return r;
    }
    for (size_t i = 0; i < s->n_tallies; i++) {
        const struct tally *t = &s->tallies[i];
        change.bytes += ahead(t->told_came_bytes, t->told_went_bytes);
        change.blocks += ahead(t->told_came, t->told_went);
    }
    s->gone = true;
    int r = changes_tell(c, &change);
    for (size_t i = 0; i < s->n_tallies && r == 0; i++)
        r = tell_held(c, s, &s->tallies[i], state);
    return r;
}

/* Counters never go back, unless another source now counts for the account: then what was told before is
 * another story, and this one begins with what is live. */
void changes_restart(struct tally *t, const struct book_totals *totals)
{
    add(&t->place->bytes[t->space], totals->live_bytes,
        ahead(t->told_came_bytes, t->told_went_bytes));
    t->told_came = totals->alloc_blocks;
    t->told_came_bytes = totals->alloc_bytes;
    t->told_went = totals->freed_blocks;
    t->told_went_bytes = totals->freed_bytes;
    t->settled = *totals;
}
