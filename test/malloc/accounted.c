/* accounted.c: with accounting on, blocks are what they are without: their sizes, what may be used of them, what children and others' threads
 * do with them. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "sandbox.h"

/* So many blocks of many sizes that no slab is new, and none is shared by several sizes. */
static void begin(void)
{
    for (int i = 0; i < 400; i++) {
        for (size_t bytes = 16; bytes <= 256; bytes += 16)
            MUST(malloc(bytes));
        for (size_t bytes = 512; bytes <= 1024; bytes *= 2)
            MUST(malloc(bytes));
    }
}

static void sizes_that_fit_exactly_do_so(void)
{
    begin();
    for (size_t bytes = 16; bytes <= 256; bytes += 16)
        MUST_SAY(malloc_usable_size(malloc(bytes)) == bytes, "%zu bytes have %zu", bytes,
                 malloc_usable_size(malloc(bytes)));
    for (size_t bytes = 512; bytes <= 32768; bytes *= 2)
        MUST_SAY(malloc_usable_size(malloc(bytes)) == bytes, "%zu bytes have %zu", bytes,
                 malloc_usable_size(malloc(bytes)));
}

/* Of small blocks and larger ones, as memalign() finds it, which goes another way. Where a block is sampled, its last 8 bytes may be held. */
static void every_size_has_the_room_of_its_class(void)
{
    enum { MOST = 10600, HELD = 8 };
    begin();
    for (size_t bytes = 0; bytes <= MOST; bytes += 16) /* a slab of each class has blocks */
        MUST(malloc(bytes));
    for (size_t bytes = 0; bytes <= MOST; bytes++) {
        void *block = malloc(bytes), *same = memalign(16, bytes);
        MUST(block && same);
        size_t usable = malloc_usable_size(block), wanted = malloc_usable_size(same);
        MUST_SAY(usable >= bytes && usable <= wanted + HELD && wanted <= usable + HELD,
                 "%zu bytes have %zu, not %zu", bytes, usable, wanted);
        free(block);
        free(same);
    }
}

/* How often a thread's heap had none at hand, by what it writes of itself. */
static unsigned long long times_out_of_blocks(void)
{
    static char text[65536];
    void (*dump)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "memoir_malloc_dump");
    unsigned long long sum = 0;
    int ends[2];
    MUST(dump && pipe(ends) == 0);
    dump(ends[1]);
    ssize_t n = read(ends[0], text, sizeof(text) - 1);
    MUST(n > 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    text[n] = '\0';
    for (char *at = text; (at = strstr(at, " times out of blocks")); at++) {
        const char *number = at;
        while (number > text && number[-1] >= '0' && number[-1] <= '9')
            number--;
        sum += strtoull(number, NULL, 10);
    }
    return sum;
}

static void *asks_for_the_same_again(void *unused)
{
    enum { ROUNDS_OF_SAME = 20000, FEW = 200 };
    static const size_t sizes[] = {1, 100, 1024, 1025, 3000, 8191};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        MUST(malloc(sizes[i])); /* stays, so that the slab does */
    unsigned long long before = times_out_of_blocks();
    for (int round = 0; round < ROUNDS_OF_SAME; round++)
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            void *block = malloc(sizes[i]);
            MUST(block);
            *(volatile char *)block = 1;
            free(block);
        }
    unsigned long long times = times_out_of_blocks() - before;
    MUST_SAY(before > 0 && times < FEW, "%llu times, %llu before", times, before);
    return unused;
}

static void blocks_that_were_freed_are_at_hand(void)
{
    pthread_t id;
    begin();
    asks_for_the_same_again(NULL);
    MUST(pthread_create(&id, NULL, asks_for_the_same_again, NULL) == 0);
    MUST(pthread_join(id, NULL) == 0);
}

/* Where more is left over than a word can tell, the block holds its size itself: that is not the program's. */
static void blocks_with_much_to_spare_keep_what_is_written(void)
{
    enum { BLOCKS = 200 };
    static unsigned char *blocks[BLOCKS];
    static size_t usable[BLOCKS];
    begin();
    for (int i = 0; i < BLOCKS; i++) {
        size_t align = (size_t)64 << i % 8;
        blocks[i] = aligned_alloc(align, (size_t)i * 37 % 3000);
        MUST(blocks[i] && (uintptr_t)blocks[i] % align == 0);
        usable[i] = malloc_usable_size(blocks[i]);
        MUST(usable[i] >= (size_t)i * 37 % 3000);
        memset(blocks[i], i, usable[i]);
    }
    for (int i = 0; i < BLOCKS; i++) {
        MUST(malloc_usable_size(blocks[i]) == usable[i]);
        for (size_t k = 0; k < usable[i]; k++)
            MUST(blocks[i][k] == (unsigned char)i);
        blocks[i] = realloc(blocks[i], usable[i] / 3 + 1);
        MUST(blocks[i] && blocks[i][0] == (unsigned char)i);
        free(blocks[i]);
    }
}

