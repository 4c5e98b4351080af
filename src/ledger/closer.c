/* See closer.h. */
#include "ledger/closer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "book/control.h"
#include "ledger/growth.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"

enum { JUDGE_MS = 20, JUDGED_MAX = 256 };

struct asked {
    uint64_t dev, ino;
    uint32_t site;
    uint64_t since_ns;
};

struct told {
    uint64_t dev, ino;
    uint64_t word; /* control.close_sites */
};

struct closer {
    struct asked asked[CLOSER_SITES_MAX]; /* a ring: the oldest are forgotten */
    size_t n_asked, next_asked;
    struct told told[CLOSER_BOOKS_MAX];
    size_t n_told;
    uint64_t next_ns, every_ns;
    size_t
        skip; /* books whose turn was before; judging them all may take longer than there is time */
};

/* The books of one look. */
struct round {
    size_t skip, asked;
    const struct ledger_process *judged[JUDGED_MAX];
    size_t n;
};

int closer_new(struct closer **ret_closer)
{
    *ret_closer = calloc(1, sizeof(**ret_closer));
    return *ret_closer ? 0 : -ENOMEM;
}

static int book_tell(const struct ledger_book *book, uint64_t word)
{
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book);
    return fd < 0 ? fd : book_control_close(book->reader, fd, word);
}

void closer_free(struct closer *closer, const struct ledger *ledger)
{
    for (size_t i = 0; closer && ledger && i < closer->n_told; i++) {
        const struct ledger_book *book =
            ledger_book_find(ledger, closer->told[i].dev, closer->told[i].ino);
        if (book && closer->told[i].word)
            (void)book_tell(book, 0);
    }
    free(closer);
}

/* Since when this site is asked for. */
static uint64_t asked_since(struct closer *c, const struct leak *leak, uint64_t now_ns)
{
    const struct book_identity *id = leak->book->identity;
    for (size_t i = 0; i < c->n_asked; i++)
        if (c->asked[i].site == leak->site && c->asked[i].ino == id->st_ino &&
            c->asked[i].dev == id->st_dev)
            return c->asked[i].since_ns;
    c->asked[c->next_asked] = (struct asked){id->st_dev, id->st_ino, leak->site, now_ns};
    c->next_asked = (c->next_asked + 1) % CLOSER_SITES_MAX;
    c->n_asked += c->n_asked < CLOSER_SITES_MAX;
    return now_ns;
}

static bool is_asked_for(const struct leak *leak)
{
    return !leak->outside && leak->site < 1u << BOOK_CLOSE_BITS &&
           book_source_counts_heap(leak->book->identity->source) &&
           (leak->result.verdict == DETECT_LEAK || leak->result.verdict == DETECT_GROWING);
}

/* How long it takes until there are samples enough, and half a look more, since threads hear of it with a delay. */
static uint64_t takes_ns(const struct closer *c, const struct leak *leak)
{
    double rate = leak->result.bytes_per_s;
    double ns = rate > 0 ? CLOSER_SAMPLES * (double)BOOK_CLOSE_BYTES / rate * NS_PER_S : CLOSER_NS;
    ns += (double)c->every_ns / 2;
    return ns < (double)CLOSER_NS ? (uint64_t)ns : CLOSER_NS;
}

/* The sites of a book that are to be sampled more often, those that grow fastest first. */
static uint64_t word_of(struct closer *c, const struct leaks *leaks, const struct ledger_book *book,
                        uint64_t now_ns)
{
    uint64_t word = 0;
    unsigned n = 0;
    for (size_t i = 0; i < leaks->n && n < BOOK_CLOSE_SITES; i++) {
        const struct leak *leak = &leaks->rows[i];
        if (leak->book != book || !is_asked_for(leak) ||
            now_ns - asked_since(c, leak, now_ns) > takes_ns(c, leak))
            continue;
        word |= (uint64_t)leak->site << (n++ * BOOK_CLOSE_BITS);
    }
    return word;
}

static struct told *told_of(struct closer *c, const struct ledger_book *book)
{
    const struct book_identity *id = book->identity;
    for (size_t i = 0; i < c->n_told; i++)
        if (c->told[i].ino == id->st_ino && c->told[i].dev == id->st_dev)
            return &c->told[i];
    if (c->n_told == CLOSER_BOOKS_MAX)
        return NULL;
    c->told[c->n_told] = (struct told){id->st_dev, id->st_ino, 0};
    return &c->told[c->n_told++];
}

/* ---- whose turn it is ---- */

static bool is_wanted(const struct ledger_process *process, void *context)
{
    struct round *round = context;
    if (round->asked++ < round->skip || round->n == JUDGED_MAX)
        return false;
    round->judged[round->n++] = process;
    return true;
}

static bool is_judged(const struct round *round, const struct ledger_process *process)
{
    for (size_t i = 0; i < round->n; i++)
        if (round->judged[i] == process)
            return true;
    return false;
}

/* The next look begins with the book at which the time or the room was over. One that takes longer than that by itself is passed. */
static void turn_end(struct closer *c, struct round *round, bool incomplete)
{
    bool full = round->asked > round->skip + JUDGED_MAX;
    if (incomplete && round->n > 1)
        round->n--;
    c->skip = (incomplete || full) && round->n ? round->skip + round->n : 0;
}

/* Books that are gone, or have no suspect any more. */
static void told_sweep(struct closer *c, const struct ledger *ledger, const struct leaks *leaks,
                       const struct round *round, uint64_t now_ns)
{
    for (size_t i = c->n_told; i-- > 0;) {
        const struct ledger_book *book = ledger_book_find(ledger, c->told[i].dev, c->told[i].ino);
        if (book && !is_judged(round, book->process))
            continue;
        uint64_t word = book ? word_of(c, leaks, book, now_ns) : 0;
        if (book && word == c->told[i].word && word)
            continue;
        if (book && word != c->told[i].word)
            (void)book_tell(book, word);
        c->told[i].word = word;
        if (!word)
            c->told[i] = c->told[--c->n_told];
    }
}

void closer_look(struct closer *c, struct growth *growth, const struct ledger *ledger,
                 uint64_t needs_ns, uint64_t every_ns, uint64_t now_ns)
{
    MEMOIR_CLEANUP(leaks_release)
    struct leaks leaks = {0};
    struct round round = {.skip = c->skip};
    if (now_ns < c->next_ns)
        return;
    c->every_ns = every_ns ? every_ns : CLOSER_EVERY_NS;
    c->next_ns = now_ns + c->every_ns;
    struct leaks_options options = {.needs_ns = needs_ns,
                                    .deadline_ns = clock_monotonic_ns() + JUDGE_MS * NS_PER_MS,
                                    .wanted = is_wanted,
                                    .context = &round};
    if (leaks_take(growth, ledger, &options, &leaks) < 0)
        return;
    turn_end(c, &round, leaks.incomplete);
    for (size_t i = 0; i < leaks.n; i++) {
        const struct ledger_book *book = leaks.rows[i].book;
        if (!is_judged(&round, book->process))
            continue;
        struct told *told = is_asked_for(&leaks.rows[i]) ? told_of(c, book) : NULL;
        uint64_t word = told ? word_of(c, &leaks, book, now_ns) : 0;
        if (told && word != told->word && book_tell(book, word) == 0)
            told->word = word;
    }
    told_sweep(c, ledger, &leaks, &round, now_ns);
}
