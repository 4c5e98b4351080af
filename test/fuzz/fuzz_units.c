/* Sizes and durations come from command lines and configuration files. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char formatted[UNITS_TEXT_MAX];
    uint64_t value;
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    if (units_parse_bytes(text, &value) == 0)
        units_format_bytes(formatted, value, UNITS_BINARY);
    if (units_parse_duration(text, &value) == 0)
        units_format_duration(formatted, value);
    free(text);
    return 0;
}
