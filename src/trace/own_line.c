/* The line that a call site is known by. See own_line.h. */
#include "trace/own_line.h"

#include <string.h>

#include "nvml/owners.h"

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

/* A line of an installed package, or of the interpreter's own modules. */
static bool is_package(const struct trace_frame *frame)
{
    const struct trace_line *lines;
    const char *file = trace_frame_lines(frame, &lines) > 0 ? lines[0].file : "";
    return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") ||
           strstr(file, "/lib/python") || file[0] == '<';
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

/* A library that many programs use, and whose lines tell little. */
static bool is_known_library(const struct trace_frame *frame)
{
    char name[OWNERS_LIBRARY_MAX];
    const char *base = trace_base_name(frame->module->path);
    if (begins(base, "libpython") || begins(base, "libc.so") || begins(base, "libstdc++") ||
        begins(base, "libffi") || begins(base, "_ctypes"))
        return true;
    return strcmp(owners_library(name, frame->module->path, NULL), base) != 0;
}

int trace_frame_choose(const struct trace_site *site)
{
    int script = -1, caller = -1, own = -1;
    for (int i = 0; i < site->n_frames; i++) {
        const struct trace_frame *frame = &site->frames[i];
        if (trace_frame_is_script(frame)) {
            if (!is_package(frame))
                return i;
            if (script < 0)
                script = i;
            continue;
        }
        if (is_runtime(frame))
            continue;
        if (caller < 0)
            caller = i;
        if (own < 0 && frame->module && !is_known_library(frame))
            own = i;
    }
    int chosen = script >= 0 ? script : own >= 0 ? own : caller;
    return chosen >= 0 ? chosen : site->n_frames > 0 ? 0 : -1;
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
        if (trace_frame_is_script(f) ? !is_package(f)
                                     : !is_runtime(f) && f->module && !is_known_library(f))
            return i;
    }
    return -1;
}
