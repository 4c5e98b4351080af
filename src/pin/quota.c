/* quota.c: see quota.h. */
#include "pin/quota.h"

#include "pin/text.h"

enum { CPUS_MAX = 1 << 16 };

unsigned pin_quota_cpus(const char *text)
{
    struct pin_words w = {text, text + strlen(text)};
    uint64_t quota, period;
    if (!pin_word_number(&w, 10, &quota) || !pin_word_number(&w, 10, &period) || period == 0)
        return 0;
    uint64_t cpus = quota / period + (quota % period != 0);
    return cpus == 0 ? 1 : cpus > CPUS_MAX ? CPUS_MAX : (unsigned)cpus;
}
