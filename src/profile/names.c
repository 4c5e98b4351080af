/* Names for frames. See names.h. */
#include "profile/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "profile/profile.h"
#include "site/symbols.h"

enum { FETCH_MAX = 256 }; /* looked up at once, between two words of progress */

/* What to ask about a module, or false where there is nothing to ask. Without a build-id only a file that is older
 * than the process is the one that ran. */
static bool query_of(const struct profile *p, const struct profile_module *m,
                     struct symbol_query *ret_query)
{
    const char *path = profile_text(p, m->path);
    if (m->kind != PROFILE_MODULE_FILE || path[0] != '/' ||
        (!m->build_id_len && !m->started_real_ns))
        return false;
    *ret_query = (struct symbol_query){
        .path = path,
        .build_id = m->build_id,
        .build_id_len = m->build_id_len,
        .pid = m->pid,
        .map_start = m->map_start,
        .before_s = (int64_t)(m->started_real_ns / NS_PER_S),
        .is_return_address = true,
    };
    return true;
}

void profile_name(struct profile *p, struct symbolizer *symbolizer, uint32_t frame)
{
    struct profile_frame *f = &p->frames[frame];
    const struct profile_module *m = &p->modules[f->module];
    const struct symbol_frame *found;
    struct profile_line lines[PROFILE_LINES_MAX];
    size_t n = 0;
    if (f->looked_up || !symbolizer)
        return;
    struct symbol_query query;
    struct symbol_frame made = {0};
    if (m->kind == PROFILE_MODULE_ADDRESS && f->offset) {
        made.function = symbolizer_made_code(symbolizer, m->pid, f->offset - 1);
        found = &made;
        n = made.function != NULL;
    } else if (query_of(p, m, &query)) {
        query.offset = f->offset;
        if (symbolizer_resolve(symbolizer, &query, &found, &n) < 0)
            n = 0;
    }
    if (n > PROFILE_LINES_MAX)
        n = PROFILE_LINES_MAX;
    for (size_t i = 0; i < n; i++) {
        lines[i] = (struct profile_line){
            .function = found[i].function ? profile_add_string(p, found[i].function) : 0,
            .file = found[i].file ? profile_add_string(p, found[i].file) : 0,
            .line = found[i].line,
        };
    }
    p->frames[frame].function_bytes = n ? found[0].function_bytes : 0;
    profile_set_lines(p, frame, lines, n);
    p->unnamed_frames += n == 0;
}

static int by_place(const void *a, const void *b, void *context)
{
    const struct profile *p = context;
    const struct profile_frame *x = &p->frames[*(const uint32_t *)a];
    const struct profile_frame *y = &p->frames[*(const uint32_t *)b];
    if (x->module != y->module)
        return x->module < y->module ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Mark the frames that are wanted. */
static void choose(const struct profile *p, enum profile_names_which which, bool *wanted)
{
    for (size_t i = 0; i < p->n_sites; i++) {
        const uint32_t *frames = profile_stack(p, &p->sites[i]);
        size_t depth = p->sites[i].n_frames;
        for (size_t k = 0; k < (which == PROFILE_NAMES_ALL ? depth : depth > 0); k++)
            wanted[frames[k]] = true;
    }
}

/* How many of the frames from here on can be looked up at once, which is done. */
static size_t fetch(const struct profile *p, struct symbolizer *symbolizer, const uint32_t *order,
                    size_t n)
{
    uint64_t offsets[FETCH_MAX];
    uint32_t module = p->frames[order[0]].module;
    struct symbol_query query;
    size_t count = 0;
    while (count < n && count < FETCH_MAX && p->frames[order[count]].module == module) {
        offsets[count] = p->frames[order[count]].offset;
        count++;
    }
    if (count > 1 && query_of(p, &p->modules[module], &query))
        symbolizer_prefetch(symbolizer, &query, offsets, count);
    return count;
}

int profile_name_some(struct profile *p, struct symbolizer *symbolizer, const bool *wanted,
                      bool (*progress)(size_t done, size_t all, void *context), void *context)
{
    if (!symbolizer)
        return 0;
    MEMOIR_CLEANUP(freep)
    uint32_t *order = malloc((p->n_frames + 1) * sizeof(*order));
    size_t n = 0;
    if (!order)
        return -ENOMEM;
    for (size_t i = 0; i < p->n_frames; i++)
        if (wanted[i] && !p->frames[i].looked_up)
            order[n++] = (uint32_t)i;
    qsort_r(order, n, sizeof(*order), by_place, p);
    for (size_t i = 0; i < n;) {
        if (progress && !progress(i, n, context))
            return -ECANCELED;
        for (size_t end = i + fetch(p, symbolizer, order + i, n - i); i < end; i++)
            profile_name(p, symbolizer, order[i]);
    }
    if (progress)
        progress(n, n, context);
    return profile_error(p);
}

int profile_name_all(struct profile *p, struct symbolizer *symbolizer,
                     enum profile_names_which which,
                     bool (*progress)(size_t done, size_t all, void *context), void *context)
{
    MEMOIR_CLEANUP(freep)
    bool *wanted = symbolizer ? calloc(p->n_frames + 1, sizeof(*wanted)) : NULL;
    if (!wanted)
        return symbolizer ? -ENOMEM : 0;
    choose(p, which, wanted);
    return profile_name_some(p, symbolizer, wanted, progress, context);
}

const char *profile_module_path(const struct profile *p, uint32_t frame)
{
    return profile_text(p, p->modules[p->frames[frame].module].path);
}

const char *profile_function(const struct profile *p, uint32_t frame, size_t line,
                             char text[static PROFILE_LABEL_MAX])
{
    const struct profile_frame *f = &p->frames[frame];
    const struct profile_module *m = &p->modules[f->module];
    if (line < f->n_lines && p->lines[f->first_line + line].function)
        return profile_text(p, p->lines[f->first_line + line].function);
    if (m->kind == PROFILE_MODULE_FILE)
        snprintf(text, PROFILE_LABEL_MAX, "%s+0x%" PRIx64,
                 profile_base_name(profile_text(p, m->path)), f->offset);
    else if (m->kind == PROFILE_MODULE_ADDRESS)
        snprintf(text, PROFILE_LABEL_MAX, "[JIT]");
    else
        snprintf(text, PROFILE_LABEL_MAX, "[unknown]");
    return text;
}

const char *profile_place(const struct profile *p, uint32_t frame, size_t line,
                          char text[static PROFILE_LABEL_MAX])
{
    const struct profile_frame *f = &p->frames[frame];
    text[0] = '\0';
    if (line >= f->n_lines)
        return text;
    const struct profile_line *l = &p->lines[f->first_line + line];
    if (!l->file)
        return text;
    const char *file = profile_base_name(profile_text(p, l->file));
    if (l->line)
        snprintf(text, PROFILE_LABEL_MAX, "%s:%u", file, l->line);
    else
        snprintf(text, PROFILE_LABEL_MAX, "%s", file);
    return text;
}
