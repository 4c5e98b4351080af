/* scopes.cpp: libraries that the loader binds past the global scope have the program's allocator all the same: blocks go from
 * the program to them and back. CASE_LIBRARY is loaded with RTLD_DEEPBIND, and needs another one. */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "cases.h"
#include "scope_library.h"

extern "C" {
__attribute__((visibility("default"))) const char *scope_name(void);
const char *scope_name(void)
{
    return "program";
}
}

static const size_t sizes[] = {16, 40, 100, 1000, 5000, 30000, 300000, 3000000};

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        case_skip("%s is not set", name);
    return value;
}

static const scope_calls *calls_of(void *handle)
{
    MUST_SAY(handle != nullptr, "%s", dlerror());
    auto calls = static_cast<const scope_calls *>(dlsym(handle, "scope_calls_here"));
    MUST(calls != nullptr);
    return calls;
}

static const scope_calls *load(int mode)
{
    return calls_of(dlopen(setting("CASE_LIBRARY"), mode));
}

static void program_take(scope_how how, void *block)
{
    if (how == SCOPE_NEW)
        operator delete(block);
    else if (how == SCOPE_ARRAY)
        delete[] static_cast<char *>(block);
    else if (how == SCOPE_STRING)
        delete static_cast<std::string *>(block);
    else
        free(block);
}

static void *program_give(scope_how how, size_t bytes)
{
    switch (how) {
    case SCOPE_CALLOC:
        return calloc(1, bytes);
    case SCOPE_ALIGNED:
        return aligned_alloc(64, (bytes + 63) & ~size_t(63));
    case SCOPE_STRDUP:
        return strdup("also of sixteen bytes, or more");
    case SCOPE_NEW:
        return operator new(bytes);
    case SCOPE_ARRAY:
        return new char[bytes];
    case SCOPE_STRING:
        return new std::string(bytes, 'y');
    default:
        return malloc(bytes);
    }
}

static void exchange_one(const scope_calls *library, scope_how how, size_t bytes)
{
    void *block = library->give(how, bytes);
    MUST(block != nullptr);
    MUST(malloc_usable_size(block) >= 16 && library->usable(block) == malloc_usable_size(block));
    program_take(how, block);
    block = program_give(how, bytes);
    MUST(block != nullptr && library->usable(block) >= 16);
    library->take(how, block);
}

static void exchange_resized(const scope_calls *library, size_t bytes)
{
    auto block = static_cast<char *>(library->give(SCOPE_MALLOC, bytes));
    memset(block, 'a', bytes);
    block = static_cast<char *>(realloc(block, 2 * bytes));
    MUST(block != nullptr && block[0] == 'a' && block[bytes - 1] == 'a');
    block = static_cast<char *>(library->resize(block, 5 * bytes));
    MUST(block != nullptr && block[0] == 'a' && block[bytes - 1] == 'a');
    block = static_cast<char *>(library->resize(block, 20));
    MUST(block != nullptr && block[0] == 'a');
    free(block);
}

static void exchange(const scope_calls *library)
{
    for (int round = 0; round < 50; round++)
        for (size_t bytes : sizes) {
            for (int how = 0; how < SCOPE_HOWS; how++)
                exchange_one(library, static_cast<scope_how>(how), bytes);
            exchange_resized(library, bytes);
        }
}

static void must_be_ours(void *address)
{
    Dl_info info = {};
    MUST(dladdr(address, &info) != 0);
    MUST_SAY(strstr(info.dli_fname, setting("MALLOC_UNDER_TEST")), "malloc is that of %s", info.dli_fname);
}

static void blocks_come_from_and_go_to_a_deepbound_library()
{
    exchange(load(RTLD_NOW | RTLD_DEEPBIND));
}

static void blocks_come_from_and_go_to_what_a_deepbound_library_needs()
{
    exchange(load(RTLD_LAZY | RTLD_DEEPBIND)->needed);
}

static void a_deepbound_library_has_the_allocator_of_the_program()
{
    const scope_calls *library = load(RTLD_NOW | RTLD_DEEPBIND);
    must_be_ours(library->malloc_address());
    must_be_ours(library->needed->malloc_address());
}

static void a_deepbound_library_keeps_its_own_names()
{
    MUST(strcmp(load(RTLD_NOW | RTLD_DEEPBIND)->name(), "library") == 0);
}

static void another_library_has_the_names_of_the_program()
{
    MUST(strcmp(load(RTLD_NOW)->name(), "program") == 0);
}

/* The opener looks beside itself. Both are in a folder of their own, where no other path leads. */
static void a_library_is_found_by_the_runpath_of_its_caller()
{
    char folder[] = "/tmp/memoir-test-scopes-XXXXXX";
    MUST(mkdtemp(folder) != nullptr);
    const char *name = "libonly_here.so";
    std::string opener_path = std::string(folder) + "/opener.so", path = std::string(folder) + "/" + name;
    MUST(symlink(setting("CASE_OPENER"), opener_path.c_str()) == 0);
    MUST(symlink(setting("CASE_LIBRARY"), path.c_str()) == 0);
    void *opener = dlopen(opener_path.c_str(), RTLD_NOW), *nowhere = dlopen(name, RTLD_NOW);
    void *open = opener ? dlsym(opener, "scope_open") : nullptr;
    auto call = reinterpret_cast<void *(*)(const char *, int)>(open);
    void *handle = call ? call(name, RTLD_NOW | RTLD_DEEPBIND) : nullptr;
    void *again = call ? call(name, RTLD_NOW) : nullptr;
    unlink(path.c_str());
    unlink(opener_path.c_str());
    rmdir(folder);
    MUST(call != nullptr && nowhere == nullptr && again == handle);
    exchange(calls_of(handle));
}

