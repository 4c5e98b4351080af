/* cxx.cpp: every form of new and delete, by a program that counts. */
#include <cstring>
#include <new>

#include "own.h"

struct alignas(256) wide {
    char bytes[512];
};

static void *volatile sink;

template <typename T> static T *got(T *block, size_t bytes)
{
    MUST(block);
    own_got(bytes);
    sink = block;
    return block;
}

static int handled;
static void handler()
{
    handled++;
    std::set_new_handler(nullptr);
}

/* Too large for anybody: the program's handler is asked first, then it is told. */
static void too_large()
{
    volatile size_t huge = static_cast<size_t>(-1) / 4;
    bool thrown = false;
    std::set_new_handler(handler);
    try {
        sink = ::operator new(huge);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    MUST(thrown && handled == 1);
    MUST(::operator new(huge, std::nothrow) == nullptr);
    MUST(::operator new[](huge, std::nothrow) == nullptr);
    try {
        thrown = false;
        sink = ::operator new(huge, std::align_val_t{256});
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    MUST(thrown);
}

static void each_form(size_t n)
{
    const std::align_val_t align{128};
    own_gave(n), ::operator delete(got(::operator new(n), n));
    own_gave(n), ::operator delete(got(::operator new(n), n), n);
    own_gave(n), ::operator delete[](got(::operator new[](n), n));
    own_gave(n), ::operator delete[](got(::operator new[](n), n), n);
    own_gave(n), ::operator delete(got(::operator new(n, std::nothrow), n), std::nothrow);
    own_gave(n), ::operator delete[](got(::operator new[](n, std::nothrow), n), std::nothrow);
    own_gave(n), ::operator delete(got(::operator new(n, align), n), align);
    own_gave(n), ::operator delete(got(::operator new(n, align), n), n, align);
    own_gave(n), ::operator delete[](got(::operator new[](n, align), n), align);
    own_gave(n), ::operator delete[](got(::operator new[](n, align), n), n, align);
    own_gave(n), ::operator delete(got(::operator new(n, align, std::nothrow), n), align, std::nothrow);
    own_gave(n), ::operator delete[](got(::operator new[](n, align, std::nothrow), n), align, std::nothrow);
}

int main(int argc, char **argv)
{
    /* Debian's mimalloc, alone, ends the program and forgets the alignment. */
    bool whole = argc < 2 || strcmp(argv[1], "mimalloc") != 0;
    for (size_t n = 0; n < 3000; n += 7)
        each_form(n);
    for (int i = 0; i < 300; i++) {
        wide *one = got(new wide, sizeof(wide));
        MUST(!whole || reinterpret_cast<uintptr_t>(one) % 256 == 0);
        own_gave(sizeof(wide)), delete one;
        got(new char[100], 100); /* these stay */
    }
    if (whole)
        too_large();
    own_say("end");
    return 0;
}
