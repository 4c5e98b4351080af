/* Call sites as people know them. See trace_names.h. */
#include "cli/trace_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/term.h"
#include "site/symbols.h"
#include "trace/own_line.h"

enum { ANSWER_TIMEOUT_MS = 5000, RESULTS_BYTES_MAX = 256 << 20, FETCH_MAX = 256 };

struct trace_names {
    struct symbolizer *symbolizer; /* NULL: none */
    struct trace_sites *sites;
    pid_t pid;
    bool here;
    uint64_t since_real_ns;
    uint64_t *places; /* of the chosen frames of all sites, sorted; NULL: not known yet */
    size_t n_places;
};

/* ---- names ---- */

struct trace_names *trace_names_new(void)
{
    struct symbolizer_options options = {.timeout_ms = ANSWER_TIMEOUT_MS,
                                         .results_bytes_max = RESULTS_BYTES_MAX};
    struct trace_names *names = calloc(1, sizeof(*names));
    if (names && symbolizer_new(&options, &names->symbolizer) < 0)
        names->symbolizer = NULL;
    return names;
}

void trace_names_free(struct trace_names *names)
{
    if (!names)
        return;
    symbolizer_free(names->symbolizer);
    free(names->places);
    free(names);
}

void trace_names_set(struct trace_names *names, struct trace_sites *sites, pid_t pid, bool here,
                     uint64_t since_real_ns)
{
    names->sites = sites;
    names->pid = pid;
    names->here = here;
    names->since_real_ns = since_real_ns;
    free(names->places);
    names->places = NULL;
    names->n_places = 0;
}

static bool is_trusted(const struct trace_names *names, const struct trace_module *module)
{
    struct stat info;
    if (module->build_id_len)
        return true;
    uint64_t since_s = names->since_real_ns / NS_PER_S;
    return names->here && stat(module->path, &info) == 0 &&
           (uint64_t)info.st_mtim.tv_sec < since_s && (uint64_t)info.st_ctim.tv_sec < since_s;
}

/* What to ask about a frame; false: nothing, or its names are known. */
static bool query_of(const struct trace_names *names, const struct trace_frame *frame,
                     struct symbol_query *ret_query)
{
    const struct trace_line *known;
    if (!names->symbolizer || !frame->module || frame->module->path[0] != '/' ||
        trace_frame_lines(frame, &known) > 0 || !is_trusted(names, frame->module))
        return false;
    *ret_query = (struct symbol_query){
        .path = frame->module->path,
        .build_id = frame->module->build_id,
        .build_id_len = frame->module->build_id_len,
        .offset = frame->offset,
        .pid = names->pid,
        .is_return_address = true,
    };
    return true;
}

static void frame_name(struct trace_names *names, uint32_t site, unsigned number,
                       const struct trace_frame *frame)
{
    const struct symbol_frame *found;
    struct trace_line lines[TRACE_LINES_MAX];
    struct symbol_query query;
    size_t n = 0;
    if (!query_of(names, frame, &query))
        return;
    int r = symbolizer_resolve(names->symbolizer, &query, &found, &n);
    if (r < 0 && names->pid && names->here) { /* it may have ended meanwhile */
        query.pid = 0;
        r = symbolizer_resolve(names->symbolizer, &query, &found, &n);
    }
    if (r < 0)
        return;
    if (n > TRACE_LINES_MAX)
        n = TRACE_LINES_MAX;
    for (size_t i = 0; i < n; i++)
        lines[i] = (struct trace_line){.function = found[i].function ? found[i].function : "",
                                       .file = found[i].file ? found[i].file : "",
                                       .line = found[i].line};
    if (n > 0)
        trace_sites_name(names->sites, site, number, lines, n);
}

static void site_name(struct trace_names *names, uint32_t number)
{
    const struct trace_site *site = trace_sites_get(names->sites, number);
    for (unsigned i = 0; site && i < site->n_frames; i++)
        frame_name(names, number, i, &site->frames[i]);
}

static int by_code(const void *a, const void *b)
{
    const struct trace_frame *x = *(const struct trace_frame *const *)a;
    const struct trace_frame *y = *(const struct trace_frame *const *)b;
    int order = strcmp(x->module->path, y->module->path);
    return order ? order : (x->offset > y->offset) - (x->offset < y->offset);
}

/* Look up the frames of one module together, which is several times faster than one by one.
 * Returns how many these were. */
static size_t module_fetch(struct trace_names *names, const struct trace_frame **frames, size_t n)
{
    uint64_t offsets[FETCH_MAX];
    struct symbol_query query;
    size_t used = 0, count = 0;
    for (; used < n && count < FETCH_MAX &&
           strcmp(frames[used]->module->path, frames[0]->module->path) == 0;
         used++)
        if (count == 0 || offsets[count - 1] != frames[used]->offset)
            offsets[count++] = frames[used]->offset;
    if (count > 1 && query_of(names, frames[0], &query))
        symbolizer_prefetch(names->symbolizer, &query, offsets, count);
    return used;
}

void trace_names_all(struct trace_names *names)
{
    uint32_t last = trace_sites_last(names->sites);
    const struct trace_frame **frames = NULL;
    struct symbol_query query;
    size_t n = 0, cap = 0;
    for (uint32_t i = 1; i <= last; i++) {
        const struct trace_site *site = trace_sites_get(names->sites, i);
        for (unsigned k = 0; site && k < site->n_frames; k++) {
            if (!query_of(names, &site->frames[k], &query))
                continue;
            if (n == cap) {
                size_t more = cap ? cap * 2 : 1024;
                const struct trace_frame **grown = reallocarray(frames, more, sizeof(*frames));
                if (!grown)
                    break; /* then they are looked up one by one */
                frames = grown;
                cap = more;
            }
            frames[n++] = &site->frames[k];
        }
    }
    if (n)
        qsort(frames, n, sizeof(*frames), by_code);
    for (size_t i = 0; i < n;)
        i += module_fetch(names, frames + i, n - i);
    free(frames);
    for (uint32_t i = 1; i <= last; i++)
        site_name(names, i);
}

