// A C++ program: tags by scope, from the header alone.
#include <cstdint>
#include <cstdio>
#include <memoir/memoir.h>

static void report(std::uint64_t id, std::uint64_t bytes)
{
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, id, bytes);
}

int main()
{
    {
        memoir::tag outer("outer");
        {
            memoir::tag inner("inner");
            report(1, 1 << 20);
        }
        report(2, 2 << 20);
    }
    report(3, 3 << 20);
    struct memoir_status status = {};
    status.struct_size = sizeof(status);
    memoir_status(&status);
    std::printf("{\"who\":\"tagged\",\"state\":%d}\n", status.state);
    std::fflush(stdout);
    return std::getchar() == 'x';
}
