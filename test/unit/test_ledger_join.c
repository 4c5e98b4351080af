/* Several books of one process become one row: what counts, what adds up, and what is the same process. */
#include <signal.h>

#include "ledger_world.h"

/* ---- which source counts ---- */

static void first_source_that_ever_counted_wins(void **state)
{
    struct world *w = *state;
    struct book_builder client, observer;
    book_begin(w, &client, "a.book", BOOK_SOURCE_CLIENT);
    uint32_t mine =
        account_add(&client, MEMOIR_SPACE_DRAM, builder_device(&client, 1, 0, "GPU"), 0, 0);
    builder_publish(&client);
    book_begin(w, &observer, "b.book", BOOK_SOURCE_OBSERVER);
    account_add(&observer, MEMOIR_SPACE_DRAM, builder_device(&observer, 1, 0, "GPU"), 3, 3000);
    builder_publish(&observer);
    struct ledger_process *p = add(w, "b.book")->process;
    assert_ptr_equal(add(w, "a.book")->process, p);
    assert_int_equal(p->n_books, 2);

    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 3000);
    assert_int_equal(p->n_accounts, 1);
    assert_int_equal(p->accounts[0].source, BOOK_SOURCE_OBSERVER);
    count(&client, mine, 1, 500);
    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 500);
    assert_int_equal(p->accounts[0].source, BOOK_SOURCE_CLIENT);
}

/* tt-metal's regions have no number of blocks. */
static void bytes_without_blocks_count_too(void **state)
{
    struct world *w = *state;
    struct book_builder client, region;
    book_begin(w, &client, "a.book", BOOK_SOURCE_CLIENT);
    account_add(&client, MEMOIR_SPACE_DRAM, builder_device(&client, 2, 0, "NPU"), 0, 0);
    builder_publish(&client);
    book_begin(w, &region, "b.book", BOOK_SOURCE_REGION);
    account_add(&region, MEMOIR_SPACE_DRAM, builder_device(&region, 2, 0, "NPU"), 0, 5000000000);
    builder_publish(&region);
    add(w, "a.book");
    struct ledger_process *p = add(w, "b.book")->process;
    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 5000000000);
    assert_int_equal(p->accounts[0].source, BOOK_SOURCE_REGION);
    ledger_refresh(w->ledger);
    assert_int_equal(p->accounts[0].device->processes, 1);
}

/* Who lies about what he holds must not make the sum with others' look small. */
static void sums_stop_at_the_largest_number(void **state)
{
    struct world *w = *state;
    struct proc_stat stat;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(proc_stat_read(child, &stat), 0);
    struct ledger_process *p = NULL, *liar = NULL;
    for (int i = 0; i < 4; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        uint32_t gpu = builder_device(&b, 1, 0, "GPU");
        if (i > 0) { /* three books of one process add up */
            b.h.pid = child;
            b.h.start_ticks = stat.start_ticks;
        }
        account_add(&b, MEMOIR_SPACE_DRAM, gpu, i > 0 ? INT64_MAX : 1, i > 0 ? INT64_MAX : 5000);
        builder_publish(&b);
        *(i > 0 ? &liar : &p) = add(w, name)->process;
    }
    assert_int_equal(liar->n_books, 3);
    ledger_refresh(w->ledger);
    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 5000);
    assert_true(live(w, liar, MEMOIR_SPACE_DRAM) == UINT64_MAX);
    const struct ledger_capacity *c = &p->accounts[0].device->spaces[MEMOIR_SPACE_DRAM];
    assert_true(c->used == UINT64_MAX);
    assert_true(c->blocks == UINT64_MAX);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void sum_with_an_estimate_is_one(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_OBSERVER);
    struct book_account account = {.type = BOOK_RECORD_ACCOUNT,
                                   .space = MEMOIR_SPACE_DRAM,
                                   .device = builder_device(&b, 1, 0, "GPU"),
                                   .flags = BOOK_ACCOUNT_SAMPLED};
    uint64_t at = builder_add(&b, BOOK_SECTION_REGISTRY, &account, sizeof(account));
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    ledger_refresh(w->ledger);
    const struct ledger_capacity *c = &p->accounts[0].device->spaces[MEMOIR_SPACE_DRAM];
    assert_true(c->sampled);
    assert_false(c->partial);
    account.flags = BOOK_ACCOUNT_PARTIAL;
    builder_put(&b, BOOK_SECTION_REGISTRY, at, &account, sizeof(account));
    ledger_refresh(w->ledger);
    assert_false(c->sampled);
    assert_true(c->partial);
}

