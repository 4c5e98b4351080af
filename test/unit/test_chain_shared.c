/* Chains that outlive those who use them: processes that map one segment at different addresses and die
 * within operations, children that inherit a lock. */
#include "chain_fixture.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "malloc/chain_lock.h"

enum {
    SEGMENT = 1 << 20,
    KILLS = 200,
    HELD = 64,      /* blocks that a worker holds at most */
    PATIENCE_S = 60 /* after which a hang is a failure */
};

/* Beside the chain, in memory of their own: what the workers do. */
struct ledger {
    uint64_t steps;      /* of the worker that is to be killed */
    uint64_t held[HELD]; /* its blocks, as distances from the segment's start; 0: none */
    uint32_t stop;
};

struct segment {
    int fd;
    char *base;
    struct memoir_chain *chain;
    struct ledger *ledger;
};

static struct segment segment_make(unsigned flags)
{
    struct segment s = {.fd = memfd_create("chain", MFD_CLOEXEC)};
    assert_true(s.fd >= 0);
    assert_int_equal(ftruncate(s.fd, SEGMENT), 0);
    s.base = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
    assert_ptr_not_equal(s.base, MAP_FAILED);
    s.ledger =
        mmap(NULL, sizeof(*s.ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(s.ledger, MAP_FAILED);
    s.chain = chain_over(s.base, SEGMENT, MEMOIR_CHAIN_SHARED | flags);
    return s;
}

/* In a child: the same segment at another address. */
static struct segment segment_elsewhere(const struct segment *from)
{
    struct segment s = *from;
    s.base = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
    if (s.base == MAP_FAILED || s.base == from->base || munmap(from->base, SEGMENT) < 0 ||
        memoir_chain_attach(s.base, SEGMENT, 0, &s.chain) < 0)
        _exit(10);
    return s;
}

static void segment_release(struct segment *s)
{
    munmap(s->base, SEGMENT);
    munmap(s->ledger, sizeof(*s->ledger));
    close(s->fd);
}

/* A worker checks what it wrote and exits with a number when that is not there. */
static void expect(bool good, int status)
{
    if (!good)
        _exit(status);
}

static void work_step(struct segment *s, struct dice *dice, uint64_t *held, unsigned char mark)
{
    uint64_t *slot = &held[dice_below(dice, HELD)];
    size_t bytes = 1 + dice_below(dice, 700);
    if (*slot == 0) {
        unsigned char *p = dice_below(dice, 4) ? memoir_chain_alloc(s->chain, bytes)
                                               : memoir_chain_aligned(s->chain, 128, bytes);
        if (!p)
            expect(errno == ENOMEM, 11);
        else {
            p[0] = mark;
            store_release(slot, (uint64_t)((char *)p - s->base));
        }
        return;
    }
    unsigned char *p = (unsigned char *)s->base + *slot;
    expect(p[0] == mark, 12);
    store_release(slot, 0); /* before it is gone: who frees for us must not find it twice */
    if (dice_below(dice, 2)) {
        expect(memoir_chain_free(s->chain, p) == 0, 13);
        return;
    }
    unsigned char *moved = memoir_chain_realloc(s->chain, p, bytes);
    expect(moved || errno == ENOMEM, 14);
    store_release(slot, (uint64_t)((char *)(moved ? moved : p) - s->base));
}

static pid_t doomed_start(const struct segment *from, uint64_t seed)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0)
        return pid;
    struct segment s = segment_elsewhere(from);
    struct dice dice = {seed};
    for (;;) {
        work_step(&s, &dice, s.ledger->held, 0xd0);
        fetch_add_relaxed(&s.ledger->steps, 1);
    }
}

static pid_t survivor_start(const struct segment *from, uint64_t seed)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0)
        return pid;
    struct segment s = segment_elsewhere(from);
    struct dice dice = {seed};
    uint64_t held[HELD] = {0};
    alarm(PATIENCE_S);
    while (!load_acquire(&s.ledger->stop))
        work_step(&s, &dice, held, 0x5e);
    for (int i = 0; i < HELD; i++)
        if (held[i])
            expect(memoir_chain_free(s.chain, s.base + held[i]) == 0, 15);
    expect(memoir_chain_detach(s.chain) == 0, 16);
    _exit(0);
}