static void blocks_come_from_and_go_to_a_library_loaded_by_dlmopen()
{
    exchange(calls_of(dlmopen(LM_ID_BASE, setting("CASE_LIBRARY"), RTLD_NOW | RTLD_DEEPBIND)));
}

static void a_namespace_of_its_own_has_an_allocator_of_its_own()
{
    load(RTLD_NOW | RTLD_DEEPBIND);
    const scope_calls *library = calls_of(dlmopen(LM_ID_NEWLM, setting("CASE_LIBRARY"), RTLD_NOW | RTLD_DEEPBIND));
    for (size_t bytes : sizes) {
        void *block = library->give(SCOPE_MALLOC, bytes);
        block = library->resize(block, bytes * 2);
        MUST(block != nullptr);
        library->take(SCOPE_MALLOC, block);
        library->take(SCOPE_STRING, library->give(SCOPE_STRING, bytes));
    }
}

/* As ctypes of Python does. */
static void what_is_found_by_a_handle_frees_blocks_of_the_program()
{
    const char *const names[] = {"libc.so.6", nullptr, setting("CASE_LIBRARY")};
    for (const char *name : names) {
        void *handle = dlopen(name, RTLD_NOW);
        MUST_SAY(handle != nullptr, "%s", dlerror());
        auto give_back = reinterpret_cast<void (*)(void *)>(dlsym(handle, "free"));
        auto resize = reinterpret_cast<void *(*)(void *, size_t)>(dlsym(handle, "realloc"));
        auto duplicate = reinterpret_cast<char *(*)(const char *)>(dlsym(handle, "strdup"));
        auto take = reinterpret_cast<void *(*)(size_t)>(dlsym(handle, "malloc"));
        MUST(give_back && resize && duplicate && take);
        for (int i = 0; i < 1000; i++) {
            give_back(resize(malloc(size_t(i)), 5000));
            give_back(duplicate("some text"));
            free(take(size_t(i)));
        }
    }
}

static void what_is_found_by_a_version_frees_blocks_of_the_program()
{
#if defined(__x86_64__)
    const char *version = "GLIBC_2.2.5";
#else
    const char *version = "GLIBC_2.17";
#endif
    void *handle = dlopen("libc.so.6", RTLD_NOW);
    MUST_SAY(handle != nullptr, "%s", dlerror());
    auto give_back = reinterpret_cast<void (*)(void *)>(dlvsym(handle, "free", version));
    auto take = reinterpret_cast<void *(*)(size_t)>(dlvsym(handle, "malloc", version));
    MUST_SAY(give_back && take, "%s", dlerror());
    for (int i = 0; i < 1000; i++) {
        give_back(malloc(size_t(i)));
        free(take(size_t(i)));
    }
    MUST(dlvsym(handle, "free", "GLIBC_NONE") == nullptr && dlerror() != nullptr);
}

static void *load_and_exchange(void *barrier)
{
    pthread_barrier_wait(static_cast<pthread_barrier_t *>(barrier));
    exchange(load(RTLD_NOW | RTLD_DEEPBIND));
    return nullptr;
}

static void threads_load_deepbound_libraries_at_once()
{
    enum { THREADS = 8 };
    pthread_barrier_t barrier;
    pthread_t threads[THREADS];
    MUST(pthread_barrier_init(&barrier, nullptr, THREADS) == 0);
    for (auto &thread : threads)
        MUST(pthread_create(&thread, nullptr, load_and_exchange, &barrier) == 0);
    for (auto &thread : threads)
        MUST(pthread_join(thread, nullptr) == 0);
}

#define CASE(name) \
    {              \
        #name, name \
    }
static const struct test_case cases[] = {
    CASE(blocks_come_from_and_go_to_a_deepbound_library),
    CASE(blocks_come_from_and_go_to_what_a_deepbound_library_needs),
    CASE(a_deepbound_library_has_the_allocator_of_the_program),
    CASE(a_deepbound_library_keeps_its_own_names),
    CASE(another_library_has_the_names_of_the_program),
    CASE(a_library_is_found_by_the_runpath_of_its_caller),
    CASE(blocks_come_from_and_go_to_a_library_loaded_by_dlmopen),
    CASE(a_namespace_of_its_own_has_an_allocator_of_its_own),
    CASE(what_is_found_by_a_handle_frees_blocks_of_the_program),
    CASE(what_is_found_by_a_version_frees_blocks_of_the_program),
    CASE(threads_load_deepbound_libraries_at_once),
};

int main(int argc, char **argv)
{
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