static void size_by_the_driver_goes_before_what_a_process_claims(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    char command[320], sys_dir[96];
    snprintf(sys_dir, sizeof(sys_dir), "%s/sys", w->dir);
    snprintf(command, sizeof(command),
             "mkdir -p %s/bus/pci/devices/0000:00:00.0 && "
             "echo 5000 >%s/bus/pci/devices/0000:00:00.0/mem_info_vram_total",
             sys_dir, sys_dir);
    assert_int_equal(system(command), 0);
    ledger_free(w->ledger);
    assert_int_equal(ledger_new(&(struct ledger_options){.sys_dir = sys_dir}, &w->ledger), 0);
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    struct book_account account = {.type = BOOK_RECORD_ACCOUNT,
                                   .space = MEMOIR_SPACE_DRAM,
                                   .device = builder_device(&b, 1, 0, "GPU"),
                                   .capacity = 1};
    uint64_t at = builder_add(&b, BOOK_SECTION_REGISTRY, &account, sizeof(account));
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    ledger_refresh(w->ledger);
    const struct ledger_capacity *c = &p->accounts[0].device->spaces[MEMOIR_SPACE_DRAM];
    assert_int_equal(c->capacity, 5000);
    assert_true(c->confirmed && c->disputed);
    assert_int_equal(p->accounts[0].capacity, 1); /* of its own account it may say what it likes */
    account.capacity = 5000;
    builder_put(&b, BOOK_SECTION_REGISTRY, at, &account, sizeof(account));
    ledger_refresh(w->ledger);
    assert_int_equal(c->capacity, 5000);
    assert_true(c->confirmed && !c->disputed);
}

static void heap_belongs_to_who_allocates(void **state)
{
    struct world *w = *state;
    static const uint32_t order[] = {BOOK_SOURCE_REGION, BOOK_SOURCE_SOCKET,   BOOK_SOURCE_CUDA,
                                     BOOK_SOURCE_CLIENT, BOOK_SOURCE_OBSERVER, BOOK_SOURCE_ATTACH,
                                     BOOK_SOURCE_TRACK,  BOOK_SOURCE_MALLOC};
    struct ledger_process *p = NULL;
    for (size_t i = 0; i < 8; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%zu.book", i);
        book_begin(w, &b, name, order[i]);
        account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 100 + i);
        builder_publish(&b);
        p = add(w, name)->process;
        /* Each one that comes knows better than those before. */
        assert_int_equal(live(w, p, MEMOIR_SPACE_HEAP), 100 + i);
        assert_int_equal(p->accounts[0].source, order[i]);
    }
    assert_int_equal(p->n_accounts, 1);
}

static void accounts_are_found_when_they_appear(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    ledger_refresh(w->ledger);
    assert_int_equal(p->n_accounts, 0);
    assert_false(ledger_process_sum(p, 0, NULL, NULL, NULL));
    uint32_t gpu = builder_device(&b, 1, 0, "GPU");
    uint32_t l1 = account_add(&b, MEMOIR_SPACE_L1, gpu, 2, 20);
    account_add(&b, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 7);
    assert_int_equal(live(w, p, MEMOIR_SPACE_L1), 20);
    assert_int_equal(p->n_accounts, 2);
    assert_null(p->accounts[0].device); /* the host comes first */
    assert_string_equal(p->accounts[1].device->name, "GPU");
    uint32_t accounts[BOOK_RECORDS_MAX];
    ledger_book_accounts(p->books[0], accounts);
    assert_int_equal(accounts[l1], 1);
    assert_int_equal(accounts[gpu], UINT32_MAX);
}

static void devices_belong_to_who_uses_them(void **state)
{
    struct world *w = *state;
    static const uint32_t order[] = {BOOK_SOURCE_ATTACH, BOOK_SOURCE_TRACK,    BOOK_SOURCE_MALLOC,
                                     BOOK_SOURCE_REGION, BOOK_SOURCE_OBSERVER, BOOK_SOURCE_SOCKET,
                                     BOOK_SOURCE_CUDA,   BOOK_SOURCE_CLIENT};
    struct ledger_process *p = NULL;
    for (size_t i = 0; i < 8; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%zu.book", i);
        book_begin(w, &b, name, order[i]);
        account_add(&b, MEMOIR_SPACE_MANAGED, BOOK_DEVICE_HOST, 1, 100 + i);
        builder_publish(&b);
        p = add(w, name)->process;
        assert_int_equal(live(w, p, MEMOIR_SPACE_MANAGED), 100 + i);
        assert_int_equal(p->accounts[0].source, order[i]);
    }
}

/* ---- what adds up ---- */

static void accounts_of_one_space_and_device_add_up(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    uint32_t gpu = builder_device(&b, 1, 0, "GPU");
    uint32_t one = account_add(&b, MEMOIR_SPACE_DRAM, gpu, 1, 10);
    uint32_t two = account_add(&b, MEMOIR_SPACE_DRAM, gpu, 2, 200);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 210);
    assert_int_equal(p->n_accounts, 1);
    assert_int_equal(p->accounts[0].totals.alloc_blocks, 3);
    uint32_t accounts[BOOK_RECORDS_MAX];
    ledger_book_accounts(p->books[0], accounts);
    assert_int_equal(accounts[one], 0);
    assert_int_equal(accounts[two], 0);
}

/* Two copies of a library in one process. */
static void own_books_of_one_source_add_up(void **state)
{
    struct world *w = *state;
    struct ledger_process *p = NULL;
    for (int i = 0; i < 2; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        account_add(&b, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 100u + (unsigned)i);
        builder_publish(&b);
        p = add(w, name)->process;
    }
    assert_int_equal(p->n_books, 2);
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 201);
    assert_int_equal(p->accounts[0].totals.live_blocks, 2);
    for (int i = 0; i < 2; i++) {
        uint32_t accounts[BOOK_RECORDS_MAX];
        ledger_book_accounts(p->books[i], accounts);
        assert_int_equal(accounts[1], 0);
    }
}

