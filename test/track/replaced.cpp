/* replaced.cpp: a program with its own plain operator new and delete, as many count with. The C++ library makes arrays
 * and sized deletes out of them, and so it has to stay: blocks have a head that only these two know. */
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

enum { HEAD = 16, MARK = 0x5a5a };

static long live;

void *operator new(size_t bytes)
{
    char *block = static_cast<char *>(malloc(bytes + HEAD));
    if (!block)
        throw std::bad_alloc();
    *reinterpret_cast<int *>(block) = MARK;
    live++;
    return block + HEAD;
}

void operator delete(void *block) noexcept
{
    if (!block)
        return;
    char *start = static_cast<char *>(block) - HEAD;
    if (*reinterpret_cast<int *>(start) != MARK) {
        fputs("a block that is none of ours\n", stderr);
        abort();
    }
    live--;
    free(start);
}

struct item {
    long words[10];
    virtual ~item() = default;
};

static void *volatile sink;

template <typename T> static T *seen(T *block)
{
    sink = block;
    return block;
}

int main()
{
    long before = live;
    for (int i = 0; i < 3000; i++) {
        delete seen(new item);      /* sized */
        delete[] seen(new item[3]); /* sized, array */
        delete[] seen(new char[i + 1]);
        ::operator delete(seen(::operator new(50, std::nothrow)), std::nothrow);
        std::string text(200, 'a'); /* made inside the library */
        std::vector<int> numbers(100);
        sink = &text[0];
        sink = numbers.data();
    }
    item *left[10];
    for (item *&one : left)
        one = new item[2];
    bool all_ours = live - before == 10;
    for (item *one : left)
        delete[] one;
    return all_ours && live == before ? 0 : 1;
}