static void wait_for_steps(struct ledger *l, uint64_t more)
{
    uint64_t goal = load_relaxed(&l->steps) + more;
    for (int i = 0; i < PATIENCE_S * 10000 && load_relaxed(&l->steps) < goal; i++)
        usleep(100);
    assert_true(load_relaxed(&l->steps) >= goal);
}

static void the_chain_survives_kills_within_operations(void **state)
{
    struct dice dice = {dice_seed()};
    struct segment s = segment_make(0);
    int status;
    alarm(PATIENCE_S * 2);
    pid_t survivor = survivor_start(&s, dice_next(&dice));
    for (int round = 0; round < KILLS; round++) {
        pid_t doomed = doomed_start(&s, dice_next(&dice));
        wait_for_steps(s.ledger, 20 + dice_below(&dice, 400));
        assert_int_equal(kill(doomed, SIGKILL), 0);
        assert_int_equal(waitpid(doomed, &status, 0), doomed);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_whole(s.chain);
        for (int i = 0; i < HELD; i++)
            if (s.ledger->held[i]) {
                assert_int_equal(memoir_chain_free(s.chain, s.base + s.ledger->held[i]), 0);
                s.ledger->held[i] = 0;
            }
    }
    store_release(&s.ledger->stop, 1);
    assert_int_equal(waitpid(survivor, &status, 0), survivor);
    assert_int_equal(status, 0);
    assert_whole(s.chain);
    struct memoir_chain_stats stats = stats_of(s.chain);
    print_message("# %d kills, %d within an operation, %d blocks left by the dead\n", KILLS,
                  (int)stats.recoveries, (int)stats.used_blocks);
    assert_true(stats.used_blocks <= 2 * KILLS); /* a realloc() of each at most */
    assert_int_equal(stats.bad_frees, 0);
    alarm(0);
    segment_release(&s);
}

static void die_with_the_lock(struct segment *s, void (*meanwhile)(struct memoir_chain *chain))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (chain_lock_take(s->chain) == 0 && meanwhile)
            meanwhile(s->chain);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void *alloc_one(void *user)
{
    return memoir_chain_alloc(user, 100);
}

/* Asleep in the kernel, not only about to take it. */
static void wait_until_asleep(const struct segment *s)
{
    const uint32_t *lock = &chain_shared(s->chain)->lock;
    while (!(load_relaxed(lock) & FUTEX_WAITERS))
        usleep(100);
    usleep(10000);
}

static void who_waits_is_woken_when_the_holder_dies(void **state)
{
    struct segment s = segment_make(0);
    int status;
    alarm(PATIENCE_S);
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        void *got = NULL;
        pid_t pid = fork();
        if (pid == 0) {
            expect(chain_lock_take(s.chain) == 0, 20);
            store_release(&s.ledger->steps, 1);
            for (;;)
                pause();
        }
        while (!load_acquire(&s.ledger->steps))
            usleep(100);
        assert_int_equal(pthread_create(&thread, NULL, alloc_one, s.chain), 0);
        wait_until_asleep(&s);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(pthread_join(thread, &got), 0);
        assert_non_null(got);
        store_release(&s.ledger->steps, 0);
    }
    assert_int_equal(stats_of(s.chain).recoveries, 5);
    assert_whole(s.chain);
    alarm(0);
    segment_release(&s);
}

/* The one that is woken wakes the next. */
static void all_who_wait_get_their_turn(void **state)
{
    for (unsigned flags = MEMOIR_CHAIN_THREAD_SAFE; flags <= MEMOIR_CHAIN_SHARED; flags++) {
        static char room[16384];
        struct memoir_chain *chain = chain_over(room, sizeof(room), flags);
        pthread_t threads[6];
        void *got;
        alarm(PATIENCE_S);
        assert_int_equal(chain_lock_take(chain), 0);
        for (int i = 0; i < 6; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, alloc_one, chain), 0);
        usleep(50000); /* most of them sleep by now */
        chain_lock_drop(chain);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(pthread_join(threads[i], &got), 0);
            assert_non_null(got);
        }
        assert_int_equal(stats_of(chain).used_blocks, 6);
        assert_int_equal(memoir_chain_destroy(chain), 0);
        alarm(0);
    }
}

static void overwrite_a_header(struct memoir_chain *chain)
{
    *region_first(chain_first_region(chain)) ^= 0x100;
}

