/* The line that a call site is known by. See own_line.h. */
#include "trace/own_line.h"

#include <string.h>

#include "nvml/owners.h"
#include "site/own.h"

const char *trace_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool trace_frame_is_script(const struct trace_frame *frame)
{
    const struct trace_line *lines;
    return !frame->module && trace_frame_lines(frame, &lines) > 0;
}

static bool is_runtime(const struct trace_frame *frame)
{
    const struct trace_line *lines;
    const char *path = frame->module ? frame->module->path : "";
    size_t n = trace_frame_lines(frame, &lines);
    if (frame->module && !*owners_caller(&path, 1))
        return true;
    /* Of a runtime that is linked into the program only names tell. */
    const char *function = n > 0 ? lines[n - 1].function : "";
    return begins(function, "__cudart") || begins(function, "libcudart_static_") ||
           (begins(function, "cuda") && function[4] >= 'A' && function[4] <= 'Z');
}

/* A library that drivers of devices are known to be asked by, wherever it is installed: torch, cuBLAS, NCCL ... */
static bool is_known_library(const struct trace_frame *frame)
{
    char name[OWNERS_LIBRARY_MAX];
    const char *base = trace_base_name(frame->module->path);
    return strcmp(owners_library(name, frame->module->path, NULL), base) != 0;
}

/* Whose code it is, by its best line. */
static enum own_kind kind_of(const struct trace_frame *frame, size_t *ret_line)
{
    const struct trace_line *lines;
    enum own_kind kinds[TRACE_LINES_MAX];
    size_t n = trace_frame_lines(frame, &lines), i = 0;
    const char *module = frame->module ? frame->module->path : NULL;
    do { /* a frame without a name has a kind, too */
        kinds[i] = own_kind(&(struct own_line){.module = module,
                                               .function = n ? lines[i].function : NULL,
                                               .file = n ? lines[i].file : NULL,
                                               .script = trace_frame_is_script(frame)});
    } while (++i < n);
    *ret_line = own_choose(kinds, i);
    enum own_kind kind = kinds[*ret_line];
    if (is_runtime(frame))
        return OWN_ALLOCATOR; /* it hands out the memory */
    if (frame->module && kind < OWN_LIBRARY && is_known_library(frame))
        return OWN_LIBRARY;
    return kind;
}

int trace_frame_choose(const struct trace_site *site)
{
    int chosen = site->n_frames > 0 ? 0 : -1;
    enum own_kind kind = OWN_ALLOCATOR + 1;
    bool chosen_script = false;
    for (int i = 0; i < site->n_frames; i++) {
        bool script = trace_frame_is_script(&site->frames[i]);
        size_t line;
        enum own_kind other = kind_of(&site->frames[i], &line);
        if (own_is_better(kind, chosen_script, other, script)) {
            kind = other;
            chosen = i;
            chosen_script = script;
        }
    }
    return chosen;
}

const struct trace_line *trace_frame_line(const struct trace_frame *frame)
{
    const struct trace_line *lines;
    size_t line;
    if (trace_frame_lines(frame, &lines) == 0)
        return NULL;
    (void)kind_of(frame, &line);
    return &lines[line];
}

const char *trace_site_module(const struct trace_site *site)
{
    for (int i = 0; i < site->n_frames; i++)
        if (site->frames[i].module && !is_runtime(&site->frames[i]))
            return site->frames[i].module->path;
    return "";
}

int trace_frame_caller(const struct trace_site *site, int frame)
{
    for (int i = frame + 1; i < site->n_frames; i++) {
        const struct trace_frame *f = &site->frames[i];
        if (trace_frame_is_script(f) != trace_frame_is_script(&site->frames[frame]))
            continue;
        size_t line;
        if (kind_of(f, &line) == OWN_CODE)
            return i;
    }
    return -1;
}
