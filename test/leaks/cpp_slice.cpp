/* Deleted through a base without a virtual destructor: the derived part's memory stays. */
#include "truth.hpp"

struct Base {
    int kind = 0;
};
struct Derived : Base {
    char *rest;
    Derived()
    {
        rest = NEW_ARRAY(char, 120); /* LEAK */
    }
    ~Derived()
    {
        DELETE_ARRAY(rest);
    }
};

static void step(int number)
{
    Base *base = NEW(Derived);
    base->kind = number;
    truth_gone(base);
    operator delete(static_cast<void *>(base)); /* what `delete base` does, without the warning */
}

TRUTH_MAIN(step)
