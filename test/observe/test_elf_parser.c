/* The child that parses ELF files: it answers as the same code in this process does, has no rights, and may die. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "observe/code_file.h"
#include "observe/elf_file.h"
#include "observe/elf_parser.h"
#include "site/module.h"

static int library_open(void)
{
    struct module_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "lfind"); /* no sanitizer stands in for it */
    assert_int_equal(module_find((uintptr_t)symbol, &info), 0);
    int fd = open(info.path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

struct files {
    int fd;
    struct elf_parser *parser, *other;
    struct elf_file here, there;
};

static void files_open(struct files *f)
{
    f->fd = library_open();
    assert_int_equal(elf_parser_new(&f->parser), 0);
    assert_int_equal(elf_file_init(&f->here, NULL, elf_file_pread, &f->fd, ELF_CLUSTER), 0);
    assert_int_equal(elf_file_init(&f->there, f->parser, elf_file_pread, &f->fd, ELF_CLUSTER), 0);
}

static void files_close(struct files *f)
{
    elf_file_release(&f->here);
    elf_file_release(&f->there);
    elf_parser_free(f->parser);
    close(f->fd);
}

static void headers_and_symbols_are_the_same(void **state)
{
    struct files f;
    struct elf_symbol here, there;
    uint64_t bytes[2][4];
    files_open(&f);
    assert_int_equal(f.here.image.n_segments, f.there.image.n_segments);
    assert_memory_equal(f.here.image.segments, f.there.image.segments,
                        f.here.image.n_segments * sizeof(f.here.image.segments[0]));
    assert_true(f.here.image.build_id_len > 0);
    assert_int_equal(f.here.image.build_id_len, f.there.image.build_id_len);
    assert_memory_equal(f.here.image.build_id, f.there.image.build_id, f.here.image.build_id_len);
    assert_int_equal(elf_file_symbol(&f.here, "lfind", &here), 0);
    assert_int_equal(elf_file_symbol(&f.there, "lfind", &there), 0);
    assert_int_equal(here.vaddr, there.vaddr);
    assert_int_equal(here.bytes, there.bytes);
    assert_int_equal(elf_file_symbol(&f.there, "no_such_function", &there), -ENOENT);
    assert_int_equal(elf_image_read(&f.here.image, here.vaddr, bytes[0], sizeof(bytes[0])), 0);
    assert_int_equal(elf_image_read(&f.there.image, here.vaddr, bytes[1], sizeof(bytes[1])), 0);
    assert_memory_equal(bytes[0], bytes[1], sizeof(bytes[0]));
    files_close(&f);
}

static void rules_and_steps_are_the_same(void **state)
{
    struct files f;
    struct elf_symbol symbol;
    uint64_t stack[512];
    size_t rules = 0, steps = 0;
    files_open(&f);
    assert_int_equal(elf_file_symbol(&f.here, "lfind", &symbol), 0);
    for (size_t i = 0; i < sizeof(stack) / sizeof(stack[0]); i++)
        stack[i] = 0x10000 + i;
    for (uint64_t at = symbol.vaddr - 4000; at < symbol.vaddr + 4000; at += 7) {
        struct elf_rule here = {0}, there = {0};
        struct elf_stack copied = {0x7000000000, (const uint8_t *)stack, sizeof(stack)};
        struct elf_frame a = {.regs = {.valid = 1u << ARCH_REG_SP | 1u << ARCH_REG_FP}}, b;
        a.regs.r[ARCH_REG_SP] = copied.lo + 64;
        a.regs.r[ARCH_REG_FP] = copied.lo + 256;
        b = a;
        int r = elf_file_rule(&f.here, at, &here);
        assert_int_equal(elf_file_rule(&f.there, at, &there), r);
        assert_int_equal(here.rule, there.rule);
        assert_int_equal(here.up, there.up);
        rules += r == 0;
        r = elf_file_step(&f.here, at, &copied, &a);
        assert_int_equal(elf_file_step(&f.there, at, &copied, &b), r);
        assert_memory_equal(&a.regs, &b.regs, sizeof(a.regs));
        assert_int_equal(a.beyond, b.beyond);
        steps += r == 0;
    }
    assert_true(rules > 100 && steps > 100);
    assert_true(elf_file_loaded_bytes(&f.there) > 0);
    assert_int_equal(elf_file_loaded_bytes(&f.there), elf_file_loaded_bytes(&f.here));
    elf_file_drop(&f.there);
    assert_int_equal(elf_file_loaded_bytes(&f.there), 0);
    files_close(&f);
}

struct sum {
    uint64_t n, mix;
};

static void function_add(void *context, const struct elf_function *function)
{
    struct sum *s = context;
    s->n++;
    s->mix = s->mix * 31 + function->offset + function->address + function->bytes +
             function->exported * 2u + function->global + strlen(function->name) +
             (unsigned char)function->name[0];
}

static void functions_are_the_same(void **state)
{
    struct files f;
    struct sum sums[4] = {0};
    files_open(&f);
    assert_int_equal(elf_file_exports(NULL, elf_file_pread, &f.fd, function_add, &sums[0]), 0);
    assert_int_equal(elf_file_exports(f.parser, elf_file_pread, &f.fd, function_add, &sums[1]), 0);
    assert_true(sums[0].n > 1000);
    assert_memory_equal(&sums[0], &sums[1], sizeof(sums[0]));
    assert_int_equal(elf_file_functions(NULL, elf_file_pread, &f.fd, function_add, &sums[2]), 0);
    assert_int_equal(elf_file_functions(f.parser, elf_file_pread, &f.fd, function_add, &sums[3]),
                     0);
    assert_memory_equal(&sums[2], &sums[3], sizeof(sums[0]));
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(elf_file_exports(f.parser, elf_file_pread, &null, function_add, &sums[0]),
                     -ENOEXEC);
    close(null);
    files_close(&f);
}

struct codes {
    struct files *f;
    size_t n, returns, cheap;
};

/* Places for probes in every function of the library. */
static void code_compare(void *context, const struct elf_function *function)
{
    struct codes *c = context;
    static struct code_return here[CODE_RETURNS_MAX], there[CODE_RETURNS_MAX];
    struct probe_place a, b;
    if (c->n == 300 || !function->bytes)
        return;
    c->n++;
    code_file_place(NULL, elf_file_pread, &c->f->fd, function->offset, function->bytes, 3, &a);
    code_file_place(c->f->other, elf_file_pread, &c->f->fd, function->offset, function->bytes, 3,
                    &b);
    assert_int_equal(a.offset, b.offset);
    assert_int_equal(a.cheap, b.cheap);
    assert_memory_equal(a.at, b.at, sizeof(a.at));
    c->cheap += a.cheap;
    int n = code_file_returns(NULL, elf_file_pread, &c->f->fd, function->offset, here);
    assert_int_equal(
        code_file_returns(c->f->other, elf_file_pread, &c->f->fd, function->offset, there), n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(here[i].at, there[i].at);
        assert_int_equal(here[i].slow, there[i].slow);
        assert_int_equal(here[i].result, there[i].result);
        assert_int_equal(here[i].up, there[i].up);
        assert_int_equal(here[i].conditional, there[i].conditional);
        assert_int_equal(here[i].taken, there[i].taken);
        assert_int_equal(here[i].condition, there[i].condition);
    }
    c->returns += n > 0;
    struct code_instruction i = code_file_first(NULL, elf_file_pread, &c->f->fd, function->offset);
    struct code_instruction k =
        code_file_first(c->f->other, elf_file_pread, &c->f->fd, function->offset);
    assert_int_equal(i.flow, k.flow);
    assert_int_equal(i.bytes, k.bytes);
    assert_int_equal(i.target, k.target);
}

static void places_for_probes_are_the_same(void **state)
{
    struct files f;
    struct codes c = {.f = &f};
    files_open(&f);
    assert_int_equal(elf_parser_new(&f.other), 0); /* the first one is busy with the list */
    assert_int_equal(elf_file_exports(f.parser, elf_file_pread, &f.fd, code_compare, &c), 0);
    assert_true(c.n == 300 && c.returns > 30 && c.cheap > 30);
    elf_parser_free(f.other);
    files_close(&f);
}

static void line_of(pid_t pid, const char *name, char ret[static 128])
{
    char path[64], line[128];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "re");
    assert_non_null(status);
    ret[0] = '\0';
    while (fgets(line, sizeof(line), status))
        if (strncmp(line, name, strlen(name)) == 0)
            snprintf(ret, 128, "%s", line + strlen(name));
    fclose(status);
}

