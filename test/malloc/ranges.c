/* ranges.c: a heap at fixed addresses, and heaps that go from one process to another. The image is the file behind descriptor
 * IMAGE_FD; processes that play another part are this program again, with the part's name and other settings. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <memoir/heap.h>
#include <memoir/malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "ranges.h"

extern char **environ;

/* ---- parts ---- */

/* Run a part with these settings; what it says on stderr is left in `said` (may be NULL). Gives its exit status. */
static int part_with(const char *part, const char *settings, unsigned long persona, char *said,
                     size_t room)
{
    char variable[256];
    int words[2];
    MUST(pipe(words) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        snprintf(variable, sizeof(variable), "MEMOIR_MALLOC=%s", settings);
        putenv(variable);
        if (persona)
            personality(persona);
        if (said)
            dup2(words[1], STDERR_FILENO);
        close(words[0]);
        close(words[1]);
        execl("/proc/self/exe", "ranges", part, NULL);
        _exit(99);
    }
    close(words[1]);
    size_t n = 0;
    for (ssize_t got = 1; said && n < room - 1 && got > 0; n += got > 0 ? (size_t)got : 0)
        got = read(words[0], said + n, room - 1 - n);
    if (said)
        said[n] = 0;
    close(words[0]);
    int status = -1;
    while (waitpid(child, &status, 0) < 0)
        MUST(errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void part(const char *name, const char *settings)
{
    int status = part_with(name, settings, 0, NULL, 0);
    MUST_SAY(status == 0, "%s with %s ended with %d", name, settings, status);
}

static void image_begin(void)
{
    int file = memfd_create("image", 0);
    MUST(file >= 0 && (file == IMAGE_FD || (dup2(file, IMAGE_FD) == IMAGE_FD && close(file) == 0)));
}

static void image_rewind(void)
{
    MUST(lseek(IMAGE_FD, 0, SEEK_SET) == 0);
}

/* ---- where blocks lie ---- */

static void all_blocks_lie_in_the_range(void)
{
    static const size_t sizes[] = {0, 1, 16, 100, 3000, 32768, 40000, 1 << 20, 3 << 20, 9 << 20};
    struct memoir_malloc_range r = range_now();
    MUST(r.slot == 3 && r.slots == 256 && r.bytes == (uint64_t)1 << 30 && !r.waiting);
    MUST(r.base == r.all_base + 3 * r.bytes && r.nodes * r.node_bytes <= r.bytes);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *a = malloc(sizes[i]), *b = calloc(sizes[i] + 1, 1);
        char *c = memalign(64 << 10, sizes[i]), *d = memalign(4 << 20, sizes[i]);
        MUST(in_range(a) && in_range(b) && in_range(c) && in_range(d));
        MUST((uintptr_t)d % (4 << 20) == 0);
        a = realloc(a, sizes[i] * 2 + 1);
        b = realloc(b, sizes[i] * 2 + (4 << 20));
        MUST(in_range(a) && in_range(b));
        memset(b, 1, sizes[i] * 2 + (4 << 20));
        free(a);
        free(b);
        free(c);
        free(d);
    }
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

/* Addresses come back, and what was there reads as zero. */
static void addresses_are_used_again(void)
{
    uint64_t most = 0;
    for (int round = 0; round < 8; round++) {
        char *blocks[20];
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            blocks[i] = calloc(1, (i + 1) << 20);
            MUST(in_range(blocks[i]));
            for (size_t at = 0; at < (i + 1) << 20; at += 4096)
                MUST(blocks[i][at] == 0);
            memset(blocks[i], 7, (i + 1) << 20);
        }
        for (size_t i = 0; i < COUNT_OF(blocks); i++)
            free(blocks[(i * 7) % COUNT_OF(blocks)]);
        malloc_trim(0);
        uint64_t mapped = range_now().mapped_bytes;
        most = mapped > most ? mapped : most;
    }
    MUST_SAY(most < 64 << 20, "%llu bytes stay mapped", (unsigned long long)most);
}

static void a_range_ends_with_enomem_after_what_is_kept_went_back(void)
{
    part("part_exhaust", "range=auto,range_bytes=64M,slot=1,pressure=none");
}

static void part_exhaust(void)
{
    enum { PIECE = 4 << 20 };
    char *pieces[64];
    size_t n = 0, small = 0;
    for (errno = 0; n < 64 && (pieces[n] = malloc(PIECE - 4096)); n++)
        MUST(in_range(pieces[n]));
    MUST_SAY(n >= 8 && n <= 16 && errno == ENOMEM, "%zu pieces, errno %d", n, errno);
    for (size_t i = 0; i < n; i++)
        free(pieces[i]); /* some is kept, which the small ones need */
    struct link {
        struct link *next;
    } *list = NULL, *one;
    for (errno = 0; (one = malloc(30000)); small++) {
        MUST(in_range(one));
        one->next = list;
        list = one;
    }
    MUST_SAY(errno == ENOMEM && small * 30000 > 40 << 20, "%zu small ones", small);
    for (; list; list = one) {
        one = list->next;
        free(list);
    }
    MUST(malloc(40 << 20));
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

/* Addresses are there already, so RLIMIT_AS limits nothing there; but what is for data does. */
static void limits_of_memory_hold(void)
{
    enum { ROOM = 64 << 20, PIECE = 1 << 20 };
    struct rlimit limit = {.rlim_cur = ROOM, .rlim_max = RLIM_INFINITY};
    size_t n = 0;
    MUST(setrlimit(RLIMIT_DATA, &limit) == 0);
    for (errno = 0; n < 2 * ROOM / PIECE && malloc(PIECE); n++)
        ;
    MUST_SAY(errno == ENOMEM && n * PIECE > ROOM / 4 && n * PIECE <= ROOM, "%zu MiB", n);
}

static void children_have_the_range_too(void)
{
    struct tree *t = tree_make(300, 11);
    for (int how = 0; how < 2; how++) {
        pid_t child = how == 0 ? case_fork() : _Fork();
        MUST(child >= 0);
        if (child == 0) {
            tree_check(t);
            struct tree *more = tree_make(300, 12);
            MUST(in_range(more));
            tree_free(t);
            tree_check(more);
            MUST(memoir_malloc_check(STDERR_FILENO) == 0);
            image_begin();
            MUST(memoir_malloc_range_save(IMAGE_FD, more) == 0);
            image_rewind();
            part("part_receive", RECEIVE);
            _exit(0);
        }
        case_reap(child);
    }
    tree_check(t);
}

/* ---- from one process to another ---- */

static void save(const void *root)
{
    image_begin();
    int r = memoir_malloc_range_save(IMAGE_FD, root);
    MUST_SAY(r == 0, "save: %d", r);
    image_rewind();
}

static struct tree *load(void)
{
    void *root = NULL;
    int r = memoir_malloc_range_load(IMAGE_FD, &root);
    MUST_SAY(r == 0, "load: %d", r);
    MUST(root && in_range(root));
    return root;
}

/* Blocks of a process that are not of the image: as many of each size that slabs of before become full and empty. */
enum { OWN = 1200 };
static char *own[OWN];

static size_t own_bytes(size_t i)
{
    return i < 1000 ? 800 + i % 2 * 800 : i < 1190 ? 40000 + i * 100 : (size_t)2 << 20;
}

static void own_make(bool in)
{
    for (size_t i = 0; i < OWN; i++) {
        own[i] = malloc(own_bytes(i));
        MUST_SAY(own[i] && in_range(own[i]) == in, "%zu bytes at %p", own_bytes(i), (void *)own[i]);
        memset(own[i], (int)i, 16);
    }
}

static void own_free(void)
{
    for (size_t i = 0; i < OWN; i++) {
        size_t k = i * 7 % OWN;
        MUST_SAY(!own[k] || own[k][15] == (char)k, "block %zu", k);
        free(own[k]);
    }
}

/* Has the blocks of another process, and does with them what any process does with its own. */
static struct tree *receive(void)
{
    MUST(range_now().waiting && range_now().mapped_bytes == 0);
    own_make(false);
    for (size_t i = 0; i < OWN; i += 3) { /* slabs that have some of both */
        free(own[i]);
        own[i] = NULL;
    }
    struct tree *t = load();
    MUST(!range_now().waiting);
    tree_check(t);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
    own_free();
    own_make(true); /* nothing new lies where that was */
    own_free();
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
    MUST(memoir_malloc_range_load(IMAGE_FD, NULL) == -EEXIST);
    return t;
}

static void part_receive(void)
{
    struct tree *t = receive();
    tree_change(t, 99);
    tree_check(t);
    struct tree *more = tree_make(1000, 5);
    tree_check(t);
    tree_free(t);
    tree_check(more);
    tree_free(more);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
    malloc_trim(0);
}

static void part_receive_and_send(void)
{
    struct tree *t = receive();
    tree_change(t, 7);
    save(t);
    part("part_receive", RECEIVE);
    tree_check(t);
}

static void another_process_goes_on_with_the_blocks(void)
{
    struct tree *t = tree_make(3000, 1);
    tree_change(t, 2);
    save(t);
    part("part_receive", RECEIVE);
    tree_check(t); /* and so do we */
    tree_free(t);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

static void and_sends_them_on(void)
{
    save(tree_make(500, 3));
    part("part_receive_and_send", RECEIVE);
}

static void wherever_the_kernel_puts_the_rest(void)
{
    static const unsigned long personas[] = {
        ADDR_NO_RANDOMIZE, ADDR_COMPAT_LAYOUT, ADDR_NO_RANDOMIZE | ADDR_COMPAT_LAYOUT, 0, 0, 0};
    save(tree_make(200, 4));
    for (size_t i = 0; i < COUNT_OF(personas); i++) {
        image_rewind();
        int status = part_with("part_receive", RECEIVE, personas[i], NULL, 0);
        MUST_SAY(status == 0, "personality %lx: %d", personas[i], status);
    }
}

static void *saving(void *root)
{
    int r = memoir_malloc_range_save(IMAGE_FD, root);
    MUST_SAY(r == 0, "save: %d", r);
    MUST(write(IMAGE_FD, "after", 5) == 5);
    close(IMAGE_FD);
    return NULL;
}

static void part_receive_from_pipe(void)
{
    char after[16];
    tree_check(load());
    MUST(read(IMAGE_FD, after, sizeof(after)) == 5 && memcmp(after, "after", 5) == 0);
}

/* A pipe is read to the end of the image, and not further. */
static void through_a_pipe(void)
{
    int ends[2];
    pthread_t thread;
    MUST(pipe2(ends, O_CLOEXEC) == 0);
    struct tree *t = tree_make(500, 6);
    MUST(dup2(ends[1], IMAGE_FD) == IMAGE_FD);
    fcntl(IMAGE_FD, F_SETFD, FD_CLOEXEC);
    MUST(pthread_create(&thread, NULL, saving, t) == 0);
    close(ends[1]);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(dup2(ends[0], IMAGE_FD) == IMAGE_FD);
        setenv("MEMOIR_MALLOC", RECEIVE, 1);
        execl("/proc/self/exe", "ranges", "part_receive_from_pipe", NULL);
        _exit(99);
    }
    close(ends[0]);
    pthread_join(thread, NULL);
    case_reap(child);
}

static atomic_bool stop;

static void *churn(void *seed)
{
    uint64_t state = (uintptr_t)seed;
    void *blocks[500] = {0};
    while (!atomic_load(&stop)) {
        size_t i = case_random(&state) % COUNT_OF(blocks);
        free(blocks[i]);
        size_t bytes = case_random(&state) % (case_random(&state) % 50 ? 3000 : 3 << 20);
        blocks[i] = malloc(bytes);
        MUST(blocks[i]);
        memset(blocks[i], 1, bytes < 5000 ? bytes : 5000);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        free(blocks[i]);
    return NULL;
}

/* What a thread had is in the image too, whatever it was doing: its blocks are in use there for ever. */
static void while_other_threads_go_on(void)
{
    pthread_t threads[3];
    struct tree *t = tree_make(500, 8);
    for (uintptr_t i = 0; i < COUNT_OF(threads); i++)
        MUST(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int round = 0; round < 4; round++) {
        save(t);
        part("part_receive", RECEIVE);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], NULL);
    tree_check(t);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

enum { SHARED = 4000 };

static void *alloc_shared(void *blocks)
{
    for (size_t i = 0; i < SHARED; i++)
        ((void **)blocks)[i] = malloc(64);
    return NULL;
}

static void part_freed(void)
{
    void *root;
    size_t before = mallinfo2().uordblks;
    MUST(memoir_malloc_range_load(IMAGE_FD, &root) == 0);
    size_t wanted = SHARED / 2 * (64 + 128) + SHARED * sizeof(void *), is = mallinfo2().uordblks;
    MUST_SAY(is >= wanted && is < wanted + 32768 + before, "%zu bytes in use, not %zu", is, wanted);
    for (size_t i = 0; i < SHARED; i += 2)
        free(((void **)root)[i]);
    MUST(mallinfo2().uordblks <= is - SHARED / 2 * 64);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

/* Of slabs that nobody owns, too, whose free blocks are in two lists. */
static void what_is_free_is_free_there(void)
{
    pthread_t thread;
    void **blocks = malloc(SHARED * sizeof(void *));
    static void *mine[SHARED];
    MUST(pthread_create(&thread, NULL, alloc_shared, blocks) == 0);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < SHARED; i++)
        mine[i] = malloc(128);
    for (size_t i = 1; i < SHARED; i += 2) {
        free(blocks[i]);
        free(mine[i]);
    }
    save(blocks);
    part("part_freed", RECEIVE);
}

/* Of the kernel's huge pages: 2 MiB, or more where its pages are larger. */
static size_t huge_page_bytes(void)
{
    char text[32] = "";
    int fd = open("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0)
        close(fd);
    size_t bytes = got > 0 ? strtoul(text, NULL, 10) : 0;
    return bytes ? bytes : 2 << 20;
}

/* Memory that was never touched is not written, and is not there afterwards either, but for a huge page around each of the two that were. */
static void part_sparse(void)
{
    void *root;
    size_t before = case_resident();
    MUST(memoir_malloc_range_load(IMAGE_FD, &root) == 0);
    char *block = root;
    MUST(block[0] == 1 && block[300 << 20] == 2 && block[299 << 20] == 0);
    MUST_SAY(case_resident() < before + (12 << 20) + 2 * huge_page_bytes(), "%zu, then %zu", before,
             case_resident());
    MUST(malloc_usable_size(block) > 300 << 20);
    free(block);
}

static void pages_of_zeroes_are_not_written(void)
{
    char *block = calloc(1, (300 << 20) + 1);
    MUST(block);
    block[0] = 1;
    block[300 << 20] = 2;
    save(block);
    MUST(lseek(IMAGE_FD, 0, SEEK_END) < 4 << 20);
    image_rewind();
    part("part_sparse", RECEIVE);
}

/* Only the thread that loads may have a heap: what the others have in their hands cannot move. */
static pthread_barrier_t barrier;

static void *have_a_heap(void *unused)
{
    free(malloc(10));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void part_threads(void)
{
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    MUST(pthread_create(&thread, NULL, have_a_heap, NULL) == 0);
    pthread_barrier_wait(&barrier);
    MUST(memoir_malloc_range_load(IMAGE_FD, NULL) == -EBUSY);
    MUST(lseek(IMAGE_FD, 0, SEEK_CUR) == 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    part_receive();
}

static void not_beside_threads_that_have_heaps(void)
{
    save(tree_make(100, 9));
    part("part_threads", RECEIVE);
}

/* ---- what is refused ---- */

static void part_refuse(void)
{
    int wanted = atoi(getenv("WANTED"));
    int r = memoir_malloc_range_load(IMAGE_FD, NULL);
    MUST_SAY(r == -wanted, "load: %d, expected %d", r, -wanted);
    if (wanted == EXDEV)
        MUST(range_now().waiting && range_now().mapped_bytes == 0);
    void *block = malloc(100);
    MUST(block && memoir_malloc_check(STDERR_FILENO) == 0);
    free(block);
}

static void refused(const char *settings, int error)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", error);
    setenv("WANTED", text, 1);
    image_rewind();
    part("part_refuse", settings);
}

static void by_who_has_another_range_or_none(void)
{
    save(tree_make(100, 10));
    refused("range=auto,range_bytes=1G,slot=4,receive=1", EXDEV);
    refused("range=auto,range_bytes=2G,slot=3,receive=1", EXDEV);
    refused("range=0x200000000000,range_bytes=1G,slot=3,receive=1", EXDEV);
    refused("range=auto,range_bytes=1G,slot=3", EEXIST);
    refused("", ENOENT);
    refused(RECEIVE ",harden=1", ENOTSUP);
    refused(RECEIVE ",account=1", ENOTSUP);
}

static void part_no_save(void)
{
    int wanted = atoi(getenv("WANTED"));
    int r = memoir_malloc_range_save(IMAGE_FD, NULL);
    MUST_SAY(r == -wanted, "save: %d, expected %d", r, -wanted);
    MUST(lseek(IMAGE_FD, 0, SEEK_CUR) == 0);
}

static void nothing_is_saved_that_could_not_be_loaded(void)
{
    static const struct {
        const char *settings;
        const char *error;
    } cases[] = {{"range=auto,range_bytes=1G,account=1", "95"},
                 {"range=auto,range_bytes=1G,harden=1", "95"},
                 {"range=auto,range_bytes=1G,receive=1", "11"},
                 {"", "2"}};
    static_assert(ENOTSUP == 95 && EAGAIN == 11 && ENOENT == 2, "as above");
    image_begin();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        setenv("WANTED", cases[i].error, 1);
        part("part_no_save", cases[i].settings);
    }
    int local;
    MUST(memoir_malloc_range_save(IMAGE_FD, &local) == -EINVAL);
    MUST(memoir_malloc_range_save(998, NULL) == -EBADF);
}

static void on_signal(int number)
{
    case_fail(__FILE__, __LINE__, "signal %d", number);
}

/* The child that writes is nobody's business. */
static void a_writer_that_fails_is_an_error_and_no_signal(void)
{
    int ends[2], full = open("/dev/full", O_WRONLY);
    tree_make(1000, 13);
    signal(SIGPIPE, on_signal);
    signal(SIGCHLD, on_signal);
    MUST(pipe(ends) == 0 && full >= 0);
    close(ends[0]);
    errno = 77;
    MUST(memoir_malloc_range_save(ends[1], NULL) == -EPIPE);
    MUST(memoir_malloc_range_save(full, NULL) == -ENOSPC);
    MUST(errno == 77);
    struct rlimit limit = {.rlim_cur = 8192, .rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, on_signal);
    MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    image_begin();
    MUST(memoir_malloc_range_save(IMAGE_FD, NULL) == -EFBIG);
    MUST(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

/* ---- when there is no range ---- */

static void part_without(void)
{
    struct memoir_malloc_range r = {.struct_size = sizeof(r)};
    int wanted = atoi(getenv("WANTED"));
    MUST_SAY(memoir_malloc_range(&r) == -wanted, "%d", memoir_malloc_range(&r));
    tree_free(tree_make(1000, 14));
    MUST(memoir_malloc_range_save(IMAGE_FD, NULL) == -wanted);
    MUST(memoir_malloc_range_load(IMAGE_FD, NULL) == -wanted);
    MUST(memoir_malloc_check(STDERR_FILENO) == 0);
}

static void without(const char *settings, unsigned long persona, int error, const char *told)
{
    char text[16], said[1024];
    snprintf(text, sizeof(text), "%d", error);
    setenv("WANTED", text, 1);
    int status = part_with("part_without", settings, persona, said, sizeof(said));
    MUST_SAY(status == 0 && strstr(said, told) && strstr(said, "the heap lies elsewhere"),
             "%s: status %d: %s", settings, status, said);
}

static void addresses_that_are_taken_are_told_and_the_program_goes_on(void)
{
    without("range=0x555555400000,range_bytes=1G,slots=1", ADDR_NO_RANDOMIZE, EEXIST,
            "these addresses are taken: 0x555555400000 to 0x555595400000");
}

static void nonsense_is_told_and_the_program_goes_on(void)
{
    without("range=0x1234,range_bytes=1G", 0, EINVAL, "range is not a multiple of 2 MiB");
    without("range=auto,range_bytes=1", 0, EINVAL, "range_bytes is not");
    without("range=auto,range_bytes=64T", 0, EINVAL, "range_bytes is not");
    without("range=auto,slot=256", 0, EINVAL, "slot is not one of the slots");
    without("range=auto,range_bytes=1T,slots=1000", 0, EINVAL, "the slots do not fit");
    without("range=0xffffffffffe00000", 0, EINVAL, "the slots do not fit");
}

static void no_room_for_addresses_is_told_and_the_program_goes_on(void)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)8 << 30, .rlim_max = RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    without("range=auto,range_bytes=64G", 0, ENOMEM, "these addresses cannot be held");
}

static const struct test_case cases[] = {
    {"all_blocks_lie_in_the_range", all_blocks_lie_in_the_range},
    {"addresses_are_used_again", addresses_are_used_again},
    {"a_range_ends_with_enomem_after_what_is_kept_went_back",
     a_range_ends_with_enomem_after_what_is_kept_went_back},
    {"limits_of_memory_hold", limits_of_memory_hold},
    {"children_have_the_range_too", children_have_the_range_too},
    {"another_process_goes_on_with_the_blocks", another_process_goes_on_with_the_blocks},
    {"and_sends_them_on", and_sends_them_on},
    {"wherever_the_kernel_puts_the_rest", wherever_the_kernel_puts_the_rest},
    {"through_a_pipe", through_a_pipe},
    {"while_other_threads_go_on", while_other_threads_go_on},
    {"what_is_free_is_free_there", what_is_free_is_free_there},
    {"pages_of_zeroes_are_not_written", pages_of_zeroes_are_not_written},
    {"not_beside_threads_that_have_heaps", not_beside_threads_that_have_heaps},
    {"by_who_has_another_range_or_none", by_who_has_another_range_or_none},
    {"nothing_is_saved_that_could_not_be_loaded", nothing_is_saved_that_could_not_be_loaded},
    {"a_writer_that_fails_is_an_error_and_no_signal",
     a_writer_that_fails_is_an_error_and_no_signal},
    {"addresses_that_are_taken_are_told_and_the_program_goes_on",
     addresses_that_are_taken_are_told_and_the_program_goes_on},
    {"nonsense_is_told_and_the_program_goes_on", nonsense_is_told_and_the_program_goes_on},
    {"no_room_for_addresses_is_told_and_the_program_goes_on",
     no_room_for_addresses_is_told_and_the_program_goes_on},
};

static const struct test_case parts[] = {
    {"part_exhaust", part_exhaust},
    {"part_receive", part_receive},
    {"part_receive_and_send", part_receive_and_send},
    {"part_receive_from_pipe", part_receive_from_pipe},
    {"part_freed", part_freed},
    {"part_sparse", part_sparse},
    {"part_threads", part_threads},
    {"part_refuse", part_refuse},
    {"part_no_save", part_no_save},
    {"part_without", part_without},
};

int main(int argc, char **argv)
{
    bool is_part = argc > 1 && strncmp(argv[1], "part_", 5) == 0;
    return is_part ? cases_main(argc, argv, parts, COUNT_OF(parts))
                   : cases_main(argc, argv, cases, COUNT_OF(cases));
}
