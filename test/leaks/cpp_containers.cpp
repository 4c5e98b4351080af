/* Containers with an allocator that notes what they ask for: a vector that comes and goes, a map that stays. */
#include <map>
#include <vector>

#include "truth.hpp"

/* The call stands on one line for all containers. */
template <class T> struct Noting {
    typedef T value_type;
    Noting() = default;
    template <class U> Noting(const Noting<U> &)
    {
    }
    T *allocate(size_t n)
    {
        void *p = TRUTH_OF(operator new(truth_bytes_), n * sizeof(T)); /* LEAK reachable */
        return static_cast<T *>(p);
    }
    void deallocate(T *p, size_t)
    {
        truth_gone(p);
        operator delete(p);
    }
    template <class U> bool operator==(const Noting<U> &) const
    {
        return true;
    }
    template <class U> bool operator!=(const Noting<U> &) const
    {
        return false;
    }
};

typedef std::map<int, int, std::less<int>, Noting<std::pair<const int, int>>> Seen;
static Seen *seen;

static void step(int number)
{
    std::vector<int, Noting<int>> values;
    for (int i = 0; i < 100; i++)
        values.push_back(i);
    if (!seen)
        seen = NEW(Seen); /* HELD */
    (*seen)[number] = static_cast<int>(values.size());
}

TRUTH_MAIN(step)