static const struct trace_frame *chosen(struct trace_names *names, uint32_t number)
{
    const struct trace_site *site = trace_sites_get(names->sites, number);
    int i = site ? trace_frame_choose(site) : -1;
    if (i >= 0 && !trace_frame_is_script(&site->frames[i])) {
        site_name(names, number); /* names may change the choice */
        i = trace_frame_choose(site);
    }
    return i < 0 ? NULL : &site->frames[i];
}

static void frame_words(const struct trace_frame *frame, char text[static TRACE_LABEL_MAX])
{
    const struct trace_line *line = trace_frame_line(frame);
    if (line && *line->file)
        snprintf(text, TRACE_LABEL_MAX, "%s:%u%s%s", trace_base_name(line->file), line->line,
                 !*line->function ? ""
                 : frame->module  ? " "
                                  : " in ",
                 line->function);
    else if (line && *line->function)
        snprintf(text, TRACE_LABEL_MAX, "%s (%s)", line->function,
                 frame->module ? trace_base_name(frame->module->path) : "?");
    else if (frame->module)
        snprintf(text, TRACE_LABEL_MAX, "%s+0x%" PRIx64, trace_base_name(frame->module->path),
                 frame->offset);
    else
        snprintf(text, TRACE_LABEL_MAX, "0x%" PRIx64, frame->offset);
}

/* ---- lines that several stacks lead to ---- */

/* What the frame is, as a number: its place in a file, or its line. */
static uint64_t place_of(const struct trace_frame *frame)
{
    const struct trace_line *lines;
    const char *text = frame->module ? frame->module->path : "";
    uint64_t hash = UINT64_C(14695981039346656037), number = frame->offset;
    if (trace_frame_is_script(frame) && trace_frame_lines(frame, &lines) > 0) {
        text = lines[0].file;
        number = lines[0].line;
    }
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return (hash ^ number) * UINT64_C(1099511628211);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void places_read(struct trace_names *names)
{
    uint32_t last = trace_sites_last(names->sites);
    names->places = calloc((size_t)last + 1, sizeof(*names->places));
    for (uint32_t i = 1; names->places && i <= last; i++) {
        const struct trace_site *site = trace_sites_get(names->sites, i);
        int frame = site ? trace_frame_choose(site) : -1;
        if (frame >= 0)
            names->places[names->n_places++] = place_of(&site->frames[frame]);
    }
    if (names->n_places)
        qsort(names->places, names->n_places, sizeof(*names->places), by_number);
}

/* Do several sites have this line? */
static bool is_shared(struct trace_names *names, const struct trace_frame *frame)
{
    uint64_t place = place_of(frame);
    if (!names->places)
        places_read(names);
    uint64_t *found =
        names->places ? bsearch(&place, names->places, names->n_places, sizeof(place), by_number)
                      : NULL;
    return found && ((found > names->places && found[-1] == place) ||
                     (found + 1 < names->places + names->n_places && found[1] == place));
}

const char *trace_names_label(struct trace_names *names, uint32_t number,
                              char text[static TRACE_LABEL_MAX])
{
    const struct trace_frame *frame = number ? chosen(names, number) : NULL;
    if (!frame) {
        snprintf(text, TRACE_LABEL_MAX, "unknown");
        return text;
    }
    frame_words(frame, text);
    const struct trace_site *site = trace_sites_get(names->sites, number);
    int caller =
        is_shared(names, frame) ? trace_frame_caller(site, (int)(frame - site->frames)) : -1;
    if (caller >= 0) {
        char outer[TRACE_LABEL_MAX];
        size_t used = strlen(text);
        frame_words(&site->frames[caller], outer);
        snprintf(text + used, TRACE_LABEL_MAX - used, " < %s", outer);
    }
    return text;
}

void trace_names_json(struct trace_names *names, uint32_t number, const char *key,
                      struct json *json)
{
    const struct trace_site *site = trace_sites_get(names->sites, number);
    json_key(json, key);
    json_array_begin(json);
    if (site)
        site_name(names, number);
    for (unsigned i = 0; site && i < site->n_frames; i++) {
        const struct trace_frame *frame = &site->frames[i];
        const struct trace_line *lines;
        size_t n = trace_frame_lines(frame, &lines);
        for (size_t k = 0; k < (n ? n : 1); k++) {
            json_object_begin(json);
            json_field_string(json, "function", n && *lines[k].function ? lines[k].function : NULL);
            json_field_string(json, "source_file", n && *lines[k].file ? lines[k].file : NULL);
            if (n && lines[k].line)
                json_field_u64(json, "line", lines[k].line);
            else
                json_field_null(json, "line");
            json_field_string(json, "module", frame->module ? frame->module->path : NULL);
            if (frame->module)
                json_field_u64(json, "offset", frame->offset);
            json_object_end(json);
        }
    }
    json_array_end(json);
}

void trace_names_stack(struct trace_names *names, uint32_t number, unsigned indent,
                       const struct term *term, struct buffer *out)
{
    const struct trace_site *site = trace_sites_get(names->sites, number);
    char text[TRACE_LABEL_MAX];
    if (site)
        site_name(names, number);
    for (unsigned i = 0; site && i < site->n_frames; i++) {
        frame_words(&site->frames[i], text);
        buffer_printf(out, "%*s", (int)indent, "");
        term_append(term, out, text, term->width > indent ? term->width - indent : 0);
        buffer_append_char(out, '\n');
    }
}
