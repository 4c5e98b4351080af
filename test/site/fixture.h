#pragma once

/* Each calls fn and returns what it returns. */
int fixture_outer(int (*fn)(void));
int fixture_cpp(int (*fn)(void)) __asm__("_ZN5space6Keeper4callIiEEvRKSt6vectorIT_SaIS3_EE");
int fixture_rust(int (*fn)(void)) __asm__("_RNvNtNtCs1234_7mycrate3foo3bar3baz");
int fixture_rust_old(int (*fn)(void)) __asm__("_ZN7mycrate3foo3bar17h05af221e174051e9E");
