/* Objects of CPython and lists of libraries, interpreted by the parser: it answers as the same code in this process does, its answers
 * are checked, and what happens to it costs names only. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "observe/elf_parser_internal.h"
#include "observe/link_map.h"
#include "observe/parser_pool.h"
#include "python_memory.h"

enum { CALLS = 3 };

struct fixture {
    struct python_memory memory;
    struct python_remote remote;
    uint32_t deaths;
};

static struct fixture *fixture_new(struct elf_parser *parser)
{
    static const char *const functions[CALLS] = {"Loader.load_batch", "outer", "<module>"};
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    python_memory_remote(&f->memory, &f->remote, parser, &f->deaths);
    for (uint32_t i = 0; i < CALLS; i++)
        f->remote.stack.frames[i] = (struct python_frame){
            python_memory_code(&f->memory, functions[i], "/srv/train.py", 10 * (i + 1)), 0};
    f->remote.stack.n = CALLS;
    return f;
}

/* ---- the parser itself ---- */

static void names_are_those_that_this_process_would_find(void **state)
{
    struct elf_parser *parser;
    assert_int_equal(elf_parser_new(&parser), 0);
    struct fixture *here = fixture_new(NULL), *there = fixture_new(parser);
    assert_int_equal(python_remote_names(&here->remote, CALLS), CALLS);
    assert_int_equal(python_remote_names(&there->remote, CALLS), CALLS);
    assert_memory_equal(here->remote.scripts, there->remote.scripts,
                        CALLS * sizeof(here->remote.scripts[0]));
    assert_memory_equal(here->remote.lines, there->remote.lines,
                        CALLS * sizeof(here->remote.lines[0]));
    assert_string_equal(there->remote.scripts[0].function, "Loader.load_batch");
    assert_string_equal(there->remote.scripts[0].file, "/srv/train.py");
    assert_int_equal(there->remote.lines[0], 10);
    /* However many calls there are: code objects, heads, characters. */
    assert_int_equal(there->memory.reads, 3);
    free(here);
    free(there);
    elf_parser_free(parser);
}

/* The kernel saw another code object at that address than the one that has the name. */
static void a_name_is_not_given_to_a_call_that_the_kernel_saw_otherwise(void **state)
{
    struct fixture *f = fixture_new(NULL);
    assert_int_equal(python_remote_names(&f->remote, CALLS), CALLS);
    uint64_t words[PYTHON_CODE_CHECK_WORDS];
    memcpy(words,
           f->memory.bytes + (f->remote.stack.frames[0].code - PYTHON_MEMORY_AT) +
               PYTHON_CODE_CHECK_AT,
           sizeof(words));
    f->remote.checks[0] = python_code_check(words);
    assert_int_equal(python_remote_names(&f->remote, CALLS), CALLS);
    f->remote.checks[0] ^= 2;
    assert_int_equal(python_remote_names(&f->remote, CALLS), CALLS - 1);
    assert_string_equal(f->remote.scripts[0].function, "");
    free(f);
}

static void names_that_hold_are_kept_and_others_are_read_again(void **state)
{
    struct elf_parser *parser;
    assert_int_equal(elf_parser_new(&parser), 0);
    struct fixture *f = fixture_new(parser);
    assert_int_equal(python_remote_names(&f->remote, CALLS), CALLS);
    assert_int_equal(f->remote.names_read, CALLS);
    /* One read for all, and no question. */
    f->memory.reads = 0;
    f->remote.parser = NULL;
    f->remote.deaths = NULL;
    assert_int_equal(python_remote_names(&f->remote, CALLS), CALLS);
    assert_int_equal(f->memory.reads, 1);
    f->remote.parser = parser;
    f->remote.deaths = &f->deaths;
    assert_int_equal(f->remote.names_read, CALLS);
    assert_string_equal(f->remote.scripts[1].function, "outer");
    /* Another function at the same address. */
    uint64_t other = python_memory_code(&f->memory, "other", "/srv/other.py", 7);
    uint64_t first = f->remote.stack.frames[0].code;
    memcpy(f->memory.bytes + (first - PYTHON_MEMORY_AT),
           f->memory.bytes + (other - PYTHON_MEMORY_AT), 256);
    assert_int_equal(python_remote_names(&f->remote, CALLS), CALLS);
    assert_int_equal(f->remote.names_read, CALLS + 1);
    assert_string_equal(f->remote.scripts[0].function, "other");
    /* No code object any more. */
    memset(f->memory.bytes + (first - PYTHON_MEMORY_AT), 0, 256);
    assert_int_equal(python_remote_names(&f->remote, CALLS), CALLS - 1);
    assert_string_equal(f->remote.scripts[0].function, "");
    assert_int_equal(f->deaths, 0);
    free(f);
    elf_parser_free(parser);
}

