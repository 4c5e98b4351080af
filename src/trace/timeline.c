/* Live bytes by holder over time. See timeline.h. */
#include "trace/timeline.h"

#include <errno.h>
#include <stdlib.h>

#define STEP_NS UINT64_C(1000000) /* the first length of a slot */

int timeline_init(struct timeline *t)
{
    *t = (struct timeline){.step_ns = STEP_NS};
    t->lines[0] = calloc(1, sizeof(*t->lines[0]));
    t->device = calloc(1, sizeof(*t->device));
    if (!t->lines[0] || !t->device) {
        timeline_release(t);
        return -ENOMEM;
    }
    t->n_lines = 1;
    return 0;
}

void timeline_release(struct timeline *t)
{
    for (size_t i = 0; i < sizeof(t->lines) / sizeof(t->lines[0]); i++)
        free(t->lines[i]);
    free(t->device);
    *t = (struct timeline){0};
}

static void line_fill(struct timeline_line *line, uint32_t slot)
{
    while (line->filled < slot) {
        line->filled++;
        line->last[line->filled] = line->peak[line->filled] = line->value;
    }
}

static void line_set(struct timeline_line *line, uint32_t slot, uint64_t value)
{
    line_fill(line, slot);
    line->value = value;
    line->last[slot] = value;
    if (value > line->peak[slot])
        line->peak[slot] = value;
    if (value > line->peak_ever)
        line->peak_ever = value;
}

static void line_halve(struct timeline_line *line, uint32_t slot)
{
    line_fill(line, slot);
    for (uint32_t i = 0; i <= slot / 2; i++) {
        uint32_t a = 2 * i, b = 2 * i + 1 <= slot ? 2 * i + 1 : 2 * i;
        line->last[i] = line->last[b];
        line->peak[i] = line->peak[a] > line->peak[b] ? line->peak[a] : line->peak[b];
    }
    line->filled = slot / 2;
}

static void halve(struct timeline *t)
{
    for (uint32_t i = 0; i < t->n_lines; i++)
        line_halve(t->lines[i], t->slot);
    line_halve(t->device, t->slot);
    t->slot /= 2;
    t->step_ns *= 2;
}

void timeline_advance(struct timeline *t, uint64_t now_ns)
{
    if (t->start_ns == 0) {
        t->start_ns = now_ns ? now_ns : 1;
        t->slot_end_ns = t->start_ns + t->step_ns;
    }
    if (now_ns < t->slot_end_ns)
        return;
    uint64_t passed = now_ns - t->start_ns;
    while (passed / t->step_ns >= TRACE_TIMELINE_SLOTS)
        halve(t);
    t->slot = (uint32_t)(passed / t->step_ns);
    /* Saturates: times may be anything up to 2^64. */
    if (__builtin_add_overflow(t->start_ns, (uint64_t)(t->slot + 1) * t->step_ns, &t->slot_end_ns))
        t->slot_end_ns = UINT64_MAX;
}

struct timeline_line *timeline_line_add(struct timeline *t, uint32_t holder)
{
    if (t->n_lines == 1 + TRACE_TIMELINE_HOLDERS)
        return NULL;
    struct timeline_line *line = calloc(1, sizeof(*line));
    if (!line)
        return NULL;
    line->holder = holder;
    t->lines[t->n_lines++] = line;
    return line;
}

/* Add the past of a line to that of all others, and empty it. */
static void line_dissolve(struct timeline *t, struct timeline_line *line)
{
    struct timeline_line *other = t->lines[0];
    line_fill(line, t->slot);
    line_fill(other, t->slot);
    for (uint32_t i = 0; i <= t->slot; i++) {
        other->last[i] += line->last[i];
        other->peak[i] += line->peak[i];
        if (other->peak[i] > other->peak_ever)
            other->peak_ever = other->peak[i];
    }
    other->value += line->value;
    *line = (struct timeline_line){0};
}

/* The line that `holder` gets, or 0. */
static uint8_t line_win(struct timeline *t, uint32_t holder, uint64_t value, uint32_t *ret_loser)
{
    if (timeline_line_add(t, holder))
        return (uint8_t)(t->n_lines - 1);
    uint8_t least = 0;
    if (value / 2 <= t->least_peak)
        return 0;
    for (uint32_t i = 1; i < t->n_lines; i++)
        if (!least || t->lines[i]->peak_ever < t->lines[least]->peak_ever)
            least = (uint8_t)i;
    if (!least)
        return 0;
    t->least_peak = t->lines[least]->peak_ever;
    if (value / 2 <= t->least_peak)
        return 0;
    *ret_loser = t->lines[least]->holder;
    line_dissolve(t, t->lines[least]);
    t->lines[least]->holder = holder;
    t->least_peak = 0;
    return least;
}

uint32_t timeline_update(struct timeline *t, uint32_t holder, uint8_t *line, uint64_t before,
                         uint64_t value)
{
    uint32_t loser = 0;
    if (*line == 0 && value > before) {
        *line = line_win(t, holder, value, &loser);
        if (*line) {
            /* What it held is no longer among the others. */
            line_set(t->lines[0], t->slot, t->lines[0]->value - before);
            line_set(t->lines[*line], t->slot, before);
        }
    }
    struct timeline_line *to = t->lines[*line];
    line_set(to, t->slot, to->value - before + value);
    return loser;
}

void timeline_device(struct timeline *t, uint64_t value)
{
    line_set(t->device, t->slot, value);
}

void timeline_fill(struct timeline *t)
{
    for (uint32_t i = 0; i < t->n_lines; i++)
        line_fill(t->lines[i], t->slot);
    line_fill(t->device, t->slot);
}
