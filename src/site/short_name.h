/* Names of functions as people say them. */
#pragma once

#include <stddef.h>

enum { SHORT_NAME_MAX = 512 };

/* "cache::Table<…>::insert" of "void cache::Table<std::string, int>::insert<int>(int&&) const": without the type that it
 * returns, its arguments, those of templates (their place is kept), and the hash at the end of a Rust name. Gives `out`, or
 * `name` itself where there is nothing to shorten. Longer names are cut. */
const char *short_name(const char *name, char out[static SHORT_NAME_MAX]);
