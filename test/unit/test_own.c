/* Whose code a line is, and how its function is called for people. */
#include "site/own.h"

#include <string.h>

#include "check.h"
#include "site/short_name.h"

static enum own_kind kind(const char *module, const char *function, const char *file)
{
    return own_kind(&(struct own_line){.module = module, .function = function, .file = file});
}

static void lines_of_the_program_are_its_own(void **state)
{
    assert_int_equal(kind("/srv/shop", "load", "/home/ann/shop/load.cpp"), OWN_CODE);
    assert_int_equal(kind("/usr/bin/redis-server", "dictAdd", "./src/dict.c"), OWN_CODE);
    assert_int_equal(kind("/usr/lib/postgresql/15/bin/postgres", "palloc0", NULL), OWN_CODE);
    assert_int_equal(kind("/srv/libshop.so.1", NULL, NULL), OWN_CODE);
    assert_int_equal(kind("/srv/shop", "main", "src/main.rs"), OWN_CODE);
}

static void standard_libraries_are_not(void **state)
{
    assert_int_equal(kind("/srv/shop", "std::vector<int>::push_back(int)",
                          "/usr/include/c++/12/bits/stl_vector.h"),
                     OWN_STANDARD);
    assert_int_equal(kind("/srv/shop", "std::vector<int>::push_back(int)",
                          "/opt/gcc/bin/../include/c++/13/bits/stl_vector.h"),
                     OWN_STANDARD);
    assert_int_equal(kind("/srv/shop", "void std::vector<int>::emplace_back<int>(int&&)", NULL),
                     OWN_STANDARD);
    assert_int_equal(kind("/srv/shop", "alloc::vec::Vec<T,A>::push",
                          "/rustc/90b35a623/library/alloc/src/vec/mod.rs"),
                     OWN_STANDARD);
    assert_int_equal(kind("/srv/shop", "alloc::alloc::alloc",
                          "/usr/src/rustc-1.63.0/library/alloc/src/alloc.rs"),
                     OWN_STANDARD);
    assert_int_equal(kind("/opt/conda/lib/libstdc++.so.6.0.30", "f", "/build/f.cc"), OWN_STANDARD);
    assert_int_equal(kind("/lib/x86_64-linux-gnu/libc.so.6", "puts", NULL), OWN_STANDARD);
}

