/* The whole chain: a probe in the kernel copies a stack and walks Python's frames, and outside they become lines of scripts among
 * native frames. Interpreters: /usr/bin/python3 and those of MEMOIR_TEST_PYTHONS (paths, separated by colons). Objects and files are
 * interpreted by the parser, as in the observer, or, with --here, by this process. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "check.h"
#include "observe/elf_parser.h"
#include "observe/stacks.h"
#include "probe_event.h"
#include "probe_load.h"

enum { PYTHONS_MAX = 16, EVENTS_MAX = 16, WARM_ROUNDS = 20, NOBODY = 65534 };

static const char *pythons[PYTHONS_MAX];
static size_t n_pythons;
static struct stacks *stacks;
static struct elf_parser *parser; /* NULL: this process interprets the objects */

static void python_needed(void)
{
    if (n_pythons == 0) {
        print_message("# no /usr/bin/python3, and none in MEMOIR_TEST_PYTHONS\n");
        skip();
    }
}

/* A Python program that waits for commands. */
struct program {
    pid_t pid;
    FILE *to, *from;
    struct probe *probe;
    struct stack_process *process;
    struct stack_result results[EVENTS_MAX];
    uint64_t hashes[EVENTS_MAX], took_ns[EVENTS_MAX];
    char frames[EVENTS_MAX][8192]; /* as text: "function file:line", "module" */
    size_t n;
    struct stack_return outer; /* of a probed function further out, if its value is not 0 */
    uint64_t resolved_ns;      /* the last one took */
    uint64_t own_key;          /* what the process itself has for the last stack */
    uint64_t code;             /* the innermost code object of the last event */
};

/* The program's next line, which begins so; the number behind that. */
static uint64_t line_expect(struct program *p, const char *expected)
{
    char line[256];
    if (!fgets(line, sizeof(line), p->from) || strncmp(line, expected, strlen(expected)) != 0)
        fail_msg("no '%s' from the program", expected);
    return strtoull(line + strlen(expected), NULL, 10);
}

