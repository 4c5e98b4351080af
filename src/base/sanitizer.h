/* Which libraries are the runtime of a sanitizer that stands in front of malloc: gcc's -fsanitize=address, thread and so on, clang's with
 * -shared-libsan. They have to come before every other library that does, or the program ends, or is not checked. (Those that clang makes a
 * part of the program do.) Also for code inside a stranger's process, before anything of the C library may be called. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { SANITIZER_NAME_MAX = 20 };

static const char sanitizer_names[][SANITIZER_NAME_MAX] = {
    "libasan.so",       "libhwasan.so",       "liblsan.so",       "libtsan.so",
    "libclang_rt.asan", "libclang_rt.hwasan", "libclang_rt.tsan",
};

/* Is this the file name of one? No more of it is read than SANITIZER_NAME_MAX bytes, or than it has. */
static inline bool sanitizer_is_runtime(const char *name)
{
    for (size_t i = 0; i < sizeof(sanitizer_names) / sizeof(sanitizer_names[0]); i++) {
        const char *wanted = sanitizer_names[i];
        size_t n = 0;
        while (wanted[n] && name[n] == wanted[n])
            n++;
        if (!wanted[n])
            return true;
    }
    return false;
}
