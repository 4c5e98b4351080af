#pragma once
static inline unsigned pressure_level(void)
{
    return 0;
}
