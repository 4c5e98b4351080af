/* label.c: see label.h. */
#include "pin/label.h"

#include <stdio.h>
#include <string.h>

#include "site/symbols.h"

/* Libraries that allocate for others. */
static bool is_library(const char *path)
{
    static const char *const known[] = {
        "libc.so", "libc10",    "libtorch",          "libstdc++", "libpython", "libcuda", "libm.so",
        "libgcc",  "libcublas", "_multiarray_umath", "libmemoir", "ld-linux",  NULL};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; known[i]; i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0)
            return true;
    return false;
}

static void frame_label(struct symbolizer *names, pid_t pid, const struct pin_state *s,
                        const struct pin_state_site *site, unsigned frame,
                        char text[static PIN_LABEL_MAX])
{
    const struct pin_state_module *m = &s->module[site->frame[frame].module];
    const struct symbol_frame *frames = NULL;
    size_t n = 0;
    struct symbol_query query = {.path = m->path,
                                 .build_id = m->build_id,
                                 .build_id_len = m->build_id_len,
                                 .offset = site->frame[frame].offset,

                                 .pid = pid,
                                 .is_return_address = true};
    const char *slash = strrchr(m->path, '/'), *module = slash ? slash + 1 : m->path;
    if (names && m->path[0] && symbolizer_resolve(names, &query, &frames, &n) == 0 && n > 0 &&
        frames[0].function) {
        const char *file = frames[0].file ? strrchr(frames[0].file, '/') : NULL;
        if (frames[0].file && frames[0].line)
            snprintf(text, PIN_LABEL_MAX, "%s:%u %s", file ? file + 1 : frames[0].file,
                     frames[0].line, frames[0].function);
        else
            snprintf(text, PIN_LABEL_MAX, "%s %s", module, frames[0].function);
    } else {
        snprintf(text, PIN_LABEL_MAX, "%s+0x%llx", *module ? module : "unknown",
                 (unsigned long long)site->frame[frame].offset);
    }
}

const char *pin_label(struct symbolizer *names, const struct pin_state *s, uint32_t number,
                      pid_t pid, char text[static PIN_LABEL_MAX])
{
    static_assert(sizeof(s->site[0].script) <= PIN_LABEL_MAX, "a line of Python fits");
    if (number == 0 || number >= s->n_sites ||
        (s->site[number].n_frames == 0 && !s->site[number].script[0]))
        return strcpy(text, "unknown");
    const struct pin_state_site *site = &s->site[number];
    if (site->script[0])
        return strcpy(text, site->script);
    unsigned chosen = 0;
    while (chosen < site->n_frames && is_library(s->module[site->frame[chosen].module].path))
        chosen++;
    frame_label(names, pid, s, site, chosen < site->n_frames ? chosen : 0, text);
    return text;
}