/* Every figure of every copy, not only what is live. */
static void every_figure_of_two_copies_adds_up(void **state)
{
    struct world *w = *state;
    struct ledger_process *p = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%u.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        struct book_account account = {.type = BOOK_RECORD_ACCOUNT,
                                       .space = MEMOIR_SPACE_PINNED,
                                       .device = BOOK_DEVICE_HOST,
                                       .capacity = i == 0 ? 9000 : 8000,
                                       .flags = i == 0 ? BOOK_ACCOUNT_PARTIAL : 0,
                                       .inherited_bytes = 20,
                                       .inherited_blocks = 2};
        uint32_t record =
            (uint32_t)builder_add(&b, BOOK_SECTION_REGISTRY, &account, sizeof(account));
        uint64_t k = i + 1;
        struct book_counters counters = {.alloc_bytes = 1000 * k,
                                         .alloc_blocks = 100 * k,
                                         .freed_bytes = 300 * k,
                                         .freed_blocks = 30 * k,
                                         .alloc_served = 1200 * k,
                                         .freed_served = 400 * k,
                                         .reallocs = 5 * k,
                                         .moved_in = 6 * k,
                                         .moved_in_bytes = 600 * k,
                                         .moved_out = 7 * k,
                                         .moved_out_bytes = 700 * k};
        uint64_t at = builder_common_offset(&b, record);
        assert_int_equal(pwrite(b.fd, &counters, sizeof(counters), (off_t)at), sizeof(counters));
        builder_publish(&b);
        p = add(w, name)->process;
    }
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 2100);
    assert_true(p->valid & LEDGER_HAS_FIGURES);
    assert_int_equal(p->n_accounts, 1);
    const struct ledger_account *a = &p->accounts[0];
    assert_int_equal(a->totals.live_blocks, 210);
    assert_int_equal(a->totals.alloc_bytes, 3000);
    assert_int_equal(a->totals.alloc_blocks, 300);
    assert_int_equal(a->totals.freed_bytes, 900);
    assert_int_equal(a->totals.freed_blocks, 90);
    assert_int_equal(a->totals.alloc_served, 3600);
    assert_int_equal(a->totals.freed_served, 1200);
    assert_int_equal(a->totals.reallocs, 15);
    assert_int_equal(a->totals.moved_in, 18);
    assert_int_equal(a->totals.moved_in_bytes, 1800);
    assert_int_equal(a->totals.moved_out, 21);
    assert_int_equal(a->totals.moved_out_bytes, 2100);
    assert_true(a->totals.peak_bytes >= 2100);
    assert_int_equal(a->inherited_bytes, 40);
    assert_int_equal(a->inherited_blocks, 4);
    assert_int_equal(a->capacity, 9000);
    assert_true(a->partial); /* one of them is */
    assert_false(a->sampled);
    assert_false(a->on_behalf);
    assert_int_equal(a->moves_source, BOOK_SOURCE_CLIENT);
}

/* A daemon's book and the process's own of the same source: blocks of the one that does not count have
 * no account in the views. */
static void blocks_count_in_the_book_that_counts(void **state)
{
    struct world *w = *state;
    struct book_builder own, behalf;
    struct ledger_process *p;
    uint32_t accounts[BOOK_RECORDS_MAX];
    book_begin(w, &own, "a.book", BOOK_SOURCE_CLIENT);
    uint32_t mine = account_add(&own, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 100);
    builder_publish(&own);
    book_begin(w, &behalf, "b.book", BOOK_SOURCE_CLIENT);
    behalf.h.compat = BOOK_COMPAT_ON_BEHALF;
    uint32_t theirs = account_add(&behalf, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 7);
    uint32_t alone = account_add(&behalf, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 9);
    builder_publish(&behalf);
    struct ledger_book *books[2] = {add(w, "a.book"), add(w, "b.book")};
    p = books[0]->process;
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 100);
    assert_int_equal(p->n_accounts, 2);
    for (size_t a = 0; a < 2; a++)
        assert_int_equal(p->accounts[a].on_behalf, p->accounts[a].space == MEMOIR_SPACE_HEAP);
    ledger_book_accounts(books[0], accounts);
    assert_int_equal(p->accounts[accounts[mine]].space, MEMOIR_SPACE_PINNED);
    ledger_book_accounts(books[1], accounts);
    assert_int_equal(accounts[theirs], UINT32_MAX);
    assert_int_equal(p->accounts[accounts[alone]].space, MEMOIR_SPACE_HEAP);
}

