/* The option parser: every way to write an option, and every way to get it wrong. */
#include "cli/options.h"

#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "check.h"

struct values {
    bool json, wide;
    const char *dir;
    uint64_t pid;
    uint64_t duration_ns;
    int color;
    bool watch;
    uint64_t watch_ns;
};

static const char *const colors[] = {"auto", "always", "never", NULL};

#define AT(field) offsetof(struct values, field)
static const struct option_spec specs[] = {
    {"json", 'j', OPTION_FLAG, AT(json), .help = "h"},
    {"wide", 'w', OPTION_FLAG, AT(wide), .help = "h"},
    {"dir", 'd', OPTION_STRING, AT(dir), "DIR", "h"},
    {"pid", 'p', OPTION_NUMBER, AT(pid), "PID", "h"},
    {"duration", 0, OPTION_DURATION, AT(duration_ns), "SECONDS", "h"},
    {"color", 0, OPTION_CHOICE, AT(color), "WHEN", "h", .choices = colors},
    {"watch", 0, OPTION_DURATION, AT(watch_ns), "SECONDS", "h", .value_optional = true,
     .given_offset = AT(watch)},
    {0},
};

enum { WORDS_MAX = 8 };

/* Parse words (ended by NULL) into values; the error's text stays in `error` until the next call. */
static char error[512];
static struct operands operands;
static char *argv[WORDS_MAX + 2];

static int parse(struct values *values, const char *const words[static WORDS_MAX])
{
    int argc = 1;
    argv[0] = (char *)(uintptr_t) "command";
    for (int i = 0; i < WORDS_MAX && words[i]; i++)
        argv[argc++] = (char *)(uintptr_t)words[i];
    argv[argc] = NULL;
    *values = (struct values){.watch_ns = 2 * NS_PER_S};
    struct buffer text = BUFFER_INIT(sizeof(error) - 1);
    int r = options_parse(specs, argc, argv, values, &operands, &text);
    strcpy(error, buffer_string(&text));
    buffer_release(&text);
    return r;
}

#define PARSE(values, ...) parse((values), (const char *const[WORDS_MAX]){__VA_ARGS__})

static void values_come_attached_or_in_the_next_word(void **unused)
{
    struct values v;
    assert_int_equal(PARSE(&v, "--dir", "/a", "--pid=12"), 0);
    assert_string_equal(v.dir, "/a");
    assert_int_equal(v.pid, 12);
    assert_int_equal(PARSE(&v, "-d/a", "-p", "13"), 0);
    assert_string_equal(v.dir, "/a");
    assert_int_equal(v.pid, 13);
    assert_int_equal(PARSE(&v, "--dir="), 0);
    assert_string_equal(v.dir, "");
    assert_int_equal(PARSE(&v, "--dir", "--json"), 0); /* a value may look like an option */
    assert_string_equal(v.dir, "--json");
}

static void what_follows_a_program_is_its_own(void **unused)
{
    struct values v = {0};
    char *words[] = {(char *)"run", (char *)"-j", (char *)"--pid", (char *)"3", (char *)"ls",
                     (char *)"-w",  (char *)"--", (char *)"--dir", NULL};
    struct buffer text = BUFFER_INIT(100);
    assert_int_equal(options_parse_head(specs, 8, words, &v, &operands, &text), 0);
    assert_true(v.json && !v.wide && v.pid == 3);
    assert_int_equal(operands.n, 4);
    assert_string_equal(operands.words[0], "ls");
    assert_string_equal(operands.words[2], "--");
    assert_null(operands.words[4]);
    char *marked[] = {(char *)"run", (char *)"--", (char *)"-w", NULL};
    assert_int_equal(options_parse_head(specs, 3, marked, &v, &operands, &text), 0);
    assert_false(v.wide);
    assert_string_equal(operands.words[0], "-w");
    buffer_release(&text);
}

static void letters_may_share_a_dash(void **unused)
{
    struct values v;
    assert_int_equal(PARSE(&v, "-jw"), 0);
    assert_true(v.json && v.wide);
    assert_int_equal(PARSE(&v, "-jp7"), 0);
    assert_true(v.json);
    assert_int_equal(v.pid, 7);
}