static void the_child_has_no_rights(void **state)
{
    static const char *const sets[] = {"CapInh:\t", "CapPrm:\t", "CapEff:\t", "CapAmb:\t"};
    char value[128], path[64];
    struct elf_parser *parser;
    assert_int_equal(elf_parser_new(&parser), 0);
    pid_t pid = elf_parser_pid(parser);
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        line_of(pid, sets[i], value);
        assert_string_equal(value, "0000000000000000\n");
    }
    line_of(pid, "Seccomp:\t", value);
    assert_string_equal(value, "2\n");
    line_of(pid, "NoNewPrivs:\t", value);
    assert_string_equal(value, "1\n");
    line_of(pid, "Name:\t", value);
    assert_string_equal(value, "memoir-parse\n");
    if (geteuid() == 0) {
        /* That of symbol_confine.c; in a user namespace without it, nobody's. */
        line_of(pid, "Uid:\t", value);
        const char *own = "2147483646\t2147483646\t2147483646\t2147483646\n";
        assert_true(strcmp(value, own) == 0 || strcmp(value, "65534\t65534\t65534\t65534\n") == 0);
        snprintf(path, sizeof(path), "/proc/%d/fd/3", (int)pid);
        assert_int_equal(faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW), -1);
    }
    elf_parser_free(parser);
}

