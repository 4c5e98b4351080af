/* Any bytes as a saved profile, packed and not. What decodes is within its bounds, can be grouped, and saved
 * again comes back the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "profile/profile.h"
#include "profile/rows.h"
#include "profile/snapshot.h"

enum { LIMIT = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_bounds(const struct profile *p)
{
    for (size_t i = 0; i < p->n_frames; i++)
        if (p->frames[i].module >= p->n_modules ||
            p->frames[i].first_line + p->frames[i].n_lines > p->n_lines)
            abort();
    for (size_t i = 0; i < p->n_sites; i++) {
        if (p->sites[i].account >= p->n_accounts ||
            p->sites[i].first_frame + p->sites[i].n_frames > p->n_stacks)
            abort();
        for (size_t k = 0; k < p->sites[i].n_frames; k++)
            if (profile_stack(p, &p->sites[i])[k] >= p->n_frames)
                abort();
    }
}

static void check_rows(struct profile *p)
{
    profile_keys(p, p);
    for (int by = ROWS_BY_CALLER; by <= ROWS_BY_DEVICE; by++) {
        struct rows rows = {0};
        struct rows_filter filter = {.by = (enum rows_by)by};
        if (rows_add(&rows, p, &filter, true) < 0 || rows_add(&rows, p, &filter, false) < 0 ||
            memcmp(&rows.now, &rows.before, sizeof(rows.now)) != 0)
            abort();
        rows_sort(&rows, ROWS_LIVE, true);
        rows_release(&rows);
    }
}

static void check(struct profile *p)
{
    struct buffer once = BUFFER_INIT(LIMIT), twice = BUFFER_INIT(LIMIT);
    struct profile *back = NULL;
    check_bounds(p);
    check_rows(p);
    if (snapshot_encode_plain(p, &once) < 0 ||
        snapshot_decode_plain(once.data, once.len, &back) < 0 ||
        snapshot_encode_plain(back, &twice) < 0 || once.len != twice.len ||
        memcmp(once.data, twice.data, once.len) != 0)
        abort();
    buffer_release(&once);
    buffer_release(&twice);
    profile_free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile *p = NULL;
    if (snapshot_decode(data, size, &p) == 0) {
        check(p);
        profile_free(p);
    }
    p = NULL;
    if (snapshot_decode_plain(data, size, &p) == 0) {
        check(p);
        profile_free(p);
    }
    return 0;
}