/* A process whose memory ends the child that reads it. */
struct deadly {
    struct python_memory *memory;
    struct elf_parser *parser;
};

static void read_and_kill(void *context, struct remote_piece *pieces, size_t n)
{
    struct deadly *d = context;
    kill(elf_parser_pid(d->parser), SIGKILL);
    python_memory_read(d->memory, pieces, n);
}

static void a_process_over_which_children_die_has_no_names_and_others_have(void **state)
{
    struct elf_parser *parser;
    assert_int_equal(elf_parser_new(&parser), 0);
    struct fixture *bad = fixture_new(parser), *good = fixture_new(parser);
    struct deadly d = {&bad->memory, parser};
    bad->remote.read = read_and_kill;
    bad->remote.context = &d;
    for (uint32_t i = 1; i <= ELF_FILE_DEATHS_MAX; i++) {
        assert_int_equal(python_remote_names(&bad->remote, CALLS), 0);
        assert_int_equal(bad->deaths, i);
        assert_string_equal(bad->remote.scripts[0].function, "");
        assert_int_equal(python_remote_names(&good->remote, CALLS), CALLS);
    }
    pid_t child = elf_parser_pid(parser);
    assert_int_equal(python_remote_names(&bad->remote, CALLS), 0);
    assert_int_equal(elf_parser_deaths(parser), ELF_FILE_DEATHS_MAX);
    assert_int_equal(elf_parser_pid(parser), child); /* it was not asked */
    assert_int_equal(good->deaths, 0);
    free(bad);
    free(good);
    elf_parser_free(parser);
}

/* One for each user, kept while it is in use; one more than there are places is refused. */
static void each_user_has_a_parser_of_its_own(void **state)
{
    struct parser_pool *pool;
    struct parser_pool_figures figures;
    pid_t pids[PARSER_POOL_MAX];
    assert_int_equal(parser_pool_new(&pool), 0);
    for (uint32_t i = 0; i < PARSER_POOL_MAX; i++) {
        struct elf_parser *parser = parser_pool_get(pool, 1000 + i);
        assert_non_null(parser);
        pids[i] = elf_parser_pid(parser);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(pids[k], pids[i]);
    }
    for (uint32_t i = 0; i < PARSER_POOL_MAX; i++)
        assert_int_equal(elf_parser_pid(parser_pool_get(pool, 1000 + i)), pids[i]);
    assert_null(parser_pool_get(pool, 5000));
    parser_pool_figures(pool, &figures);
    assert_int_equal(figures.running, PARSER_POOL_MAX);
    assert_int_equal(figures.refused, 1);
    struct fixture *f = fixture_new(NULL);
    f->remote.pool = pool;
    f->remote.owner = 1003;
    assert_int_equal(python_remote_names(&f->remote, CALLS), CALLS);
    free(f);
    /* Without a place nothing is interpreted, here least of all. */
    f = fixture_new(NULL);
    f->remote.pool = pool;
    f->remote.owner = 5000;
    assert_int_equal(python_remote_names(&f->remote, CALLS), 0);
    assert_int_equal(f->memory.reads, 0);
    free(f);
    parser_pool_free(pool);
}

static bool there_is_one(struct parser_pool *pool, uint32_t owner)
{
    return parser_pool_get(pool, owner) != NULL;
}

