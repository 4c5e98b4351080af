/* cxx.cpp: every form of operator new and delete, what they do when there is no memory, and objects of C++ that live
 * before main(), after it, and as long as a thread. */
#include <cerrno>
#include <cstring>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

#include "cases.h"

static void *volatile sink;
static const volatile size_t too_large = static_cast<size_t>(-1) / 4;

static void *checked(void *block, size_t bytes, size_t align)
{
    MUST_SAY(block && reinterpret_cast<uintptr_t>(block) % align == 0, "%zu bytes at %p, alignment %zu", bytes,
             block, align);
    MUST(malloc_usable_size(block) >= bytes);
    memset(block, 0x5a, bytes);
    return sink = block;
}

static void every_form_pairs_with_its_delete()
{
    for (size_t n = 0; n < 3 << 20; n = n < 1200 ? n + 1 : n * 3 / 2) {
        ::operator delete(checked(::operator new(n), n, 16));
        ::operator delete(checked(::operator new(n), n, 16), n);
        ::operator delete[](checked(::operator new[](n), n, 16));
        ::operator delete[](checked(::operator new[](n), n, 16), n);
        ::operator delete(checked(::operator new(n, std::nothrow), n, 16), std::nothrow);
        ::operator delete[](checked(::operator new[](n, std::nothrow), n, 16), std::nothrow);
    }
    for (size_t power = 1; power <= 16 << 20; power *= 2) {
        const std::align_val_t align{power};
        for (size_t n = 0; n < 1 << 20; n = n * 5 + 3) {
            ::operator delete(checked(::operator new(n, align), n, power), align);
            ::operator delete(checked(::operator new(n, align), n, power), n, align);
            ::operator delete[](checked(::operator new[](n, align), n, power), align);
            ::operator delete[](checked(::operator new[](n, align), n, power), n, align);
            ::operator delete(checked(::operator new(n, align, std::nothrow), n, power), align, std::nothrow);
            ::operator delete[](checked(::operator new[](n, align, std::nothrow), n, power), align, std::nothrow);
        }
    }
}

/* It is no alignment, and must not become a size. */
static void an_alignment_of_nothing_is_refused_or_ignored()
{
    static const volatile size_t nothing = 0;
    const std::align_val_t align{nothing};
    void *block = ::operator new(1000, align, std::nothrow);
    MUST(!block || malloc_usable_size(block) >= 1000);
    ::operator delete(block, align, std::nothrow);
}

static void deleting_nothing_is_allowed()
{
    const std::align_val_t align{64};
    void *none = nullptr;
    ::operator delete(none);
    ::operator delete(none, 5);
    ::operator delete[](none);
    ::operator delete[](none, 5);
    ::operator delete(none, std::nothrow);
    ::operator delete[](none, std::nothrow);
    ::operator delete(none, align);
    ::operator delete(none, 5, align);
    ::operator delete[](none, align);
    ::operator delete[](none, 5, align);
    ::operator delete(none, align, std::nothrow);
    ::operator delete[](none, align, std::nothrow);
}

/* Programs mix them, and glibc lets them. */
static void new_and_malloc_are_one_heap()
{
    for (size_t n = 0; n < 100000; n = n * 2 + 1) {
        free(checked(::operator new(n), n, 16));
        free(checked(::operator new[](n, std::align_val_t{512}), n, 512));
        ::operator delete(checked(malloc(n), n, 16));
        ::operator delete(checked(memalign(256, n), n, 256), n);
        void *block = realloc(checked(::operator new(n), n, 16), n + 100);
        ::operator delete[](checked(block, n + 100, 16));
    }
}

