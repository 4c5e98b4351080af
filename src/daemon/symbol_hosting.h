/* How memoird's symbolizers open files and start their workers: with the rights of the user whose process it is, by the broker. */
#pragma once

#include "site/symbols.h"

struct daemon;

/* For symbolizer_options.host. Borrows `daemon`. Any thread may use what it gives. */
struct symbol_host symbol_hosting(struct daemon *daemon);
