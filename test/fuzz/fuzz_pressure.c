/* What /proc says about memory, which in a container may be anybody's words, and a pressure word that is no daemon's. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "book/cgroup.h"
#include "book/lines.h"
#include "book/pressure_level.h"
#include "book/pressure_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct lines text_of(const uint8_t *data, size_t size)
{
    return (struct lines){.fd = -1, .data = (const char *)data, .n = size};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pressure_inputs in = {0};
    struct pressure_state state = {0};
    struct lines text = text_of(data, size);
    char path[LINES_PATH_MAX];
    uint64_t us, word;
    bool v1;
    unsigned level;
    struct pressure_stall some, full;
    if (pressure_parse_stall(&text, &some, &full) && (some.avg60 > 10099 || full.avg300 > 10099))
        abort();
    text = text_of(data, size);
    (void)pressure_parse_meminfo(&text, &in);
    text = text_of(data, size);
    if (cgroup_path_parse(&text, path, sizeof(path), &v1) &&
        (path[0] != '/' || !memchr(path, '\0', sizeof(path))))
        abort();
    if (size >= sizeof(in))
        memcpy(&in, data, sizeof(in));
    for (uint64_t second = 1; second < 20; second++)
        pressure_step(&state, &pressure_limits_default, &in, second * UINT64_C(1000000000));
    if (state.level >= PRESSURE_LEVELS)
        abort();
    if (size >= sizeof(word)) {
        memcpy(&word, data, sizeof(word));
        if (pressure_word_level(word, us = word, &level) && level >= PRESSURE_LEVELS)
            abort();
    }
    return 0;
}
