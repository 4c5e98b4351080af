/* Call sites of traces. See trace_names.h. */
#include "daemon/trace_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "site/symbols.h"
#include "trace/own_line.h"

/* ---- names ---- */

/* A file without a build-id is named only by what the running process has mapped. */
static void frame_name(const struct trace_names *names, uint32_t site, unsigned number,
                       const struct trace_frame *frame)
{
    const struct trace_line *known;
    const struct symbol_frame *found;
    struct trace_line lines[TRACE_LINES_MAX];
    size_t n = 0;
    if (!names->symbols || !frame->module || frame->module->path[0] != '/' ||
        trace_frame_lines(frame, &known) > 0 || (!frame->module->build_id_len && !names->pid) ||
        (names->goes_on && !names->goes_on(names->context)))
        return;
    struct symbol_query query = {
        .path = frame->module->path,
        .build_id = frame->module->build_id,
        .build_id_len = frame->module->build_id_len,
        .offset = frame->offset,
        .pid = names->pid,
        .is_return_address = true,
    };
    if (symbolizer_resolve(names->symbols, &query, &found, &n) < 0)
        return;
    n = n < TRACE_LINES_MAX ? n : TRACE_LINES_MAX;
    for (size_t i = 0; i < n; i++)
        lines[i] = (struct trace_line){.function = found[i].function ? found[i].function : "",
                                       .file = found[i].file ? found[i].file : "",
                                       .line = found[i].line};
    if (n > 0)
        (void)trace_sites_name(names->sites, site, number, lines, n);
}

static const struct trace_site *site_name(const struct trace_names *names, uint32_t number)
{
    const struct trace_site *site = number ? trace_sites_get(names->sites, number) : NULL;
    for (unsigned i = 0; site && i < site->n_frames; i++)
        frame_name(names, number, i, &site->frames[i]);
    return site;
}

static void line_words(const struct trace_frame *frame, const struct trace_line *line,
                       char text[static TRACE_NAMES_TEXT_MAX])
{
    const char *module = frame->module ? trace_base_name(frame->module->path) : "?";
    if (line && *line->file)
        snprintf(text, TRACE_NAMES_TEXT_MAX, "%s:%u%s%s", trace_base_name(line->file), line->line,
                 *line->function ? " in " : "", line->function);
    else if (line && *line->function)
        snprintf(text, TRACE_NAMES_TEXT_MAX, "%s (%s)", line->function, module);
    else if (frame->module)
        snprintf(text, TRACE_NAMES_TEXT_MAX, "%s+0x%" PRIx64, module, frame->offset);
    else
        snprintf(text, TRACE_NAMES_TEXT_MAX, "0x%" PRIx64, frame->offset);
}

static const struct trace_frame *chosen(const struct trace_site *site,
                                        const struct trace_line **ret_line)
{
    int i = site ? trace_frame_choose(site) : -1;
    *ret_line = NULL;
    if (i < 0)
        return NULL;
    *ret_line = trace_frame_line(&site->frames[i]);
    return &site->frames[i];
}

const char *trace_names_label(const struct trace_names *names, uint32_t number,
                              char text[static TRACE_NAMES_TEXT_MAX])
{
    const struct trace_line *line;
    const struct trace_frame *frame = chosen(site_name(names, number), &line);
    if (frame)
        line_words(frame, line, text);
    else
        snprintf(text, TRACE_NAMES_TEXT_MAX, "unknown");
    return text;
}

bool trace_names_outer(const struct trace_names *names, uint32_t number,
                       char text[static TRACE_NAMES_TEXT_MAX])
{
    const struct trace_line *line, *lines;
    const struct trace_site *site = site_name(names, number);
    const struct trace_frame *frame = chosen(site, &line);
    int caller = frame ? trace_frame_caller(site, (int)(frame - site->frames)) : -1;
    if (caller < 0 || !line || !*line->function)
        return false;
    const struct trace_frame *outer = &site->frames[caller];
    line_words(outer, trace_frame_lines(outer, &lines) ? &lines[0] : NULL, text);
    size_t used = strlen(text);
    snprintf(text + used, TRACE_NAMES_TEXT_MAX - used, " → %s", line->function);
    return true;
}

static void stack_json(const struct trace_site *site, struct json *json)
{
    char text[TRACE_NAMES_TEXT_MAX];
    json_key(json, "stack");
    json_array_begin(json);
    for (unsigned i = 0; site && i < site->n_frames; i++) {
        const struct trace_frame *frame = &site->frames[i];
        const struct trace_line *lines;
        size_t n = trace_frame_lines(frame, &lines);
        for (size_t k = 0; k < (n ? n : 1); k++) {
            line_words(frame, n ? &lines[k] : NULL, text);
            json_string(json, text);
        }
    }
    json_array_end(json);
}

void trace_names_json(const struct trace_names *names, uint32_t number, struct json *json)
{
    char text[TRACE_NAMES_TEXT_MAX];
    const struct trace_site *site = site_name(names, number);
    const struct trace_line *line;
    const struct trace_frame *frame = chosen(site, &line);
    json_object_begin(json);
    json_field_u64(json, "site", number);
    if (frame)
        line_words(frame, line, text);
    json_field_string(json, "text", frame ? text : "unknown");
    json_field_string(json, "function", line && *line->function ? line->function : NULL);
    json_field_string(json, "source_file", line && *line->file ? line->file : NULL);
    json_key(json, "line");
    if (line && line->line)
        json_u64(json, line->line);
    else
        json_null(json);
    json_field_string(json, "module", frame && frame->module ? frame->module->path : NULL);
    stack_json(site, json);
    json_object_end(json);
}
