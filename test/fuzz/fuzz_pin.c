/* What a process shows about its pinning, histories and calibrations are files of strangers:
 * whatever is in them, numbers stay within bounds and texts end. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pin/cost_file.h"
#include "pin/label.h"
#include "pin/state_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void look(struct pin_state *s)
{
    char text[PIN_LABEL_MAX];
    demand(s->n_sites <= PIN_STATE_SITES && s->n_modules <= PIN_STATE_MODULES);
    for (uint32_t i = 0; i < s->n_sites; i++) {
        demand(s->site[i].n_frames <= PIN_STATE_FRAMES);
        demand(strlen(pin_label(NULL, s, i, 0, text)) < sizeof(text));
    }
    for (uint32_t i = 0; i < PIN_STATE_BLOCKS; i++)
        demand(s->block[i].site < (s->n_sites ? s->n_sites : 1));
    free(s);
}

/* The bytes lie over a file that is valid otherwise, from an offset that they begin with. */
static void state(const uint8_t *data, size_t size)
{
    struct pin_state *file = calloc(1, sizeof(*file)), *read = NULL;
    uint32_t offset;
    if (file && size > sizeof(offset)) {
        memcpy(&offset, data, sizeof(offset));
        file->magic = PIN_STATE_MAGIC;
        file->version = PIN_STATE_VERSION;
        file->bytes = sizeof(*file);
        file->n_sites = file->n_modules = 3;
        offset %= (uint32_t)sizeof(*file);
        size_t n = size - sizeof(offset);
        memcpy((char *)file + offset, data + sizeof(offset),
               n < sizeof(*file) - offset ? n : sizeof(*file) - offset);
        if (pin_state_check(file, sizeof(*file), 0, &read) == 0)
            look(read);
    }
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pin_state *read = NULL;
    struct pin_cost cost;
    const struct cost_machine machine = {.uuid = "0123456789abcde", .driver = 7};
    char *bytes =
        malloc(size ? size : 1); /* exactly, so that a sanitizer sees what is read beyond */
    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    if (pin_history_parse(bytes, size, &read) == 0)
        look(read);
    read = NULL;
    demand(pin_state_check(bytes, size, 0, &read) < 0 || size == sizeof(struct pin_state));
    free(read);
    if (cost_file_parse(&machine, bytes, size, &cost))
        demand(pin_cost_valid(&cost));
    free(bytes);
    state(data, size);
    return 0;
}
