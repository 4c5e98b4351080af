/* Code whose lines and inlining are known to test_site_symbols. Line numbers are set, so that edits
 * above do not move them. */
#include "fixture.h"

volatile int fixture_sink;

/* clang-format off */
#line 101 "fixture_inner.h"
static inline __attribute__((always_inline)) int fixture_inner(int (*fn)(void))
{
    int r = fn();
    fixture_sink++;
    return r;
}
#line 201 "fixture_middle.h"
static inline __attribute__((always_inline)) int fixture_middle(int (*fn)(void))
{
    int r = fixture_inner(fn);
    fixture_sink++;
    return r;
}
#line 301 "fixture.c"
__attribute__((visibility("default"), noinline)) int fixture_outer(int (*fn)(void))
{
    int r = fixture_middle(fn);
    fixture_sink += FIXTURE_VARIANT;
    return r;
}
#line 401 "fixture.c"
__attribute__((visibility("default"), noinline)) int fixture_cpp(int (*fn)(void))
{
    int r = fn();
    fixture_sink++;
    return r;
}
__attribute__((visibility("default"), noinline)) int fixture_rust(int (*fn)(void))
{
    int r = fn();
    fixture_sink++;
    return r;
}
__attribute__((visibility("default"), noinline)) int fixture_rust_old(int (*fn)(void))
{
    int r = fn();
    fixture_sink++;
    return r;
}
/* clang-format on */
