/* throwing.cpp: allocates while exceptions pass: for what takes a stack of each call. */
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

struct keeper {
    std::vector<std::string> names;
    ~keeper()
    {
        names.push_back(std::string(40, 'x')); /* on the way out */
    }
};

static __attribute__((noinline)) int fall(int depth, int from)
{
    keeper held;
    held.names.emplace_back(30 + static_cast<unsigned>(depth), 'y');
    if (depth == 0)
        throw std::runtime_error(std::string(50, 'z'));
    int r = 0;
    if (depth % 5 == from) {
        try {
            r = fall(depth - 1, from);
        } catch (const std::exception &error) {
            held.names.emplace_back(error.what());
            throw std::logic_error(held.names.back() + "again");
        }
    } else {
        r = fall(depth - 1, from);
    }
    return r + static_cast<int>(held.names.size());
}

int main()
{
    int caught = 0;
    for (int i = 0; i < 400; i++) {
        try {
            fall(i % 23, i % 7);
        } catch (const std::exception &error) {
            caught += std::string(error.what()).size() > 10;
        }
    }
    std::printf("%d\n", caught);
    return 0;
}