/* The reason may last, and each try costs. */
static void parser_that_cannot_be_started_is_not_tried_again_at_once(void **state)
{
    struct parser_pool *pool;
    struct parser_pool_figures figures;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(parser_pool_new(&pool), 0);
    assert_true(there_is_one(pool, 1000));
    uint64_t wait_ms = PARSER_POOL_RETRY_MS, begin_ns;
    for (int i = 0; i < 3; i++, wait_ms *= 2) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        begin_ns = clock_monotonic_ns();
        assert_false(there_is_one(pool, 2000));
        assert_true(there_is_one(pool, 1000)); /* those that run serve on */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (i == 2)
            break;
        assert_false(there_is_one(pool, 2000)); /* it could be, but is not tried */
        while (clock_monotonic_ns() - begin_ns < (wait_ms + 20) * NS_PER_MS)
            usleep(1000);
    }
    while (!there_is_one(pool, 2000))
        usleep(1000);
    assert_true(clock_monotonic_ns() - begin_ns >= wait_ms * NS_PER_MS);
    assert_true(there_is_one(pool, 3000)); /* it begins anew after a success */
    parser_pool_figures(pool, &figures);
    assert_int_equal(figures.running, 3);
    parser_pool_free(pool);
}

struct bases {
    size_t n;
    uint64_t sum;
};

static void base_add(void *context, uint64_t base, size_t order)
{
    struct bases *b = context;
    assert_int_equal(order, b->n);
    b->n++;
    b->sum = b->sum * 31 + base;
}

static void the_list_of_libraries_is_the_same(void **state)
{
    struct elf_parser *parser;
    struct bases here = {0}, there = {0};
    assert_int_equal(elf_parser_new(&parser), 0);
    size_t n = link_map_each(getpid(), NULL, base_add, &here);
    assert_int_equal(n, here.n);
    assert_int_equal(link_map_each(getpid(), parser, base_add, &there), n);
    assert_true(n > 2); /* the program, the vdso, libraries */
    assert_memory_equal(&here, &there, sizeof(here));
    elf_parser_free(parser);
}

/* ---- a child that lies ---- */

/* What it says to one question: a message, and bytes after it. */
struct lie {
    int fd;
    struct elf_tell tell;
    const void *bytes;
    size_t n;
    bool silent;
};

static void *lie_run(void *argument)
{
    struct lie *l = argument;
    struct elf_ask ask;
    struct python_names_ask names;
    if (recv(l->fd, &ask, sizeof(ask), MSG_WAITALL) == sizeof(ask) &&
        recv(l->fd, &names, sizeof(names), MSG_WAITALL) == sizeof(names) && !l->silent) {
        (void)!send(l->fd, &l->tell, sizeof(l->tell), MSG_NOSIGNAL);
        (void)!send(l->fd, l->bytes, l->n, MSG_NOSIGNAL);
    }
    char end;
    (void)!recv(l->fd, &end, 1, MSG_WAITALL); /* until it is given up */
    return NULL;
}

/* How many names are believed, and whether the child is. */
static uint32_t lie_tell_about(struct lie *l, uint32_t calls, bool *ret_ended,
                               struct fixture **ret_fixture)
{
    int fds[2];
    pthread_t thread;
    struct elf_parser *parser;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(elf_parser_for_test(fds[0], &parser), 0);
    struct fixture *f = fixture_new(parser);
    l->fd = fds[1];
    assert_int_equal(pthread_create(&thread, NULL, lie_run, l), 0);
    for (uint32_t i = CALLS; i < calls; i++)
        f->remote.stack.frames[i] = (struct python_frame){f->remote.stack.frames[0].code, i};
    f->remote.stack.n = calls;
    uint32_t named = python_remote_names(&f->remote, calls);
    *ret_ended = f->deaths > 0;
    assert_int_equal(elf_parser_deaths(parser), f->deaths);
    elf_parser_free(parser);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(fds[1]);
    if (ret_fixture)
        *ret_fixture = f;
    else
        free(f);
    return named;
}

static uint32_t lie_tell(struct lie *l, bool *ret_ended, struct fixture **ret_fixture)
{
    return lie_tell_about(l, CALLS, ret_ended, ret_fixture);
}