static void program_start_as(struct program *p, const char *python, uid_t uid)
{
    int in[2], out[2];
    assert_int_equal(pipe(in) | pipe(out), 0);
    memset(p, 0, sizeof(*p));
    p->pid = fork();
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever fails here */
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        if (uid != 0 && setresuid(uid, uid, uid) < 0)
            _exit(127);
        execl(python, python, CHAIN, PROBED, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    p->to = fdopen(in[1], "w");
    p->from = fdopen(out[0], "r");
    line_expect(p, "ready");
}

static void program_start(struct program *p, const char *python)
{
    program_start_as(p, python, 0);
}

static void program_end(struct program *p)
{
    stack_process_free(p->process);
    probe_free(p->probe);
    fclose(p->to);
    fclose(p->from);
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void frames_write(const struct stack_result *result, char *out, size_t size)
{
    size_t at = 0;
    for (uint32_t i = 0; i < result->n && at < size; i++) {
        const struct book_frame *f = &result->frames[i];
        if (f->script)
            at += (size_t)snprintf(out + at, size - at, "%s %s:%lu\n", f->script->function,
                                   base_of(f->script->file), f->offset);
        else
            at += (size_t)snprintf(out + at, size - at, "[%s]\n",
                                   f->module ? base_of(f->module->path) : "?");
    }
}

static void take(const struct probe_event *event, void *context)
{
    struct program *p = context;
    if (p->n == EVENTS_MAX)
        return;
    struct stack_input input = {
        .bytes = event->bytes,
        .n_bytes = event->n_bytes,
        .python = &event->python,
        .returns = &p->outer,
        .n_returns = p->outer.value != 0,
    };
    memcpy(&input.registers, event->registers, sizeof(input.registers));
    assert_int_equal(event->pid, p->pid);
    uint64_t from = clock_monotonic_ns();
    stack_resolve(p->process, &input, &p->results[p->n]);
    p->resolved_ns = clock_monotonic_ns() - from;
    frames_write(&p->results[p->n], p->frames[p->n], sizeof(p->frames[0]));
    p->hashes[p->n] = event->python.hash;
    p->took_ns[p->n] = event->took_ns;
    p->code = event->python.n > 0 ? event->python.entries[0].code : 0;
    p->n++;
}

/* Run one command; the events of it are in p->results afterwards. */
static void program_run(struct program *p, const char *what)
{
    p->n = 0;
    fprintf(p->to, "%s\n", what);
    fflush(p->to);
    assert_int_equal(probe_wait(p->probe, take, p), 0);
    p->own_key = line_expect(p, "done");
}

/* The probe is on, and the kernel knows the interpreter. */
static void program_probe(struct program *p)
{
    struct python_kernel_facts facts;
    int r = probe_new(PROBED, "probed", false, p->pid, &p->probe);
    if (r == -EPERM || r == -EACCES || r == -EINVAL || r == -ENOSYS) {
        print_message("probes are not allowed or not known here: %s\n", strerror(-r));
        program_end(p);
        skip();
    }
    assert_int_equal(r, 0);
    assert_int_equal(stack_process_new(stacks, p->pid, &p->process), 0);
    assert_int_equal(stack_process_python(p->process, &facts), 1);
    assert_int_equal(stack_process_python(p->process, &facts), 0);
    assert_int_equal(probe_python(p->probe, p->pid, &facts), 0);
}

static unsigned line_of(const char *mark)
{
    char text[256], wanted[64];
    unsigned line = 0, found = 0;
    snprintf(wanted, sizeof(wanted), "# line: %s", mark);
    FILE *f = fopen(CHAIN, "re");
    while (f && fgets(text, sizeof(text), f)) {
        line++;
        if (strstr(text, wanted))
            found = line;
    }
    if (f)
        fclose(f);
    return found;
}

/* `parts` in this order, among others. */
static void expect_in_order(const char *python, const char *frames, const char *const *parts)
{
    const char *at = frames;
    for (; *parts; parts++) {
        const char *found = strstr(at, *parts);
        if (!found)
            fail_msg("%s: no '%s' after\n%.*s in\n%s", python, *parts, (int)(at - frames), frames,
                     frames);
        at = found + strlen(*parts);
    }
}

static void expect_chain(const char *python, const struct program *p, const char *last)
{
    char lines[5][64];
    /* Up to 3.10 functions have no qualified names. */
    const char *inner =
        strstr(p->frames[0], "Loader.load_batch") ? "Loader.load_batch" : "load_batch";
    snprintf(lines[0], 64, "%s chain.py:%u", inner, line_of("inner"));
    snprintf(lines[1], 64, "generate chain.py:%u", line_of("generator"));
    snprintf(lines[2], 64, "called_back chain.py:%u", line_of("callback"));
    snprintf(lines[3], 64, "middle chain.py:%u", line_of("middle"));
    snprintf(lines[4], 64, "outer chain.py:%u", line_of("outer"));
    const char *parts[] = {"[libprobed.so]\n", lines[0], "\n", lines[1], "\n", lines[2],
                           "[libprobed.so]\n", lines[3], "\n", lines[4], last, NULL};
    assert_int_equal(p->n, 1);
    if (strncmp(p->frames[0], "[libprobed.so]\n", 15) != 0)
        fail_msg("%s: the caller is not the first frame:\n%s", python, p->frames[0]);
    expect_in_order(python, p->frames[0], parts);
    assert_true(p->results[0].flags & STACK_PYTHON);
    assert_false(p->results[0].flags & (STACK_LOST | STACK_UNNAMED));
}

static void python_calls_appear_between_native_frames(void **state)
{
    python_needed();
    for (size_t i = 0; i < n_pythons; i++) {
        struct program p;
        program_start(&p, pythons[i]);
        program_probe(&p);
        program_run(&p, "chain");
        expect_chain(pythons[i], &p, "<module> chain.py");
        uint64_t hash = 0, key = stack_result_key(&p.results[0]);
        /* The interpreter adapts code that runs again: calls may then be made in another way. */
        for (int round = 0; round < WARM_ROUNDS; round++) {
            program_run(&p, "chain");
            assert_int_equal(stack_result_key(&p.results[0]), key);
            hash = p.hashes[0];
        }
        if (getenv("MEMOIR_TEST_SHOW"))
            print_message("%s", p.frames[0]);
        print_message("# %s: %u frames, Python walked in %lu ns, resolved in %lu ns\n", pythons[i],
                      p.results[0].n, p.took_ns[0], p.resolved_ns);
        /* The same stack again: the same for the kernel and for us, and nothing is read twice. */
        struct stacks_figures before, after;
        stacks_figures(stacks, &before);
        program_run(&p, "chain");
        stacks_figures(stacks, &after);
        assert_int_equal(p.hashes[0], hash);
        assert_int_equal(stack_result_key(&p.results[0]), key);
        assert_int_equal(after.names_read, before.names_read);
        program_end(&p);
    }
}

/* The process takes its stack itself, in the probed function. */
static void keys_are_those_of_the_process_itself(void **state)
{
    python_needed();
    for (size_t i = 0; i < n_pythons; i++) {
        struct program p;
        program_start(&p, pythons[i]);
        program_probe(&p);
        fprintf(p.to, "keys\n");
        fflush(p.to);
        line_expect(&p, "done");
        static const char *const commands[] = {"chain", "unicode", "chain"};
        for (size_t k = 0; k < 3; k++) {
            program_run(&p, commands[k]);
            if (stack_result_key(&p.results[0]) != p.own_key)
                fail_msg("%s: %s has another key:\n%s", pythons[i], commands[k], p.frames[0]);
        }
        program_end(&p);
    }
}

static void calls_of_another_thread_are_its_own(void **state)
{
    python_needed();
    for (size_t i = 0; i < n_pythons; i++) {
        struct program p;
        program_start(&p, pythons[i]);
        program_probe(&p);
        program_run(&p, "thread");
        expect_chain(pythons[i], &p, "threading.py");
        assert_null(strstr(p.frames[0], "<module>"));
        program_end(&p);
    }
}

/* Its memory is read with a deadline (deadline.h), and its files perhaps. */
static void processes_of_other_users_are_named_too(void **state)
{
    python_needed();
    struct program p;
    if (geteuid() != 0 || strcmp(pythons[0], "/usr/bin/python3") != 0)
        skip();
    program_start_as(&p, pythons[0], NOBODY);
    program_probe(&p);
    program_run(&p, "chain");
    expect_chain(pythons[0], &p, "<module> chain.py");
    if (parser) { /* each user's memory has a parser of its own: root's, and this one's */
        struct stacks_figures figures;
        stacks_figures(stacks, &figures);
        assert_int_equal(figures.parsers.running, 2);
    }
    program_end(&p);
}

/* At the entry of the outer function its return address is still there. */
static void take_outer(const struct probe_event *event, void *context)
{
    struct program *p = context;
    p->outer.at = event->registers[1];
    memcpy(&p->outer.value, event->bytes, sizeof(p->outer.value));
}

static void a_probed_function_further_out_is_walked_through(void **state)
{
    python_needed();
    struct program p;
    struct probe *entry, *back;
    program_start(&p, pythons[0]);
    program_probe(&p);
    program_run(&p, "chain");
    uint64_t key = stack_result_key(&p.results[0]);
    assert_int_equal(probe_new(PROBED, "probed_call_back", false, p.pid, &entry), 0);
    assert_int_equal(probe_new(PROBED, "probed_call_back", true, p.pid, &back), 0);
    program_run(&p, "chain");
    /* Its return address is the kernel's trampoline, and nobody says what it stands for. */
    assert_int_not_equal(stack_result_key(&p.results[0]), key);
    assert_true(p.results[0].flags & STACK_LOST);
    p.n = 0;
    fprintf(p.to, "chain\n");
    fflush(p.to);
    line_expect(&p, "done");
    assert_int_equal(probe_wait(entry, take_outer, &p), 0);
    assert_int_equal(probe_wait(p.probe, take, &p), 0);
    assert_int_equal(stack_result_key(&p.results[0]), key);
    assert_false(p.results[0].flags & STACK_LOST);
    p.outer.at = 0; /* by its order alone */
    p.n = 0;
    program_run(&p, "chain");
    assert_int_equal(stack_result_key(&p.results[0]), key);
    probe_free(back);
    probe_free(entry);
    program_end(&p);
}

static void a_deep_stack_is_cut_and_says_so(void **state)
{
    python_needed();
    for (size_t i = 0; i < n_pythons; i++) {
        struct program p;
        program_start(&p, pythons[i]);
        program_probe(&p);
        program_run(&p, "deep");
        const char *parts[] = {"deep chain.py", "deep chain.py", "deep chain.py", "deep chain.py",
                               NULL};
        expect_in_order(pythons[i], p.frames[0], parts);
        assert_true(p.results[0].flags & STACK_CUT);
        program_end(&p);
    }
}

static void names_are_utf8(void **state)
{
    python_needed();
    for (size_t i = 0; i < n_pythons; i++) {
        struct program p;
        program_start(&p, pythons[i]);
        program_probe(&p);
        program_run(&p, "unicode");
        const char *parts[] = {"ünïcode chain.py", "<module>", NULL};
        expect_in_order(pythons[i], p.frames[0], parts);
        program_end(&p);
    }
}

/* Another function at the address of one that is gone must not get its name. */
static void a_code_object_in_the_place_of_another_gets_its_own_name(void **state)
{
    python_needed();
    for (size_t i = 0; i < n_pythons; i++) {
        struct program p;
        uint64_t codes[WARM_ROUNDS], again = 0;
        program_start(&p, pythons[i]);
        program_probe(&p);
        for (size_t round = 0; round < WARM_ROUNDS; round++) {
            char right[64];
            p.n = 0;
            fprintf(p.to, "made%zu\n", round);
            fflush(p.to);
            assert_int_equal(probe_wait(p.probe, take, &p), 0);
            fprintf(p.to, "go on\n");
            fflush(p.to);
            line_expect(&p, "done");
            snprintf(right, sizeof(right), "made%zu made%zu.py:4", round, round);
            if (!strstr(p.frames[0], right))
                fail_msg("%s: no '%s' in\n%s", pythons[i], right, p.frames[0]);
            codes[round] = p.code;
            for (size_t k = 0; k < round; k++)
                again += codes[k] == p.code;
        }
        assert_true(again > 0); /* else nothing was tested */
        program_end(&p);
    }
}

static void keep(const struct probe_event *event, void *context)
{
    memcpy(context, event, sizeof(*event));
}

/* Start the function made<round>, which then waits, and keep its event. */
static void made_start(struct program *p, size_t round, struct probe_event *event)
{
    fprintf(p->to, "made%zu\n", round);
    fflush(p->to);
    assert_int_equal(probe_wait(p->probe, keep, event), 0);
}

static void made_end(struct program *p)
{
    fprintf(p->to, "go on\n");
    fflush(p->to);
    line_expect(p, "done");
}

/* The observer comes late: another function lies where the first one was. */
static void a_call_whose_code_was_replaced_gets_no_wrong_name(void **state)
{
    python_needed();
    struct probe_event *event = calloc(2, sizeof(*event));
    for (size_t i = 0; i < n_pythons; i++) {
        struct program p;
        uint64_t again = 0;
        program_start(&p, pythons[i]);
        program_probe(&p);
        for (size_t round = 0; round < WARM_ROUNDS; round++) {
            char wrong[64];
            made_start(&p, 2 * round, &event[0]);
            made_end(&p);
            made_start(&p, 2 * round + 1, &event[1]);
            p.n = 0;
            take(&event[0], &p);
            snprintf(wrong, sizeof(wrong), "made%zu ", 2 * round + 1);
            if (strstr(p.frames[0], wrong))
                fail_msg("%s: '%s' in\n%s", pythons[i], wrong, p.frames[0]);
            if (event[0].python.entries[0].code == event[1].python.entries[0].code) {
                again++;
                assert_true(p.results[0].flags & STACK_UNNAMED);
                assert_int_not_equal(event[0].python.hash, event[1].python.hash);
            }
            made_end(&p);
        }
        assert_true(again > 0); /* else nothing was tested */
        program_end(&p);
    }
    free(event);
}

/* The parser of files and that of the user's memory. */
static size_t parsers_kill(void)
{
    char path[64], name[32];
    size_t n = 0;
    int pid;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "re");
    assert_non_null(children);
    while (fscanf(children, "%d", &pid) == 1) {
        siginfo_t info;
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        FILE *comm = fopen(path, "re");
        if (comm && fgets(name, sizeof(name), comm) && strcmp(name, "memoir-parse\n") == 0) {
            assert_int_equal(kill(pid, SIGKILL), 0);
            assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
            n++;
        }
        if (comm)
            fclose(comm);
    }
    fclose(children);
    return n;
}

/* A parser that ends costs nothing that is known, and the next one names what is new. */
static void a_parser_that_was_killed_is_replaced(void **state)
{
    static const struct {
        const char *command, *name;
    } calls[] = {{"unicode", "ünïcode chain.py"}, {"deep", "deep chain.py"}};
    python_needed();
    struct program p;
    if (!parser)
        skip();
    program_start(&p, pythons[0]);
    program_probe(&p);
    program_run(&p, "chain");
    expect_chain(pythons[0], &p, "<module> chain.py");
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct stacks_figures before, after;
        stacks_figures(stacks, &before);
        assert_true(parsers_kill() >= 1);
        program_run(&p, "chain");
        expect_chain(pythons[0], &p, "<module> chain.py");
        const char *parts[] = {calls[i].name, NULL};
        program_run(&p, calls[i].command);
        expect_in_order(pythons[0], p.frames[0], parts);
        stacks_figures(stacks, &after);
        assert_true(after.names_read > before.names_read);
        assert_int_equal(after.parsers.deaths, before.parsers.deaths); /* no process is why */
    }
    program_end(&p);
}