/* Another source's book on behalf is no rival, and neither is the process's own book. */
static void books_on_behalf_are_rivals_within_one_source_only(void **state)
{
    struct world *w = *state;
    static const struct {
        uint32_t source, compat, space;
    } kinds[] = {
        {BOOK_SOURCE_OBSERVER, BOOK_COMPAT_ON_BEHALF, MEMOIR_SPACE_PINNED},
        {BOOK_SOURCE_SOCKET, BOOK_COMPAT_ON_BEHALF, MEMOIR_SPACE_HEAP},
        {BOOK_SOURCE_OBSERVER, 0, MEMOIR_SPACE_MAPPED},
    };
    struct ledger_process *p = NULL;
    for (size_t i = 0; i < 3; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%zu.book", i);
        book_begin(w, &b, name, kinds[i].source);
        b.h.compat = kinds[i].compat;
        b.h.created_realtime_ns += i;
        account_add(&b, kinds[i].space, BOOK_DEVICE_HOST, 1, 100 + i);
        builder_publish(&b);
        p = add(w, name)->process;
    }
    ledger_update_state(w->ledger, p);
    for (int written = 1; written >= 0; written--) {
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(live(w, p, kinds[i].space), 100 + i);
        for (size_t i = 0; i < 3; i++) /* nor when nobody writes any of them */
            assert_int_equal(flock(w->fds[i], LOCK_UN), 0);
        ledger_update_state(w->ledger, p);
    }
    /* Device memory first by space, host before devices. */
    assert_int_equal(p->n_accounts, 3);
    for (size_t a = 1; a < 3; a++)
        assert_true(p->accounts[a - 1].space < p->accounts[a].space);
}

/* Each source tells of the same memory, so one of them counts: the first in the order, the process's own book before one on its
 * behalf. */
static void sources_are_never_added_up(void **state)
{
    static const uint32_t host[] = {BOOK_SOURCE_REGION, BOOK_SOURCE_SOCKET,   BOOK_SOURCE_CUDA,
                                    BOOK_SOURCE_CLIENT, BOOK_SOURCE_OBSERVER, BOOK_SOURCE_ATTACH,
                                    BOOK_SOURCE_TRACK,  BOOK_SOURCE_MALLOC};
    static const uint32_t device[] = {BOOK_SOURCE_ATTACH, BOOK_SOURCE_TRACK,    BOOK_SOURCE_MALLOC,
                                      BOOK_SOURCE_REGION, BOOK_SOURCE_OBSERVER, BOOK_SOURCE_SOCKET,
                                      BOOK_SOURCE_CUDA,   BOOK_SOURCE_CLIENT};
    static const struct {
        const uint32_t *sources;
        uint32_t space;
    } orders[] = {{host, MEMOIR_SPACE_HEAP},
                  {host, MEMOIR_SPACE_MAPPED},
                  {host, MEMOIR_SPACE_CHAIN},
                  {device, MEMOIR_SPACE_PINNED}};
    for (size_t o = 0; o < 4; o++) {
        struct world *w;
        struct ledger_process *p = NULL;
        setup((void **)&w);
        for (uint32_t i = 0; i < 16; i++) { /* from the last one of the order to the first */
            struct book_builder b;
            char name[16];
            snprintf(name, sizeof(name), "%u.book", i);
            book_begin(w, &b, name, orders[o].sources[i / 2]);
            b.h.compat = i % 2 == 0 ? BOOK_COMPAT_ON_BEHALF : 0;
            account_add(&b, orders[o].space, BOOK_DEVICE_HOST, 1, 1000 + i);
            builder_publish(&b);
            p = add(w, name)->process;
            assert_int_equal(live(w, p, orders[o].space), 1000 + i);
            assert_int_equal(p->accounts[0].source, b.h.source);
            assert_int_equal(p->accounts[0].on_behalf, i % 2 == 0);
        }
        teardown((void **)&w);
    }
}

static void account_and_space_are_called_as_the_book_calls_them(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    device_put(&b, 0, "GPU", "u", "", 1000, 300);
    account_add(&b, MEMOIR_SPACE_DRAM, BOOK_DEVICE_HOST, 1, 40); /* of no device */
    account_add(&b, 0, BOOK_DEVICE_HOST, 1, 5);                  /* of no kind */
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 340);
    assert_int_equal(p->n_accounts, 2);
    assert_int_equal(p->left_out, 1);
    assert_null(p->accounts[0].device); /* the host's come first */
    assert_string_equal(p->accounts[0].name, "space");
    assert_int_equal(p->accounts[0].totals.live_bytes, 40);
    assert_string_equal(p->accounts[1].name, "dram");
    assert_non_null(p->accounts[1].device);
    const struct ledger_capacity *c = &p->accounts[1].device->spaces[MEMOIR_SPACE_DRAM];
    assert_string_equal(c->name, "dram");
    assert_int_equal(c->space, MEMOIR_SPACE_DRAM);
    ledger_refresh(w->ledger);
    assert_int_equal(c->capacity, 1000);
    /* Joined anew, nothing is counted twice. */
    account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 7);
    assert_int_equal(live(w, p, MEMOIR_SPACE_HEAP), 7);
    assert_int_equal(p->n_accounts, 3);
    assert_int_equal(p->left_out, 1);
}

/* A book that cannot be read does not make the other's figures vanish, but the sum is not whole. */
static void figures_are_not_whole_while_one_book_cannot_be_read(void **state)
{
    struct world *w = *state;
    struct book_builder own, region;
    book_begin(w, &own, "a.book", BOOK_SOURCE_CLIENT);
    account_add(&own, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 100);
    builder_publish(&own);
    book_begin(w, &region, "b.book", BOOK_SOURCE_REGION);
    account_add(&region, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 700);
    builder_publish(&region);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_ptr_equal(add(w, "b.book")->process, p);
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 100);
    assert_true(p->valid & LEDGER_HAS_FIGURES);
    uint32_t others = p->valid & ~(uint32_t)LEDGER_HAS_FIGURES;
    assert_int_equal(ftruncate(own.fd, 0), 0);
    ledger_refresh_process(w->ledger, p);
    assert_int_equal(p->valid, others);
    assert_true(p->accounts[0].valid);
    assert_int_equal(p->accounts[0].totals.live_bytes, 700);
    assert_int_equal(ftruncate(region.fd, 0), 0);
    ledger_refresh_process(w->ledger, p);
    assert_false(p->valid & LEDGER_HAS_FIGURES);
    assert_false(p->accounts[0].valid);
}