/* An answer to which nothing can be objected. */
static void honest(struct lie *l, struct python_call_told told[static CALLS])
{
    uint64_t codes[CALLS];
    struct fixture *same = fixture_new(NULL);
    for (int i = 0; i < CALLS; i++)
        codes[i] = same->remote.stack.frames[i].code;
    free(same);
    memset(told, 0, CALLS * sizeof(told[0]));
    for (int i = 0; i < CALLS; i++) {
        told[i] = (struct python_call_told){.named = 1, .check = 1, .line = 3, .n_witnesses = 2};
        told[i].witnesses[0] = (struct python_witness){.address = codes[i] + PYTHON_CODE_CHECK_AT,
                                                       .bytes = PYTHON_CODE_CHECK_WORDS * 8};
        strcpy(told[i].script.function, "f\xc3\xbcnction");
        strcpy(told[i].script.file, "file.py");
    }
    *l = (struct lie){.bytes = told, .n = CALLS * sizeof(told[0])};
    l->tell = (struct elf_tell){.kind = ELF_TELL_DONE, .bytes = (uint32_t)l->n};
}

static void an_answer_that_makes_sense_is_believed(void **state)
{
    struct lie l;
    struct python_call_told told[CALLS];
    struct fixture *f;
    bool ended;
    honest(&l, told);
    told[1].line = BOOK_SCRIPT_LINE_MAX + 1u; /* more than a book can say: no line */
    assert_int_equal(lie_tell(&l, &ended, &f), CALLS);
    assert_false(ended);
    assert_string_equal(f->remote.scripts[0].function, "f\xc3\xbcnction");
    assert_int_equal(f->remote.lines[0], 3);
    assert_int_equal(f->remote.lines[1], 0);
    free(f);
}

/* One call of three is told wrongly. */
static void names_that_cannot_be_are_not_believed(void **state)
{
    for (int which = 0; which < 11; which++) {
        struct lie l;
        struct python_call_told told[CALLS];
        struct book_script *s = &told[1].script;
        bool ended;
        honest(&l, told);
        switch (which) {
        case 0: /* no UTF-8 */
            strcpy(s->function, "f\xfcnction");
            break;
        case 1: /* half a character */
            strcpy(s->file, "\xc3");
            break;
        case 2: /* no end */
            memset(s->file, 'x', sizeof(s->file));
            break;
        case 3: /* bytes behind the end */
            s->function[100] = 'x';
            break;
        case 4:
            s->flags = 4;
            break;
        case 5:
            told[1].check = 0;
            break;
        case 6: /* more bytes than a line table may have */
            told[1].witnesses[1].bytes = PYTHON_LINES_MAX + 1;
            break;
        case 7: /* not those that the kernel checks */
            told[1].witnesses[0].address++;
            break;
        case 8:
            told[1].named = 77;
            break;
        case 9:
            told[1].n_witnesses = PYTHON_WITNESSES + 1;
            break;
        case 10:
            told[1].n_witnesses = 0;
            break;
        }
        assert_int_equal(lie_tell(&l, &ended, NULL), CALLS - 1);
        assert_false(ended);
    }
}