static int group_setup(void **state)
{
    static char list[4096];
    const char *more = getenv("MEMOIR_TEST_PYTHONS");
    if (access("/usr/bin/python3", X_OK) == 0)
        pythons[n_pythons++] = "/usr/bin/python3";
    snprintf(list, sizeof(list), "%s", more ? more : "");
    for (char *at = strtok(list, ":"); at && n_pythons < PYTHONS_MAX; at = strtok(NULL, ":"))
        pythons[n_pythons++] = at;
    return stacks_new(&stacks);
}

/* As the observer has it: a child without rights interprets. */
static int group_setup_parser(void **state)
{
    n_pythons = 0;
    if (elf_parser_new(&parser) < 0 || group_setup(state) < 0)
        return -1;
    return stacks_parser_set(stacks, parser);
}

static int group_teardown(void **state)
{
    stacks_free(stacks);
    elf_parser_free(parser);
    return 0;
}

int main(int argc, char **argv)
{
    if (elf_parser_is_this(argc, argv))
        return elf_parser_main();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_calls_appear_between_native_frames),
        cmocka_unit_test(keys_are_those_of_the_process_itself),
        cmocka_unit_test(calls_of_another_thread_are_its_own),
        cmocka_unit_test(processes_of_other_users_are_named_too),
        cmocka_unit_test(a_probed_function_further_out_is_walked_through),
        cmocka_unit_test(a_deep_stack_is_cut_and_says_so),
        cmocka_unit_test(names_are_utf8),
        cmocka_unit_test(a_call_whose_code_was_replaced_gets_no_wrong_name),
        cmocka_unit_test(a_parser_that_was_killed_is_replaced),
        cmocka_unit_test(a_code_object_in_the_place_of_another_gets_its_own_name),
    };
    bool here = argc > 1 && strcmp(argv[1], "--here") == 0;
    return here ? cmocka_run_group_tests(tests, group_setup, group_teardown)
                : cmocka_run_group_tests(tests, group_setup_parser, group_teardown);
}
