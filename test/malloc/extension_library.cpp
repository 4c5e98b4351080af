/* extension_library.cpp: an extension in C++ for a program in C, as those of Python are. */
#include <cstddef>
#include <new>
#include <string>
#include <vector>

extern "C" {
int extension_run(void);
int extension_fail(void);
}

static volatile std::size_t too_much = std::size_t(1) << 62;

/* The compiler may leave out a new that nobody sees. */
template <typename Type> static Type *seen(Type *block)
{
    asm volatile("" : "+r"(block) : : "memory");
    return block;
}

static bool throws()
{
    try {
        delete[] seen(new char[too_much]);
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

/* Bits of what went well. */
int extension_fail(void)
{
    static int asked;
    int well = throws() ? 1 : 0;
    well |= seen(new (std::nothrow) char[too_much]) ? 0 : 2;
    std::set_new_handler([] {
        if (++asked == 3)
            std::set_new_handler(nullptr);
    });
    well |= throws() ? 4 : 0;
    well |= asked == 3 ? 8 : 0;
    try {
        struct alignas(4096) page {
            char bytes[4096];
        };
        delete[] seen(new page[too_much / 8192]);
    } catch (const std::bad_alloc &) {
        well |= 16;
    }
    return well;
}

int extension_run(void)
{
    std::vector<std::string> texts;
    for (int i = 0; i < 1000; i++)
        texts.push_back(std::string(std::size_t(i % 100), 'x'));
    struct alignas(64) line {
        char bytes[64];
    };
    delete[] seen(new line[10]);
    delete seen(new int(3));
    return int(texts.size());
}