static void a_child_that_asks_for_too_much_is_ended(void **state)
{
    static struct elf_wire_piece pieces[ELF_WIRE_PIECES_MAX + 1];
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        pieces[i] = (struct elf_wire_piece){.address = PYTHON_MEMORY_AT, .bytes = 8};
    struct elf_wire_piece large = {.address = PYTHON_MEMORY_AT, .bytes = ELF_WIRE_READ_MAX + 1};
    struct elf_wire_piece wide[2] = {{.address = PYTHON_MEMORY_AT, .bytes = ELF_WIRE_READ_MAX},
                                     {.address = PYTHON_MEMORY_AT, .bytes = 1}};
    struct elf_wire_piece many[2] = {
        {.address = PYTHON_MEMORY_AT, .bytes = CALLS * PYTHON_CALL_BYTES},
        {.address = PYTHON_MEMORY_AT, .bytes = 1}};
    struct {
        struct elf_tell tell;
        const void *bytes;
        size_t n;
    } cases[] = {
        {{.kind = ELF_TELL_PIECES, .bytes = sizeof(pieces)}, pieces, sizeof(pieces)},
        /* more pieces than naming three calls takes */
        {{.kind = ELF_TELL_PIECES, .bytes = (CALLS * PYTHON_CALL_PIECES + 1) * sizeof(pieces[0])},
         pieces,
         (CALLS * PYTHON_CALL_PIECES + 1) * sizeof(pieces[0])},
        {{.kind = ELF_TELL_PIECES, .bytes = sizeof(large)}, &large, sizeof(large)},
        {{.kind = ELF_TELL_PIECES, .bytes = sizeof(wide)}, wide, sizeof(wide)},
        /* more bytes than naming three calls takes */
        {{.kind = ELF_TELL_PIECES, .bytes = sizeof(many)}, many, sizeof(many)},
        {{.kind = ELF_TELL_PIECES, .bytes = 0}, NULL, 0},
        {{.kind = ELF_TELL_PIECES, .bytes = 17}, pieces, 17},
        {{.kind = ELF_TELL_READ, .bytes = 16}, NULL, 0}, /* there is no file */
        {{.kind = ELF_TELL_FUNCTIONS, .bytes = 16}, pieces, 16},
        {{.kind = ELF_TELL_DONE, .bytes = 16}, pieces, 16},
        {{.kind = ELF_TELL_DONE, .result = 1, .bytes = 0}, NULL, 0},
        {{.kind = ELF_TELL_DONE, .result = -1, .bytes = 16}, pieces, 16},
        {{.kind = 99}, NULL, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lie l = {.tell = cases[i].tell, .bytes = cases[i].bytes, .n = cases[i].n};
        bool ended;
        struct fixture *f;
        assert_int_equal(lie_tell(&l, &ended, &f), 0);
        if (!ended || f->memory.reads > 0)
            fail_msg("case %zu is answered", i);
        free(f);
    }
}

/* Many calls may take more bytes than one message has room for. */
static void a_message_has_room_for_so_many_bytes(void **state)
{
    struct elf_wire_piece wide[2] = {{.address = PYTHON_MEMORY_AT, .bytes = ELF_WIRE_READ_MAX},
                                     {.address = PYTHON_MEMORY_AT, .bytes = 1}};
    struct lie l = {
        .tell = {.kind = ELF_TELL_PIECES, .bytes = sizeof(wide)}, .bytes = wide, .n = sizeof(wide)};
    struct fixture *f;
    bool ended;
    assert_true(PYTHON_CAPTURE_ENTRIES * PYTHON_CALL_BYTES > ELF_WIRE_READ_MAX + 1);
    assert_int_equal(lie_tell_about(&l, PYTHON_CAPTURE_ENTRIES, &ended, &f), 0);
    assert_true(ended);
    assert_int_equal(f->memory.reads, 0);
    free(f);
}

static void a_child_that_says_nothing_is_ended_in_time(void **state)
{
    struct lie l = {.silent = true};
    bool ended;
    uint64_t from = clock_monotonic_ns();
    assert_int_equal(lie_tell(&l, &ended, NULL), 0);
    assert_true(ended);
    assert_true(clock_monotonic_ns() - from < UINT64_C(20) * NS_PER_S);
}

int main(int argc, char **argv)
{
    if (elf_parser_is_this(argc, argv))
        return elf_parser_main();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_that_this_process_would_find),
        cmocka_unit_test(names_that_hold_are_kept_and_others_are_read_again),
        cmocka_unit_test(a_name_is_not_given_to_a_call_that_the_kernel_saw_otherwise),
        cmocka_unit_test(a_process_over_which_children_die_has_no_names_and_others_have),
        cmocka_unit_test(each_user_has_a_parser_of_its_own),
        cmocka_unit_test(parser_that_cannot_be_started_is_not_tried_again_at_once),
        cmocka_unit_test(the_list_of_libraries_is_the_same),
        cmocka_unit_test(an_answer_that_makes_sense_is_believed),
        cmocka_unit_test(names_that_cannot_be_are_not_believed),
        cmocka_unit_test(a_child_that_asks_for_too_much_is_ended),
        cmocka_unit_test(a_message_has_room_for_so_many_bytes),
        cmocka_unit_test(a_child_that_says_nothing_is_ended_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
