/* What every unit test includes: cmocka with the headers it wants before itself. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* gcc and clang say it differently. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#endif

/* Of random lives: another one each time, and told, so that MEMOIR_TEST_SEED can bring it back. */
static inline unsigned check_seed(void)
{
    const char *text = getenv("MEMOIR_TEST_SEED");
    unsigned seed = text ? (unsigned)atoi(text) : (unsigned)getpid();
    print_message("seed %u\n", seed);
    return seed;
}
