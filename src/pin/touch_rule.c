/* touch_rule.c: the decision of touch.h. */
#include "pin/touch.h"

bool touch_is_prefix(uint64_t places)
{
    return (places & (places + 1)) == 0;
}

bool touch_in_order(unsigned first, uint64_t places)
{
    const unsigned all = (1u << (TOUCH_FIRST / TOUCH_PAGE)) - 1;
    return (first & all) == all && (places & 1) && touch_is_prefix(places);
}

uint64_t touch_until(uint64_t front, uint64_t bytes)
{
    if (front >= bytes || bytes - front <= TOUCH_AHEAD)
        return bytes;
    return (front + TOUCH_AHEAD) / TOUCH_PAGE * TOUCH_PAGE;
}
