/* The other ways to say new: without throwing, with an alignment, sized delete. */
#include "truth.hpp"

struct alignas(128) Wide {
    char bytes[256];
};

static void step(int number)
{
    int *quiet =
        static_cast<int *>(TRUTH_OF(operator new(truth_bytes_, std::nothrow), 20)); /* LEAK */
    *quiet = number;
    Wide *wide = static_cast<Wide *>(
        TRUTH_OF(operator new(truth_bytes_, std::align_val_t(128)), sizeof(Wide)));
    wide->bytes[0] = 1;
    truth_gone(wide);
    operator delete(wide, std::align_val_t(128));
    void *sized = TRUTH_OF(operator new(truth_bytes_), 33);
    truth_gone(sized);
    operator delete(sized, static_cast<size_t>(33));
}

TRUTH_MAIN(step)