static void a_lock_left_by_the_dead_is_taken_over(void **state)
{
    struct segment s = segment_make(0);
    alarm(PATIENCE_S);
    for (int i = 0; i < 3; i++) {
        die_with_the_lock(&s, NULL);
        void *p = memoir_chain_alloc(s.chain, 100);
        assert_non_null(p);
        assert_int_equal(memoir_chain_free(s.chain, p), 0);
    }
    assert_int_equal(stats_of(s.chain).recoveries, 3);
    assert_whole(s.chain);
    alarm(0);
    segment_release(&s);
}

static void damage_left_by_the_dead_breaks_the_chain_but_hangs_nobody(void **state)
{
    struct segment s = segment_make(0);
    alarm(PATIENCE_S);
    die_with_the_lock(&s, overwrite_a_header);
    for (int i = 0; i < 2; i++) {
        errno = 0;
        assert_null(memoir_chain_alloc(s.chain, 100));
        assert_int_equal(errno, ENOTRECOVERABLE);
    }
    assert_int_equal(memoir_chain_repair(s.chain), -EUCLEAN);
    assert_int_equal(memoir_chain_reset(s.chain), 0);
    assert_non_null(memoir_chain_alloc(s.chain, 100));
    assert_whole(s.chain);
    alarm(0);
    segment_release(&s);
}

static void attach_checks_what_it_finds(void **state)
{
    struct segment s = segment_make(0);
    struct memoir_chain *chain;
    static char private_room[4096];
    char *again = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 0, &chain), 0);
    assert_ptr_equal(chain, again);
    void *p = memoir_chain_alloc(s.chain, 10);
    assert_int_equal(memoir_chain_free(chain, again + ((char *)p - s.base)), 0);
    assert_int_equal(memoir_chain_attach(again, SEGMENT / 2, 0, &chain), -ENOSPC);
    assert_int_equal(memoir_chain_attach(again, 100, 0, &chain), -ENOSPC);
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 1u << 14, &chain), -EINVAL);
    memset(private_room, 0, sizeof(private_room));
    assert_int_equal(memoir_chain_attach(private_room, sizeof(private_room), 0, &chain), -ENOENT);
    chain_over(private_room, sizeof(private_room), 0);
    assert_int_equal(memoir_chain_attach(private_room, sizeof(private_room), 0, &chain), -EINVAL);
    uint64_t magic = ((struct memoir_chain *)again)->magic;
    memcpy(again, "MCHAIN01", 8);
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 0, &chain), -EPROTONOSUPPORT);
    ((struct memoir_chain *)again)->magic = magic;
    ((struct memoir_chain *)again)->flags ^= 1 << 20;
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 0, &chain), -EINVAL);
    ((struct memoir_chain *)again)->flags ^= 1 << 20;
    assert_int_equal(memoir_chain_destroy((struct memoir_chain *)again), 0);
    errno = 0;
    assert_null(memoir_chain_alloc(s.chain, 1)); /* ended for all */
    assert_int_equal(errno, EIDRM);
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 0, &chain), -EIDRM);
    munmap(again, SEGMENT);
    segment_release(&s);
}

/* A file that grew: the second half of one mapping, at the same distance everywhere. */
static void a_shared_chain_is_refilled_within_its_mapping(void **state)
{
    struct segment s = segment_make(0);
    struct memoir_chain *chain;
    assert_int_equal(memoir_chain_destroy(s.chain), 0);
    s.chain = chain_over(s.base, SEGMENT / 2, MEMOIR_CHAIN_SHARED);
    assert_null(memoir_chain_alloc(s.chain, SEGMENT / 2));
    assert_int_equal(memoir_chain_refill(s.chain, s.base + SEGMENT / 2, SEGMENT / 2), 0);
    char *p = memoir_chain_alloc(s.chain, SEGMENT / 2 - 1024);
    assert_non_null(p);
    char *again = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 0, &chain), 0);
    assert_whole(chain);
    assert_int_equal(memoir_chain_free(chain, again + (p - s.base)), 0);
    munmap(again, SEGMENT);
    segment_release(&s);
}

/* ---- a chain in a file, after the machine went down ---- */

/* As it is found then: a lock whose holder nobody remembers, an operation that was never finished. */
static void go_down(struct memoir_chain *chain)
{
    assert_int_equal(chain_lock_take(chain), 0);
    chain_heads(chain)[0] = 1234;
    chain->map_top = 0;
    store_relaxed(&chain_shared(chain)->boot, 4096);
    /* The kernel of this machine knows who holds it, and would say so: make it somebody else's. */
    chain_lock_drop(chain);
    chain_shared(chain)->lock = 0x3ffffff;
}

