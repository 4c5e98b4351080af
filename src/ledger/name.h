/* What people call a process. */
#pragma once

#include <stddef.h>

/* "train.py" for "/usr/bin/python3 -u train.py", "http.server" for "python3 -m http.server", else the
 * name of the program. `command` has its arguments separated by spaces. Never empty: "?" at worst. */
void ledger_name(const char *exe, const char *comm, const char *command, char *ret_name,
                 size_t size);