static void operands_may_stand_anywhere(void **unused)
{
    struct values v;
    assert_int_equal(PARSE(&v, "one", "--json", "two", "--", "--wide", "-"), 0);
    assert_true(v.json);
    assert_false(v.wide);
    assert_int_equal(operands.n, 4);
    assert_string_equal(operands.words[0], "one");
    assert_string_equal(operands.words[1], "two");
    assert_string_equal(operands.words[2], "--wide");
    assert_string_equal(operands.words[3], "-");
    assert_int_equal(PARSE(&v, "-"), 0); /* a lone dash is a word */
    assert_int_equal(operands.n, 1);
}

static void a_bare_duration_is_in_seconds(void **unused)
{
    struct values v;
    assert_int_equal(PARSE(&v, "--duration", "90"), 0);
    assert_int_equal(v.duration_ns, 90 * NS_PER_S);
    assert_int_equal(PARSE(&v, "--duration", "0.5"), 0);
    assert_int_equal(v.duration_ns, NS_PER_S / 2);
    assert_int_equal(PARSE(&v, "--duration", "1m30s"), 0);
    assert_int_equal(v.duration_ns, 90 * NS_PER_S);
    assert_int_equal(PARSE(&v, "--duration", "0"), 0);
    assert_int_equal(v.duration_ns, 0);
}

static void an_optional_value_is_taken_only_when_it_is_one(void **unused)
{
    struct values v;
    assert_int_equal(PARSE(&v, "--watch"), 0);
    assert_true(v.watch);
    assert_int_equal(v.watch_ns, 2 * NS_PER_S);
    assert_int_equal(PARSE(&v, "--watch", "5", "--json"), 0);
    assert_int_equal(v.watch_ns, 5 * NS_PER_S);
    assert_true(v.json);
    assert_int_equal(PARSE(&v, "--watch", "--json"), 0);
    assert_int_equal(v.watch_ns, 2 * NS_PER_S);
    assert_true(v.json);
    assert_int_equal(PARSE(&v, "--watch=0.1"), 0);
    assert_int_equal(v.watch_ns, NS_PER_S / 10);
    assert_int_equal(PARSE(&v), 0);
    assert_false(v.watch);
}

static void mistakes_are_explained(void **unused)
{
    static const struct {
        const char *words[WORDS_MAX];
        const char *error;
    } cases[] = {
        {{"--jsn"}, "unknown option '--jsn', did you mean '--json'?"},
        {{"--ipd=3"}, "unknown option '--ipd', did you mean '--pid'?"},
        {{"--dur"}, "unknown option '--dur', did you mean '--duration'?"},
        {{"--completely-different"}, "unknown option '--completely-different'"},
        {{"-x"}, "unknown option '-x'"},
        {{"-jx"}, "unknown option '-x'"},
        {{"--json=yes"}, "option '--json' takes no value"},
        {{"--dir"}, "option '--dir' needs a value: --dir DIR"},
        {{"-p"}, "option '--pid' needs a value: --pid PID"},
        {{"--pid", "-1"}, "invalid number '-1' for --pid"},
        {{"--pid", "12x"}, "invalid number '12x' for --pid"},
        {{"--pid", ""}, "invalid number '' for --pid"},
        {{"--pid", "99999999999999999999"}, "'99999999999999999999' is too large for --pid"},
        {{"--duration", "soon"}, "invalid duration 'soon' for --duration; examples: 90, 1.5s, 2m"},
        {{"--color", "nevr"},
         "invalid value 'nevr' for --color; expected auto, always or never; did you mean 'never'?"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct values v;
        assert_int_equal(parse(&v, cases[i].words), -EINVAL);
        assert_string_equal(error, cases[i].error);
    }
}

static void nearest_is_silent_about_wild_guesses(void **unused)
{
    static const char *const words[] = {"ps", "doctor", "demo", "help", "log", NULL};
    assert_string_equal(options_nearest("doctro", words), "doctor");
    assert_string_equal(options_nearest("p", words), "ps");
    assert_string_equal(options_nearest("dem", words), "demo");
    assert_null(options_nearest("frobnicate", words));
    assert_null(options_nearest("foo", words)); /* two letters of three are wrong */
    char huge[500];
    memset(huge, 'x', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    assert_null(options_nearest(huge, words));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_attached_or_in_the_next_word),
        cmocka_unit_test(what_follows_a_program_is_its_own),
        cmocka_unit_test(letters_may_share_a_dash),
        cmocka_unit_test(operands_may_stand_anywhere),
        cmocka_unit_test(a_bare_duration_is_in_seconds),
        cmocka_unit_test(an_optional_value_is_taken_only_when_it_is_one),
        cmocka_unit_test(mistakes_are_explained),
        cmocka_unit_test(nearest_is_silent_about_wild_guesses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
