/* Two objects that share each other: neither count ever falls to nothing. */
#include <memory>

#include "truth.hpp"

template <class T> struct noting {
    using value_type = T;
    noting() = default;
    template <class U> noting(const noting<U> &)
    {
    }
    T *allocate(std::size_t n)
    {
        void *p = TRUTH_OF(operator new(truth_bytes_), n * sizeof(T)); /* LEAK */
        return static_cast<T *>(p);
    }
    void deallocate(T *p, std::size_t)
    {
        truth_gone(p);
        operator delete(static_cast<void *>(p));
    }
    template <class U> bool operator==(const noting<U> &) const
    {
        return true;
    }
    template <class U> bool operator!=(const noting<U> &) const
    {
        return false;
    }
};

struct node {
    std::shared_ptr<node> other;
    std::weak_ptr<node> weak;
    char text[40];
};

static void step(int number)
{
    auto a = std::allocate_shared<node>(noting<node>());
    auto b = std::allocate_shared<node>(noting<node>());
    a->other = b;
    if (number % 2)
        b->other = a; /* lost */
    else
        b->weak = a; /* as it is meant */
}

TRUTH_MAIN(step)