static void of_books_on_behalf_the_one_being_written_counts(void **state)
{
    struct world *w = *state;
    struct book_builder b[2];
    struct ledger_process *p = NULL;
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b[i], name, BOOK_SOURCE_OBSERVER);
        b[i].h.compat = BOOK_COMPAT_ON_BEHALF;
        b[i].h.created_realtime_ns += (uint64_t)i;
        account_add(&b[i], MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 100u + (unsigned)i);
        builder_publish(&b[i]);
        if (i == 1)
            assert_int_equal(flock(b[1].fd, LOCK_UN), 0);
        p = add(w, name)->process;
    }
    ledger_update_state(w->ledger, p);
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 100); /* younger, but nobody writes it */
    uint32_t accounts[BOOK_RECORDS_MAX];
    ledger_book_accounts(p->books[1], accounts);
    assert_int_equal(accounts[1], UINT32_MAX);
    assert_int_equal(flock(b[0].fd, LOCK_UN), 0);
    ledger_update_state(w->ledger, p);
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 101);
    assert_int_equal(p->left_out, 0);
}

static void of_books_on_behalf_the_youngest_counts(void **state)
{
    struct world *w = *state;
    struct ledger_process *p = NULL;
    for (unsigned i = 0; i < 2; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%u.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_OBSERVER);
        b.h.compat = BOOK_COMPAT_ON_BEHALF;
        b.h.created_realtime_ns += i ? 0 : 5; /* its file is the older one */
        account_add(&b, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 100 + i);
        builder_publish(&b);
        assert_int_equal(flock(b.fd, LOCK_UN), 0);
        p = add(w, name)->process;
    }
    ledger_update_state(w->ledger, p);
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 100);
}

static void moves_put(struct book_builder *b, uint32_t account, uint64_t moves)
{
    struct book_counters counters = {.moved_in = moves,
                                     .moved_in_bytes = moves * 100,
                                     .moved_out = moves + 10,
                                     .moved_out_bytes = moves * 1000};
    uint64_t at = builder_common_offset(b, account);
    assert_int_equal(pwrite(b->fd, &counters, sizeof(counters), (off_t)at), sizeof(counters));
}

static void transfers_are_chosen_by_themselves(void **state)
{
    struct world *w = *state;
    static const uint32_t sources[] = {BOOK_SOURCE_MALLOC, BOOK_SOURCE_REGION, BOOK_SOURCE_OBSERVER,
                                       BOOK_SOURCE_CUDA};
    struct book_builder client;
    book_begin(w, &client, "a.book", BOOK_SOURCE_CLIENT);
    account_add(&client, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 500);
    builder_publish(&client);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 500);
    assert_int_equal(p->accounts[0].moves_source, 0);
    for (uint32_t i = 0; i < 4; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "m%u.book", i);
        book_begin(w, &b, name, sources[i]);
        moves_put(&b, builder_account(&b, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, "pinned"), i + 1);
        builder_publish(&b);
        add(w, name);
        assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 500);
        assert_int_equal(p->accounts[0].source, BOOK_SOURCE_CLIENT);
        assert_int_equal(p->accounts[0].moves_source, sources[i]);
        assert_int_equal(p->accounts[0].totals.moved_in, i + 1);
        assert_int_equal(p->accounts[0].totals.moved_in_bytes, (i + 1) * 100);
        assert_int_equal(p->accounts[0].totals.moved_out, i + 11);
        assert_int_equal(p->accounts[0].totals.moved_out_bytes, (i + 1) * 1000);
    }
}

static void host_spaces_have_no_device(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    uint32_t gpu = builder_device(&b, 1, 0, "GPU");
    account_add(&b, MEMOIR_SPACE_PINNED, gpu, 1, 10);
    account_add(&b, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 20);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 30);
    assert_int_equal(p->n_accounts, 1);
    assert_null(p->accounts[0].device);
}

static void what_is_left_out_is_counted(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    uint32_t gpu = builder_device(&b, 1, 0, "GPU");
    account_add(&b, MEMOIR_SPACE_DRAM, gpu, 1, 10);
    account_add(&b, MEMOIR_SPACE_MAX + 9, gpu, 1, 20);
    account_add(&b, MEMOIR_SPACE_DRAM, gpu + 7, 1, 30);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(live(w, p, 0), 10);
    assert_int_equal(p->left_out, 2);
    account_add(&b, MEMOIR_SPACE_L1, UINT32_MAX, 1, 30); /* nothing that could be joined is new */
    assert_int_equal(live(w, p, 0), 10);
    assert_int_equal(p->left_out, 3);
}