static bool is_accounted(void)
{
    const char *settings = getenv("MEMOIR_MALLOC");
    return settings && strstr(settings, "account=1");
}

/* So is all that the program is told of but these last bytes, in blocks of any size. */
static void all_but_the_size_may_be_used(void)
{
    begin();
    for (size_t align = 64; align <= 4096; align *= 2) {
        void *block = aligned_alloc(align, 1);
        size_t held = is_accounted() && align > 512 ? 8 : 0, usable = malloc_usable_size(block);
        MUST_SAY(usable == align - held, "%zu of %zu bytes", usable, align);
        MUST(malloc_usable_size(realloc(block, align - 1)) == align);
    }
    MUST(malloc_usable_size(malloc(100000)) >= 100000);
    MUST(malloc_usable_size(malloc(3000000)) >= 3000000);
}

/* Children of children, more than there are generations: each frees what its ancestors made and leaves blocks of its own. */
static void forks_of_forks_go_on(void)
{
    enum { DEEP = 80, EACH = 50 };
    static void *blocks[DEEP + 1][EACH];
    for (int deep = 0; deep <= DEEP; deep++) {
        for (int i = 0; i < EACH; i++)
            MUST(blocks[deep][i] = malloc((size_t)(i * 100 + 1)));
        for (int i = deep % 7; i < EACH; i += 7)
            for (int before = 0; before <= deep; before++) {
                free(blocks[before][i]);
                blocks[before][i] = NULL;
            }
        if (deep == DEEP)
            _exit(0);
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0)
            continue;
        int status;
        MUST(waitpid(child, &status, 0) == child);
        if (deep > 0)
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return;
    }
}

/* ---- memory for words ---- */

static size_t resident_bytes(void)
{
    char text[128] = {0};
    unsigned long total, resident;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    MUST(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && close(fd) == 0);
    MUST(sscanf(text, "%lu %lu", &total, &resident) == 2);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Blocks of 16 bytes: the words of these take a third as much. */
static void words_go_back_with_their_blocks(void)
{
    enum { BLOCKS = 2000000, ROOM = 4 << 20 };
    static void *blocks[BLOCKS];
    memset(blocks, 1, sizeof(blocks)); /* resident, before and after */
    begin();
    malloc_trim(0);
    size_t before = resident_bytes();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++)
            MUST(blocks[i] = malloc(16));
        MUST(resident_bytes() > before + BLOCKS * (size_t)16);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        malloc_trim(0);
        size_t after = resident_bytes();
        MUST_SAY(after < before + ROOM, "%zu bytes before, %zu after", before, after);
    }
}

/* ---- blocks that wander ---- */

enum { THREADS = 4, SLOTS = 512, ROUNDS = 50000 };
static void *slots[SLOTS];

static void *wander(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t r = case_random(&random);
        size_t bytes = (r >> 16) % (r % 64 == 0 ? 100000 : 2000) + sizeof(size_t);
        size_t *mine = malloc(bytes);
        MUST(mine);
        mine[0] = bytes;
        ((unsigned char *)mine)[bytes - 1] |= 0;
        size_t *other = __atomic_exchange_n(&slots[r % SLOTS], mine, __ATOMIC_ACQ_REL);
        if (!other)
            continue;
        MUST(malloc_usable_size(other) >= other[0]);
        if (r % 5 == 0) {
            size_t had = other[0];
            other = realloc(other, had * 2);
            MUST(other && other[0] == had);
        }
        free(other);
    }
    return NULL;
}

static void blocks_that_wander_between_threads_are_freed(void)
{
    pthread_t ids[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&ids[i], NULL, wander, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(ids[i], NULL) == 0);
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
}

/* Its book is there by then, though no block was, and is left behind. */
static void a_sandbox_may_kill_for_files(void)
{
    sandbox_enter(SANDBOX_KILLS);
    for (int i = 0; i < 20; i++)
        begin();
    void *large = malloc(64 << 20);
    MUST(large);
    memset(large, 1, 64 << 20);
    free(large);
    exit(0);
}