template <typename Call> static bool throws_bad_alloc(Call call)
{
    try {
        sink = call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void failure_throws_or_is_null()
{
    const std::align_val_t align{4096};
    MUST(throws_bad_alloc([] { return ::operator new(too_large); }));
    MUST(throws_bad_alloc([] { return ::operator new[](too_large); }));
    MUST(throws_bad_alloc([&] { return ::operator new(too_large, align); }));
    MUST(throws_bad_alloc([&] { return ::operator new[](too_large, align); }));
    MUST(throws_bad_alloc([] { return ::operator new(static_cast<size_t>(-1)); }));
    MUST(throws_bad_alloc([&] { return ::operator new(static_cast<size_t>(-1), align); }));
    MUST(throws_bad_alloc([] { return new double[too_large]; })); /* bad_array_new_length, which is one */
    MUST(::operator new(too_large, std::nothrow) == nullptr);
    MUST(::operator new[](too_large, std::nothrow) == nullptr);
    MUST(::operator new(too_large, align, std::nothrow) == nullptr);
    MUST(::operator new[](too_large, align, std::nothrow) == nullptr);
}

static int handled;
static void three_times()
{
    if (++handled == 3)
        std::set_new_handler(nullptr);
}

static void handler_is_called_until_it_gives_up()
{
    const std::align_val_t align{128};
    const auto tried = [](auto call) {
        handled = 0;
        std::set_new_handler(three_times);
        call();
        MUST_SAY(handled == 3 && std::get_new_handler() == nullptr, "the handler was called %d times", handled);
    };
    tried([] { MUST(throws_bad_alloc([] { return ::operator new(too_large); })); });
    tried([] { MUST(throws_bad_alloc([] { return ::operator new[](too_large); })); });
    tried([&] { MUST(throws_bad_alloc([&] { return ::operator new(too_large, align); })); });
    tried([&] { MUST(throws_bad_alloc([&] { return ::operator new[](too_large, align); })); });
    tried([] { MUST(::operator new(too_large, std::nothrow) == nullptr); });
    tried([] { MUST(::operator new[](too_large, std::nothrow) == nullptr); });
    tried([&] { MUST(::operator new(too_large, align, std::nothrow) == nullptr); });
    tried([&] { MUST(::operator new[](too_large, align, std::nothrow) == nullptr); });
}

static void never_asked()
{
    MUST(!"a handler cannot help");
}

static void an_alignment_that_is_no_power_fails()
{
    std::set_new_handler(never_asked);
    for (volatile size_t odd : {size_t{3}, size_t{24}, size_t{4097}, ~size_t{0}}) {
        const std::align_val_t align{odd};
        MUST(throws_bad_alloc([&] { return ::operator new(8, align); }));
        MUST(throws_bad_alloc([&] { return ::operator new[](8, align); }));
        MUST(::operator new(8, align, std::nothrow) == nullptr);
        MUST(::operator new[](8, align, std::nothrow) == nullptr);
    }
}

struct own_error {};

static void what_the_handler_throws_comes_through()
{
    bool caught = false;
    std::set_new_handler([] { throw std::bad_alloc(); });
    MUST(throws_bad_alloc([] { return ::operator new(too_large); }));
    MUST(::operator new(too_large, std::nothrow) == nullptr);
    MUST(::operator new[](too_large, std::align_val_t{64}, std::nothrow) == nullptr);
    std::set_new_handler([] { throw own_error(); });
    try {
        sink = ::operator new(too_large);
    } catch (const own_error &) {
        caught = true;
    }
    MUST(caught);
    std::set_new_handler(nullptr);
}

/* new asks again after the handler has made room: malloc itself must not call it. */
static void malloc_leaves_the_handler_alone()
{
    handled = 0;
    std::set_new_handler(three_times);
    errno = 0;
    sink = malloc(too_large);
    MUST(sink == nullptr && errno == ENOMEM && handled == 0);
    std::set_new_handler(nullptr);
}

struct alignas(512) wide {
    char bytes[512];
};

static void aligned_types_are_aligned()
{
    std::vector<std::unique_ptr<wide>> kept;
    for (int i = 0; i < 500; i++) {
        kept.push_back(std::make_unique<wide>());
        MUST(reinterpret_cast<uintptr_t>(kept.back().get()) % 512 == 0);
    }
    std::vector<wide> row(37);
    MUST(reinterpret_cast<uintptr_t>(row.data()) % 512 == 0);
}

static void fill_containers(size_t n)
{
    std::map<std::string, std::vector<int>> map;
    for (size_t i = 0; i < n; i++)
        map["a key that is not short: " + std::to_string(i % 997)].push_back(static_cast<int>(i));
    size_t sum = 0;
    for (const auto &entry : map)
        sum += entry.second.size();
    MUST(sum == n);
}

/* Its destructor runs when its thread ends, after the thread's own code. */
struct of_thread {
    std::vector<std::string> strings;
    of_thread() : strings(20, std::string(100, 'x'))
    {
    }
    ~of_thread()
    {
        strings.emplace_back(5000, 'y');
        fill_containers(50);
    }
};

static thread_local of_thread local;

static void thread_local_objects_allocate_when_they_end()
{
    for (int i = 0; i < 50; i++) {
        std::vector<std::thread> threads;
        for (int k = 0; k < 8; k++)
            threads.emplace_back([] {
                local.strings.emplace_back(200, 'z');
                fill_containers(200);
            });
        for (auto &thread : threads)
            thread.join();
    }
}

static void containers_work()
{
    fill_containers(30000);
}

/* Made before main(), ended after it. */
struct global {
    std::vector<std::string> strings;
    global() : strings(100, std::string(40, 'g'))
    {
    }
    ~global()
    {
        strings.emplace_back(100000, 'h');
        fill_containers(500);
    }
};

static global early __attribute__((init_priority(101)));
static global late;

static void globals_live_before_and_after_main()
{
    MUST(early.strings.size() == 100 && late.strings.at(99).size() == 40);
    early.strings.clear();
    early.strings.shrink_to_fit();
    late.strings.emplace_back(70000, 'm'); /* their destructors run when this process ends, with status 0 */
}

int main(int argc, char **argv)
{
#define CASE(name) {#name, name}
    static const struct test_case cases[] = {
        CASE(every_form_pairs_with_its_delete),
        CASE(an_alignment_of_nothing_is_refused_or_ignored),
        CASE(deleting_nothing_is_allowed),
        CASE(new_and_malloc_are_one_heap),
        CASE(failure_throws_or_is_null),
        CASE(handler_is_called_until_it_gives_up),
        CASE(an_alignment_that_is_no_power_fails),
        CASE(what_the_handler_throws_comes_through),
        CASE(malloc_leaves_the_handler_alone),
        CASE(aligned_types_are_aligned),
        CASE(containers_work),
        CASE(thread_local_objects_allocate_when_they_end),
        CASE(globals_live_before_and_after_main),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