static void inherited_and_quality_are_told(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.compat = BOOK_COMPAT_FORK_CHILD;
    struct book_account account = {.type = BOOK_RECORD_ACCOUNT,
                                   .space = MEMOIR_SPACE_HEAP,
                                   .flags = BOOK_ACCOUNT_SAMPLED,
                                   .inherited_bytes = 1000,
                                   .inherited_blocks = 7};
    uint64_t at = builder_add(&b, BOOK_SECTION_REGISTRY, &account, sizeof(account));
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(live(w, p, MEMOIR_SPACE_HEAP), 0);
    assert_true(p->accounts[0].sampled);
    assert_false(p->accounts[0].partial);
    assert_int_equal(p->accounts[0].inherited_bytes, 1000);
    assert_int_equal(p->accounts[0].inherited_blocks, 7);
    account.inherited_bytes = 600; /* the child freed some of it */
    account.inherited_blocks = 5;
    account.flags |= BOOK_ACCOUNT_PARTIAL;
    builder_put(&b, BOOK_SECTION_REGISTRY, at, &account, sizeof(account));
    assert_int_equal(live(w, p, MEMOIR_SPACE_HEAP), 0);
    assert_true(p->accounts[0].partial);
    assert_int_equal(p->accounts[0].inherited_bytes, 600);
    assert_int_equal(p->accounts[0].inherited_blocks, 5);
}

static uint64_t account_put(struct book_builder *b, uint32_t device, uint32_t flags,
                            uint64_t capacity, uint64_t at)
{
    struct book_account account = {.type = BOOK_RECORD_ACCOUNT,
                                   .space = MEMOIR_SPACE_DRAM,
                                   .device = device,
                                   .flags = flags,
                                   .capacity = capacity,
                                   .inherited_bytes = 10,
                                   .inherited_blocks = 1,
                                   .name = "dram"};
    if (!at)
        return builder_add(b, BOOK_SECTION_REGISTRY, &account, sizeof(account));
    builder_put(b, BOOK_SECTION_REGISTRY, at, &account, sizeof(account));
    return at;
}

/* Several accounts that add up: an estimate among them makes the sum one, and the largest size counts. */
static void sum_of_accounts_has_the_quality_of_each(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    uint32_t gpu = builder_device(&b, 1, 0, "GPU");
    uint64_t first = account_put(&b, gpu, BOOK_ACCOUNT_SAMPLED, 500, 0);
    uint64_t second = account_put(&b, gpu, 0, 700, 0);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    const struct ledger_account *a = NULL;
    const struct ledger_capacity *c = NULL;
    for (uint32_t flags = 0; flags < 2; flags++) {
        assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 0);
        ledger_refresh(w->ledger);
        assert_int_equal(p->n_accounts, 1);
        a = &p->accounts[0];
        c = &a->device->spaces[MEMOIR_SPACE_DRAM];
        assert_string_equal(c->name, "dram");
        assert_int_equal(a->sampled, !flags);
        assert_int_equal(a->partial, flags);
        assert_int_equal(a->capacity, flags ? 900 : 700);
        assert_int_equal(c->capacity, flags ? 900 : 700); /* told again */
        assert_int_equal(a->inherited_bytes, 20);
        assert_int_equal(a->inherited_blocks, 2);
        account_put(&b, gpu, BOOK_ACCOUNT_PARTIAL, 900, first);
        account_put(&b, gpu, 0, 800, second);
    }
}

/* The size of a device is what the processes say that are there. */
static void size_that_only_one_process_claimed_goes_with_it(void **state)
{
    struct world *w = *state;
    static const char *const names[] = {"a.book", "b.book"};
    struct ledger_book *books[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct book_builder b;
        book_begin(w, &b, names[i], BOOK_SOURCE_CLIENT);
        b.h.exec_id = i + 1;
        device_put(&b, 0, "card", "GPU-1", "0000:01:00.0", i ? 500 : 900, 10);
        builder_publish(&b);
        books[i] = add(w, names[i]);
        ledger_update_state(w->ledger, books[i]->process);
    }
    ledger_refresh(w->ledger);
    size_t n;
    struct ledger_device *const *devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 1);
    assert_int_equal(devices[0]->spaces[MEMOIR_SPACE_DRAM].capacity, 900);
    ledger_book_remove(w->ledger, books[0]);
    ledger_refresh(w->ledger);
    devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 1);
    assert_int_equal(devices[0]->spaces[MEMOIR_SPACE_DRAM].capacity, 500);
    ledger_book_remove(w->ledger, books[1]); /* the last one, and nobody tells of it any more */
    ledger_refresh(w->ledger);
    (void)ledger_devices(w->ledger, &n);
    assert_int_equal(n, 0);
}

/* Blocks of no bytes are counted, too. */
static void blocks_without_bytes_count_too(void **state)
{
    struct world *w = *state;
    struct book_builder client, observer;
    book_begin(w, &client, "a.book", BOOK_SOURCE_CLIENT);
    account_add(&client, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 3, 0);
    builder_publish(&client);
    book_begin(w, &observer, "b.book", BOOK_SOURCE_OBSERVER);
    account_add(&observer, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 500);
    builder_publish(&observer);
    struct ledger_process *p = add(w, "a.book")->process;
    add(w, "b.book");
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 0);
    assert_int_equal(p->accounts[0].source, BOOK_SOURCE_CLIENT);
    assert_int_equal(p->accounts[0].totals.live_blocks, 3);
}

