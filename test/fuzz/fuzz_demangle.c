/* Names of functions come from files of strangers: their readable form fits into what is given for it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "site/demangle.h"
#include "site/own.h"
#include "site/short_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const char *name, size_t room)
{
    char *out = malloc(room);
    if (!out)
        return;
    size_t n = demangle(name, out, room);
    if (n >= room || (n > 0 && strlen(out) != n))
        abort();
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *name = size ? malloc(size) : NULL;
    if (!name)
        return 0;
    memcpy(name, data + 1, size - 1);
    name[size - 1] = '\0';
    look(name, 2 + data[0] % 64);
    look(name, DEMANGLE_OUTPUT_MAX);
    char text[SHORT_NAME_MAX];
    const char *shorter = short_name(name, text);
    if (shorter != name && strlen(shorter) >= SHORT_NAME_MAX)
        abort();
    (void)own_kind(&(struct own_line){.module = name, .function = name, .file = name});
    free(name);
    return 0;
}