static int attach_in_child(const struct segment *s)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct memoir_chain *chain;
        alarm(PATIENCE_S);
        int r = memoir_chain_attach(s->base, SEGMENT, 0, &chain);
        _exit(r == 0 && memoir_chain_alloc(chain, 10) ? 0 : 1);
    }
    return pid;
}

static void a_chain_of_another_start_of_the_machine_is_mended(void **state)
{
    struct segment s = segment_make(0);
    struct memoir_chain *chain;
    void *p = memoir_chain_alloc(s.chain, 100);
    pid_t pids[4];
    alarm(PATIENCE_S);
    go_down(s.chain);
    for (int i = 0; i < 4; i++)
        pids[i] = attach_in_child(&s);
    assert_int_equal(memoir_chain_attach(s.base, SEGMENT, 0, &chain), 0);
    for (int i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_whole(chain);
    assert_int_equal(stats_of(chain).recoveries, 1); /* by one of the five */
    assert_int_equal(memoir_chain_free(chain, p), 0);
    assert_int_equal(stats_of(chain).used_blocks, 4);

    /* Who began to make the lock anew died over it. */
    uint64_t boot = chain_shared(chain)->boot;
    go_down(chain);
    store_relaxed(&chain_shared(chain)->boot, boot | 1);
    assert_int_equal(memoir_chain_attach(s.base, SEGMENT, 0, &chain), 0);
    assert_whole(chain);
    alarm(0);
    segment_release(&s);
}

/* ---- fork ---- */

struct holder {
    struct memoir_chain *chain;
    uint32_t holds, release;
};

static void *hold(void *user)
{
    struct holder *h = user;
    chain_lock_take(h->chain);
    store_release(&h->holds, 1);
    while (!load_acquire(&h->release))
        usleep(100);
    chain_lock_drop(h->chain);
    return NULL;
}

static int child_of_fork(struct memoir_chain *chain)
{
    void *p = memoir_chain_alloc(chain, 100);
    return p && memoir_chain_free(chain, p) == 0 && memoir_chain_check(chain, NULL) == 0 &&
                   stats_of(chain).recoveries == 1
               ? 0
               : 1;
}

static void a_child_takes_over_a_lock_that_it_inherited(void **state)
{
    static char room[8192];
    struct holder h = {.chain = chain_over(room, sizeof(room), MEMOIR_CHAIN_THREAD_SAFE)};
    pthread_t thread;
    int status;
    assert_int_equal(pthread_create(&thread, NULL, hold, &h), 0);
    while (!load_acquire(&h.holds))
        usleep(100);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(PATIENCE_S);
        _exit(child_of_fork(h.chain));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    store_release(&h.release, 1);
    pthread_join(thread, NULL);
    assert_non_null(
        memoir_chain_alloc(h.chain, 100)); /* the parent's own lock and chain are untouched */
    assert_int_equal(stats_of(h.chain).recoveries, 0);
}

/* The first use of a lock reads a file, once: so this comes before all others, which would have read it. */
static void the_number_of_standard_input_is_never_ours(void **unused)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        close(STDIN_FILENO);
        fault_standard_opens = 0;
        char *base = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct memoir_chain *chain = chain_over(base, SEGMENT, MEMOIR_CHAIN_SHARED);
        expect(memoir_chain_alloc(chain, 100) && fault_opens > 0, 1);
        expect(fault_standard_opens == 0 && fcntl(STDIN_FILENO, F_GETFD) < 0, 2);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_standard_input_is_never_ours),
        cmocka_unit_test(the_chain_survives_kills_within_operations),
        cmocka_unit_test(a_lock_left_by_the_dead_is_taken_over),
        cmocka_unit_test(all_who_wait_get_their_turn),
        cmocka_unit_test(who_waits_is_woken_when_the_holder_dies),
        cmocka_unit_test(damage_left_by_the_dead_breaks_the_chain_but_hangs_nobody),
        cmocka_unit_test(attach_checks_what_it_finds),
        cmocka_unit_test(a_shared_chain_is_refilled_within_its_mapping),
        cmocka_unit_test(a_chain_of_another_start_of_the_machine_is_mended),
        cmocka_unit_test(a_child_takes_over_a_lock_that_it_inherited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
