/* A book written on behalf of another process, from its copied stack, as `memoir sites` shows it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CAPTURE_DEFINE
#include "book/identity.h"
#include "book/report.h"
#include "capture.h"
#include "check.h"

struct shared {
    struct capture capture;
    struct book_header header; /* who the child is */
};

static struct shared *shared;
static volatile int sink;

int capture_fill(struct capture *c)
{
    capture_copy(c);
    return 1;
}

__attribute__((noinline)) int site_inner_function(void);
__attribute__((noinline)) int site_outer_function(void);

int site_inner_function(void)
{
    int r = capture_take(&shared->capture);
    sink++;
    return r;
}

int site_outer_function(void)
{
    char room[STACK_BYTES_MAX]; /* so much is above */
    memset(room, sink, sizeof(room));
    int r = site_inner_function();
    sink += room[r];
    return r;
}

static pid_t child_start(void)
{
    int done[2];
    char byte;
    assert_int_equal(pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever fails here */
        book_identity_self(&shared->header);
        site_outer_function();
        (void)!write(done[1], "x", 1);
        for (;;)
            pause();
    }
    close(done[1]);
    assert_int_equal(read(done[0], &byte, 1), 1);
    close(done[0]);
    return pid;
}

static void identity_copy(struct book_header *to, const struct book_header *from)
{
    memcpy(to->boot_id, from->boot_id, sizeof(to->boot_id));
    to->pid_ns = from->pid_ns;
    to->time_ns = from->time_ns;
    to->start_ticks = from->start_ticks;
    to->exec_id = from->exec_id;
    to->exec_random = from->exec_random;
    to->pid = from->pid;
    to->parent_pid = from->parent_pid;
    to->uid = from->uid;
    to->writer_pid = getpid();
    memcpy(to->comm, from->comm, sizeof(to->comm));
    memcpy(to->exe, from->exe, sizeof(to->exe));
    memcpy(to->command, from->command, sizeof(to->command));
}

struct writer {
    struct book_writer w;
    struct book_thread t;
};

static void output_of(const char *directory, pid_t pid, char *out, size_t size)
{
    char command[1024];
    snprintf(command, sizeof(command), "MEMOIR_DIR='%s' '%s' sites --stacks %d 2>&1", directory,
             MEMOIR, (int)pid);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    size_t n = fread(out, 1, size - 1, from);
    out[n] = '\0';
    pclose(from);
}

static void memoir_sites_names_the_functions(void **state)
{
    char directory[] = "/dev/shm/memoir-test-site-XXXXXX", out[16384];
    struct stacks *stacks;
    struct stack_process *process;
    struct stack_result result;
    assert_non_null(mkdtemp(directory));
    pid_t pid = child_start();
    struct stack_input input = {.registers = shared->capture.registers,
                                .bytes = shared->capture.bytes,
                                .n_bytes = shared->capture.n_bytes};
    assert_int_equal(stacks_new(&stacks), 0);
    assert_int_equal(stack_process_new(stacks, pid, &process), 0);
    assert_int_equal(stack_resolve(process, &input, &result), 0);
    assert_true(result.n >= 2);

    struct writer *writer = calloc(1, sizeof(*writer));
    struct book_writer *w = &writer->w;
    assert_int_equal(
        book_writer_init(
            w, &(struct book_writer_options){.source = BOOK_SOURCE_OBSERVER, .on_behalf = true}),
        0);
    book_thread_init(w, &writer->t);
    identity_copy(w->header, &shared->header);
    int account = book_account_add(w, &writer->t, 1, BOOK_DEVICE_HOST, "heap");
    char place[64]; /* books lie in a folder for each user */
    snprintf(place, sizeof(place), "%s/%u", directory, geteuid());
    assert_int_equal(mkdir(place, 0700), 0);
    int dirfd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(book_writer_publish_at(w, dirfd), 0);
    /* A line of a script, too: as if Python had called. */
    struct book_script script = {.function = "Loader.load_batch", .file = "/home/u/train.py"};
    result.frames[result.n < STACK_FRAMES_MAX ? result.n++ : STACK_FRAMES_MAX - 1] =
        (struct book_frame){.script = &script, .offset = 41};
    uint32_t site =
        book_site_add_frames(w, &writer->t, (uint32_t)account, result.frames, result.n, 0);
    book_alloc(w, &writer->t, 0x1000, 7 << 20, (uint64_t)site << 12 | (uint32_t)account);

    output_of(directory, pid, out, sizeof(out));
    static const char *const expected[] = {"site_inner_function", "site_outer_function",
                                           "test_site_book.c",    "Loader.load_batch",
                                           "train.py:41",         "7.3 MB in 1 block"};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        if (!strstr(out, expected[i]))
            fail_msg("no '%s' in\n%s", expected[i], out);

    unlinkat(dirfd, w->name, 0);
    close(dirfd);
    rmdir(place);
    rmdir(directory);
    book_writer_forget(w);
    free(writer);
    stack_process_free(process);
    stacks_free(stacks);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memoir_sites_names_the_functions)};
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