/* In a process that may install no further filter. */
static int without_seccomp(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(program) / sizeof(program[0]), program};
    struct elf_parser *parser;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        return 0;
    int r = elf_parser_new(&parser);
    /* Whatever it is asked, no child is there. */
    return r == -EPERM && waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
}

static void a_child_that_cannot_be_confined_is_not_used(void **state)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(without_seccomp() ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void child_kill(struct elf_parser *parser)
{
    siginfo_t info;
    pid_t child = elf_parser_pid(parser);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
}

/* As one ends that had no question for long: it is replaced, knows the file again, and no file is blamed. */
static void a_child_that_ended_between_questions_is_replaced(void **state)
{
    struct files f;
    struct elf_symbol symbol;
    struct sum sum = {0};
    files_open(&f);
    for (int i = 0; i < ELF_FILE_DEATHS_MAX + 1; i++) {
        pid_t before = elf_parser_pid(f.parser);
        child_kill(f.parser);
        assert_int_equal(elf_file_symbol(&f.there, "lfind", &symbol), 0);
        assert_true(elf_parser_pid(f.parser) != before);
    }
    child_kill(f.parser);
    assert_int_equal(elf_file_exports(f.parser, elf_file_pread, &f.fd, function_add, &sum), 0);
    assert_true(sum.n > 1000);
    assert_int_equal(elf_parser_deaths(f.parser), 0);
    files_close(&f);
}

/* Reads bytes of the library, and kills the child when `armed`. */
struct killing {
    int fd;
    struct elf_parser *parser;
    bool armed;
};

static int64_t read_and_kill(void *context, uint64_t offset, void *to, size_t n)
{
    struct killing *k = context;
    if (k->armed)
        kill(elf_parser_pid(k->parser), SIGKILL);
    return elf_file_pread(&k->fd, offset, to, n);
}

static void a_file_over_which_children_die_is_refused_and_others_are_served(void **state)
{
    struct files f;
    struct elf_file deadly;
    struct elf_symbol symbol;
    files_open(&f);
    struct killing k = {f.fd, f.parser, false};
    assert_int_equal(elf_file_init(&deadly, f.parser, read_and_kill, &k, ELF_CLUSTER), 0);
    k.armed = true;
    assert_int_equal(elf_file_symbol(&deadly, "lfind", &symbol), -EBADMSG);
    assert_int_equal(elf_parser_deaths(f.parser), ELF_FILE_DEATHS_MAX);
    assert_int_equal(elf_file_symbol(&deadly, "lfind", &symbol), -EBADMSG);
    assert_int_equal(elf_parser_deaths(f.parser), ELF_FILE_DEATHS_MAX);
    assert_int_equal(elf_file_symbol(&f.there, "lfind", &symbol), 0);
    elf_file_release(&deadly);
    files_close(&f);
}

int main(int argc, char **argv)
{
    if (elf_parser_is_this(argc, argv))
        return elf_parser_main();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_and_symbols_are_the_same),
        cmocka_unit_test(rules_and_steps_are_the_same),
        cmocka_unit_test(functions_are_the_same),
        cmocka_unit_test(places_for_probes_are_the_same),
        cmocka_unit_test(the_child_has_no_rights),
        cmocka_unit_test(a_child_that_cannot_be_confined_is_not_used),
        cmocka_unit_test(a_child_that_ended_between_questions_is_replaced),
        cmocka_unit_test(a_file_over_which_children_die_is_refused_and_others_are_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