/* A book that a daemon keeps counts until the process counts for itself. */
static void account_says_on_whose_behalf_it_is(void **state)
{
    struct world *w = *state;
    struct book_builder own, behalf;
    uint32_t accounts[BOOK_RECORDS_MAX];
    book_begin(w, &own, "a.book", BOOK_SOURCE_CLIENT);
    uint32_t mine = account_add(&own, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 0, 0);
    builder_publish(&own);
    book_begin(w, &behalf, "b.book", BOOK_SOURCE_CLIENT);
    behalf.h.compat = BOOK_COMPAT_ON_BEHALF;
    uint32_t theirs = account_add(&behalf, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 7);
    builder_publish(&behalf);
    struct ledger_book *books[2] = {add(w, "a.book"), add(w, "b.book")};
    struct ledger_process *p = books[0]->process;
    p->valid = 0;
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 7);
    assert_true(p->accounts[0].on_behalf);
    assert_int_equal(p->valid, LEDGER_HAS_FIGURES); /* and nothing else */
    ledger_book_accounts(books[1], accounts);
    assert_int_equal(accounts[theirs], 0);
    count(&own, mine, 1, 500);
    assert_int_equal(live(w, p, MEMOIR_SPACE_PINNED), 500);
    assert_false(p->accounts[0].on_behalf);
}

/* Sites of a book whose source does not count belong to no account. */
static void accounts_of_another_source_are_not_those_of_a_book(void **state)
{
    struct world *w = *state;
    struct book_builder allocator, tracker;
    static uint32_t accounts[BOOK_RECORDS_MAX];
    book_begin(w, &allocator, "a.book", BOOK_SOURCE_MALLOC);
    uint32_t heap = account_add(&allocator, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 500);
    builder_publish(&allocator);
    book_begin(w, &tracker, "b.book", BOOK_SOURCE_TRACK);
    uint32_t same = account_add(&tracker, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 400);
    builder_publish(&tracker);
    struct ledger_book *books[2] = {add(w, "a.book"), add(w, "b.book")};
    assert_int_equal(live(w, books[0]->process, MEMOIR_SPACE_HEAP), 500);
    ledger_book_accounts(books[0], accounts);
    assert_int_equal(accounts[heap], 0);
    memset(accounts, 0, sizeof(accounts));
    ledger_book_accounts(books[1], accounts);
    assert_int_equal(accounts[same], UINT32_MAX);
    assert_int_equal(accounts[BOOK_RECORDS_MAX - 1], UINT32_MAX);
}

/* Transfers of the heap are those of the program, whose own reports of it count last. */
static void transfers_have_an_order_of_their_own(void **state)
{
    struct world *w = *state;
    static const uint32_t sources[] = {BOOK_SOURCE_MALLOC, BOOK_SOURCE_TRACK, BOOK_SOURCE_CLIENT};
    struct ledger_process *p = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "m%u.book", i);
        book_begin(w, &b, name, sources[i]);
        moves_put(&b, account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 100), i + 1);
        builder_publish(&b);
        p = add(w, name)->process;
        (void)live(w, p, MEMOIR_SPACE_HEAP);
        assert_int_equal(p->accounts[0].source, BOOK_SOURCE_MALLOC);
        assert_int_equal(p->accounts[0].moves_source,
                         i < 2 ? BOOK_SOURCE_MALLOC : BOOK_SOURCE_CLIENT);
    }
    assert_int_equal(p->accounts[0].totals.moved_in, 3);
}

/* ---- what is the same process ---- */

static void what_could_not_be_read_speaks_against_nothing(void **state)
{
    struct world *w = *state;
    struct book_builder known, unknown;
    book_begin(w, &unknown, "a.book", BOOK_SOURCE_OBSERVER);
    unknown.h.compat = BOOK_COMPAT_ON_BEHALF;
    unknown.h.start_ticks = unknown.h.exec_id = unknown.h.pid_ns = 0;
    memset(unknown.h.boot_id, 0, sizeof(unknown.h.boot_id));
    builder_publish(&unknown);
    book_begin(w, &known, "b.book", BOOK_SOURCE_CLIENT);
    builder_publish(&known);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_ptr_equal(add(w, "b.book")->process, p);
    assert_int_equal(p->start_ticks, w->self.start_ticks);
    assert_int_equal(p->exec_id, known.h.exec_id);
    assert_int_equal(p->pid_ns, w->pid_ns);
    /* What could be read does. */
    struct book_builder other;
    book_begin(w, &other, "c.book", BOOK_SOURCE_MALLOC);
    other.h.start_ticks += 5;
    builder_publish(&other);
    assert_ptr_not_equal(add(w, "c.book")->process, p);
}