static void interpreters_and_libraries_are_not(void **state)
{
    assert_int_equal(kind("/usr/bin/python3.11", "list_append", NULL), OWN_STANDARD);
    assert_int_equal(kind("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", NULL, NULL),
                     OWN_STANDARD);
    assert_int_equal(kind("/usr/lib/jvm/java-17/lib/server/libjvm.so", "Unsafe_Allocate", NULL),
                     OWN_STANDARD);
    assert_int_equal(kind("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "X509_new", NULL),
                     OWN_LIBRARY);
    assert_int_equal(kind("/srv/shop", "serde_json::from_str",
                          "/root/.cargo/registry/src/x/serde_json-1.0/src/de.rs"),
                     OWN_LIBRARY);
    assert_false(own_module("/usr/lib/x86_64-linux-gnu/libcrypto.so.3"));
    assert_false(own_module("/usr/bin/node"));
    assert_true(own_module("/usr/bin/nodetool"));
    assert_true(own_module("/srv/shop"));
    assert_false(own_module(""));
}

static void scripts_are_but_not_their_libraries(void **state)
{
    struct own_line line = {.script = true, .function = "load", .file = "/srv/train.py"};
    assert_int_equal(own_kind(&line), OWN_CODE);
    line.file = "/usr/lib/python3.11/json/decoder.py";
    assert_int_equal(own_kind(&line), OWN_LIBRARY);
    line.file = "/srv/venv/lib/python3.11/site-packages/requests/api.py";
    assert_int_equal(own_kind(&line), OWN_LIBRARY);
    line.file = "/opt/python/lib/python3.12/asyncio/events.py";
    assert_int_equal(own_kind(&line), OWN_LIBRARY);
    line.file = "<frozen importlib._bootstrap>";
    assert_int_equal(own_kind(&line), OWN_LIBRARY);
}

static void wrappers_are_known_by_name(void **state)
{
    assert_int_equal(kind("/usr/bin/redis-server", "zmalloc", "./src/zmalloc.c"), OWN_WRAPPER);
    assert_int_equal(kind("/srv/shop", "xstrdup", NULL), OWN_WRAPPER);
    assert_int_equal(kind("/usr/lib/jvm/java-17/lib/server/libjvm.so",
                          "os::malloc(unsigned long, MEMFLAGS)", NULL),
                     OWN_ALLOCATOR);
    assert_int_equal(kind("/usr/bin/perl", "Perl_safesysrealloc", NULL), OWN_ALLOCATOR);
    assert_false(own_is_wrapper("xmall"));
    assert_false(own_is_wrapper("emalloc_table"));
    assert_false(own_is_wrapper(NULL));
}

static void of_calls_in_each_other_the_innermost_own_one_is_chosen(void **state)
{
    enum own_kind map[] = {OWN_STANDARD, OWN_STANDARD, OWN_CODE, OWN_CODE};
    assert_int_equal(own_choose(map, 4), 2);
    enum own_kind none[] = {OWN_ALLOCATOR, OWN_STANDARD, OWN_STANDARD};
    assert_int_equal(own_choose(none, 3), 2);
    enum own_kind wrapper[] = {OWN_STANDARD, OWN_WRAPPER, OWN_STANDARD};
    assert_int_equal(own_choose(wrapper, 3), 1);
}

static void names_are_shortened(void **state)
{
    static const char *const names[][2] = {
        {"load", "load"},
        {"Cache::load(int)", "Cache::load"},
        {"Cache::load(int) const", "Cache::load"},
        {"void cache::Table<std::string, int>::insert<int>(int&&)", "cache::Table<…>::insert<…>"},
        {"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create("
         "unsigned long&, unsigned long)",
         "std::string::_M_create"},
        {"std::__cxx11::list<int, std::allocator<int> >::push_back(int const&)",
         "std::list<…>::push_back"},
        {"(anonymous namespace)::Cache::load(int)", "(anonymous namespace)::Cache::load"},
        {"run(int)::{lambda(int)#1}::operator()(int) const", "run::{lambda}::operator()"},
        {"operator new(unsigned long)", "operator new"},
        {"operator new[](unsigned long)", "operator new[]"},
        {"Table::operator[](int)", "Table::operator[]"},
        {"std::ostream& operator<< <char>(std::ostream&, char)", "operator<<"},
        {"std::string std::operator+<char, std::traits<char> >(char const*, std::string&&)",
         "std::operator+<…>"},
        {"my_operator::run(int)", "my_operator::run"},
        {"Cache::load(int) [clone .isra.0]", "Cache::load"},
        {"Cache::operator bool() const", "Cache::operator bool"},
        {"shop::cache::load::h0123456789abcdef", "shop::cache::load"},
        {"<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop::h0123456789abcdef",
         "alloc::vec::Vec<…>::drop"},
        {"alloc::vec::Vec<T,A>::push", "alloc::vec::Vec<…>::push"},
        {"shop::main::{{closure}}", "shop::main::{{closure}}"},
        {"<module>", "<module>"},
        {"load.<locals>.<lambda>", "load.<locals>.<lambda>"},
        {"<", "<"},
        {"(", "("},
        {"a<b", "a<…>"},
        {" ", " "},
    };
    char text[SHORT_NAME_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_string_equal(short_name(names[i][0], text), names[i][1]);
    char longest[4096];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[0] = '(';
    longest[sizeof(longest) - 1] = '\0';
    (void)short_name(longest, text);
    memset(longest, 'x', 3000);
    strcpy(longest + 3000, "(int)");
    assert_true(strlen(short_name(longest, text)) < SHORT_NAME_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_the_program_are_its_own),
        cmocka_unit_test(standard_libraries_are_not),
        cmocka_unit_test(interpreters_and_libraries_are_not),
        cmocka_unit_test(scripts_are_but_not_their_libraries),
        cmocka_unit_test(wrappers_are_known_by_name),
        cmocka_unit_test(of_calls_in_each_other_the_innermost_own_one_is_chosen),
        cmocka_unit_test(names_are_shortened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