/* Whose book is mapped; 0: there is none. Reads without a buffer of stdio's, which would be counted. */
static pid_t book_pid_in(int fd)
{
    enum { TAIL = 256 };
    char text[TAIL + 4096 + 1];
    size_t kept = 0;
    pid_t pid = 0;
    MUST(fd >= 0);
    for (ssize_t n; pid == 0 && (n = read(fd, text + kept, 4096)) > 0;) {
        size_t length = kept + (size_t)n;
        text[length] = '\0';
        char *end = strstr(text, ".book"), *name = end;
        while (name && name > text && name[-1] != '/')
            name--;
        if (name)
            pid = (pid_t)strtol(name, NULL, 10);
        kept = length < TAIL ? length : TAIL;
        memmove(text, text + length - kept, kept);
    }
    MUST(close(fd) == 0);
    return pid;
}

static pid_t book_pid(void)
{
    return book_pid_in(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
}

static pid_t own_book(void)
{
    return is_accounted() ? getpid() : 0;
}

static void must_be_reaped(pid_t child)
{
    MUST(child > 0);
    case_reap(child);
}

/* What is forked in it finds no file either: it is not counted. */
static void a_child_of_a_sandbox_opens_no_file(void)
{
    begin();
    sandbox_enter(SANDBOX_KILLS);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 20; i++)
            begin();
        _exit(0);
    }
    must_be_reaped(child);
    begin();
}

static void *use_blocks(void *unused)
{
    begin();
    return unused;
}

static void threads_begin_in_a_sandbox(void)
{
    pthread_t ids[3];
    begin();
    sandbox_enter(SANDBOX_KILLS);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_create(&ids[i], NULL, use_blocks, NULL) == 0);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_join(ids[i], NULL) == 0);
    exit(0);
}

/* Its memory is the parent's, but no book of its own belongs there; nor is the parent locked up, whose next child has a book. */
static void a_child_of_vfork_may_lock_itself_up(void)
{
    pid_t child = vfork();
    if (child == 0)
        _exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    must_be_reaped(child);
    begin();
    MUST_SAY(book_pid() == own_book(), "%d has the book of %d", getpid(), book_pid());
    child = fork();
    if (child == 0) {
        begin();
        MUST(book_pid() == own_book());
        _exit(0);
    }
    must_be_reaped(child);
    sandbox_enter(SANDBOX_KILLS);
    begin();
    exit(0);
}

static void a_filter_that_is_refused_changes_nothing(void)
{
    errno = 0;
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1 && errno != 0);
    pid_t child = fork();
    if (child == 0) {
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1);
        begin();
        MUST(book_pid() == own_book());
        _exit(0);
    }
    must_be_reaped(child);
}

/* A child that has done nothing yet is about to run another program; one that has is counted on, and so is a program of its own. */
static void who_locks_itself_up_at_once_has_no_book(void)
{
    begin();
    pid_t child = fork();
    if (child == 0) {
        sandbox_enter(SANDBOX_REFUSES);
        begin();
        _exit(0);
    }
    must_be_reaped(child);
    child = fork();
    if (child == 0) {
        MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && book_pid() == 0);
        begin();
        MUST(book_pid() == 0);
        _exit(0);
    }
    must_be_reaped(child);
    child = fork();
    if (child == 0) {
        MUST(malloc(1));
        MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && book_pid() == own_book());
        _exit(0);
    }
    must_be_reaped(child);
}

/* ---- before our constructor ---- */

/* By one of a library (sandbox_early.c), when there is an environment: then there is a book; */
static void a_library_locks_the_program_up(void)
{
    begin();
    MUST(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    MUST(book_pid_in(SANDBOX_MAPS) == own_book());
    exit(0);
}

/* and before that, by the program. */
static void a_program_locks_itself_up_before_all(void)
{
    begin();
    MUST(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    exit(0);
}

static void before_all(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "a_program_locks_itself_up_before_all") == 0) {
        MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        sandbox_enter(SANDBOX_KILLS_UNSEEN);
    }
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int,
                                                                              char **) = before_all;

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(every_size_has_the_room_of_its_class),
        CASE(blocks_that_were_freed_are_at_hand),
        CASE(sizes_that_fit_exactly_do_so),
        CASE(blocks_with_much_to_spare_keep_what_is_written),
        CASE(all_but_the_size_may_be_used),
        CASE(forks_of_forks_go_on),
        CASE(words_go_back_with_their_blocks),
        CASE(blocks_that_wander_between_threads_are_freed),
        CASE(a_sandbox_may_kill_for_files),
        CASE(a_child_of_a_sandbox_opens_no_file),
        CASE(threads_begin_in_a_sandbox),
        CASE(a_child_of_vfork_may_lock_itself_up),
        CASE(a_filter_that_is_refused_changes_nothing),
        CASE(who_locks_itself_up_at_once_has_no_book),
        CASE(a_library_locks_the_program_up),
        CASE(a_program_locks_itself_up_before_all),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
