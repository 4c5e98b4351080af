/* A name for every frame. See labels.h. */
#include "profile/labels.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "profile/names.h"

int labels_take(struct profile *p, struct labels *ret_labels)
{
    MEMOIR_CLEANUP(labels_release)
    struct labels labels = {
        .list = calloc(p->n_lines + p->n_frames + 1, sizeof(*labels.list)),
        .first = calloc(p->n_frames + 1, sizeof(*labels.first)),
    };
    char text[PROFILE_LABEL_MAX];
    uint32_t n = 0;
    if (!labels.list || !labels.first)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->n_frames; i++) {
        size_t lines = p->frames[i].n_lines;
        labels.first[i] = n;
        for (size_t k = 0; k < (lines ? lines : 1); k++) {
            if (lines)
                labels.list[n] = p->lines[p->frames[i].first_line + k];
            if (!labels.list[n].function)
                labels.list[n].function = profile_add_string(p, profile_function(p, i, k, text));
            n++;
        }
    }
    labels.first[p->n_frames] = n;
    int r = profile_error(p);
    if (r < 0)
        return r;
    *ret_labels = labels;
    labels = (struct labels){0};
    return 0;
}

void labels_release(struct labels *labels)
{
    free(labels->list);
    free(labels->first);
    *labels = (struct labels){0};
}