static pid_t child_of(uint32_t uid)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ready[0]);
        if (setgid(uid) < 0 || setuid(uid) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static struct ledger_process *add_of(struct world *w, const char *name, uint32_t uid)
{
    struct ledger_book *book = NULL;
    assert_int_equal(fchownat(w->dirfd, name, uid, uid, 0), 0);
    struct ledger_where where = {
        .dirfd = w->dirfd, .name = name, .fd = -1, .uid = uid, .place = w->place};
    assert_int_equal(ledger_book_add(w->ledger, &where, &book), 0);
    return book->process;
}

/* Without address randomisation a program that calls exec on itself keeps its exec_id. */
static void images_at_the_same_addresses_are_told_apart(void **state)
{
    struct world *w = *state;
    static const uint64_t random[] = {1, 2, 1, 0};
    static const char *const names[] = {"a.book", "b.book", "c.book", "d.book"};
    struct ledger_process *p[4];
    for (int i = 0; i < 4; i++) {
        struct book_builder b;
        book_begin(w, &b, names[i], BOOK_SOURCE_CLIENT);
        b.h.exec_random = random[i];
        builder_publish(&b);
        p[i] = add_of(w, names[i], geteuid());
    }
    assert_ptr_not_equal(p[0], p[1]);
    assert_ptr_equal(p[0], p[2]);
    assert_true(p[3] == p[0] || p[3] == p[1]); /* does not know it */
}

/* Its allocator's book was made as root, that of its reports after it gave that up. */
static void process_that_gives_up_root_stays_one(void **state)
{
    struct world *w = *state;
    if (geteuid() != 0)
        skip();
    pid_t child = child_of(1234);
    struct proc_stat stat;
    struct book_builder b;
    assert_int_equal(proc_stat_read(child, &stat), 0);
    for (int i = 0; i < 2; i++) {
        book_begin(w, &b, i ? "b.book" : "a.book", i ? BOOK_SOURCE_CLIENT : BOOK_SOURCE_MALLOC);
        b.h.pid = child;
        b.h.start_ticks = stat.start_ticks;
        b.h.exec_id = i ? 0 : 77; /* not even that says so */
        builder_publish(&b);
    }
    struct ledger_process *p = add_of(w, "a.book", 0);
    assert_int_equal(p->uid, 0);
    assert_ptr_equal(add_of(w, "b.book", 1234), p);
    assert_int_equal(p->uid, 1234);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Of the dead nobody can tell any more, so that anybody could say that root's was his. */
static void books_of_the_dead_join_by_owner_or_image(void **state)
{
    struct world *w = *state;
    if (geteuid() != 0)
        skip();
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    static const uint64_t images[] = {77, 0, 77};
    for (int i = 0; i < 3; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        b.h.pid = child;
        b.h.exec_id = images[i];
        builder_publish(&b);
    }
    struct ledger_process *p = add_of(w, "0.book", 0);
    assert_ptr_not_equal(add_of(w, "1.book", 1234), p);
    assert_ptr_equal(add_of(w, "2.book", 1234), p);
}

static void book_of_roots_daemon_is_the_users(void **state)
{
    struct world *w = *state;
    if (geteuid() != 0)
        skip();
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_SOCKET);
    b.h.compat = BOOK_COMPAT_ON_BEHALF;
    b.h.uid = 1234;
    builder_publish(&b);
    struct ledger_where where = {
        .dirfd = w->dirfd, .name = "a.book", .fd = -1, .uid = 1234, .place = w->place};
    struct ledger_book *book = NULL;
    assert_int_equal(ledger_book_add(w->ledger, &where, &book), 0);
    assert_int_equal(book->process->uid, 1234);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(first_source_that_ever_counted_wins),
        WORLD_TEST(bytes_without_blocks_count_too),
        WORLD_TEST(sums_stop_at_the_largest_number),
        WORLD_TEST(sum_with_an_estimate_is_one),
        WORLD_TEST(size_by_the_driver_goes_before_what_a_process_claims),
        WORLD_TEST(heap_belongs_to_who_allocates),
        WORLD_TEST(accounts_are_found_when_they_appear),
        WORLD_TEST(devices_belong_to_who_uses_them),
        WORLD_TEST(accounts_of_one_space_and_device_add_up),
        WORLD_TEST(own_books_of_one_source_add_up),
        WORLD_TEST(every_figure_of_two_copies_adds_up),
        WORLD_TEST(blocks_count_in_the_book_that_counts),
        WORLD_TEST(books_on_behalf_are_rivals_within_one_source_only),
        cmocka_unit_test(sources_are_never_added_up),
        WORLD_TEST(account_and_space_are_called_as_the_book_calls_them),
        WORLD_TEST(figures_are_not_whole_while_one_book_cannot_be_read),
        WORLD_TEST(of_books_on_behalf_the_one_being_written_counts),
        WORLD_TEST(of_books_on_behalf_the_youngest_counts),
        WORLD_TEST(transfers_are_chosen_by_themselves),
        WORLD_TEST(host_spaces_have_no_device),
        WORLD_TEST(what_is_left_out_is_counted),
        WORLD_TEST(inherited_and_quality_are_told),
        WORLD_TEST(sum_of_accounts_has_the_quality_of_each),
        WORLD_TEST(size_that_only_one_process_claimed_goes_with_it),
        WORLD_TEST(blocks_without_bytes_count_too),
        WORLD_TEST(account_says_on_whose_behalf_it_is),
        WORLD_TEST(accounts_of_another_source_are_not_those_of_a_book),
        WORLD_TEST(transfers_have_an_order_of_their_own),
        WORLD_TEST(what_could_not_be_read_speaks_against_nothing),
        WORLD_TEST(images_at_the_same_addresses_are_told_apart),
        WORLD_TEST(process_that_gives_up_root_stays_one),
        WORLD_TEST(books_of_the_dead_join_by_owner_or_image),
        WORLD_TEST(book_of_roots_daemon_is_the_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
