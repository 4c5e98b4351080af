/* Makes the first inputs of fuzz_snapshot anew, after a change of the format: seed_snapshot corpus/snapshot */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "profile/profile.h"
#include "profile/snapshot.h"

static void save(const char *dir, const char *name, const struct buffer *bytes)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    if (!file || fwrite(bytes->data, 1, bytes->len, file) != bytes->len || fclose(file) != 0)
        exit(1);
}

static void both(const char *dir, const char *name, const struct profile *p)
{
    struct buffer out = BUFFER_INIT(1 << 20);
    char file[64];
    snprintf(file, sizeof(file), "%s-plain", name);
    snapshot_encode_plain(p, &out);
    save(dir, file, &out);
    buffer_reset(&out);
    snapshot_encode(p, &out);
    save(dir, name, &out);
    buffer_release(&out);
}

int main(int argc, char **argv)
{
    struct profile *p = profile_new();
    uint32_t frames[4];
    if (argc != 2 || !p)
        return 2;
    both(argv[1], "empty", p);
    struct profile_module modules[] = {
        {.kind = PROFILE_MODULE_FILE, .path = profile_add_string(p, "/bin/x"), .build_id_len = 4},
        {.kind = PROFILE_MODULE_ADDRESS},
        {.kind = PROFILE_MODULE_UNKNOWN},
        {.kind = PROFILE_MODULE_SCRIPT, .path = profile_add_string(p, "python")},
    };
    for (size_t i = 0; i < 4; i++) {
        struct profile_line lines[2] = {
            {profile_add_string(p, "inner"), profile_add_string(p, "a.c"), (uint32_t)i},
            {profile_add_string(p, "outer"), 0, 0},
        };
        frames[i] = profile_add_frame(p, profile_add_module(p, &modules[i]), i << (i * 16));
        profile_set_lines(p, frames[i], lines, i % 3);
    }
    struct profile_account accounts[] = {
        {.space = MEMOIR_SPACE_HEAP, .name = profile_add_string(p, "heap"), .ordinal = -1},
        {.space = MEMOIR_SPACE_DRAM,
         .has_device = true,
         .ordinal = 1,
         .device_uid = profile_add_string(p, "CARD")},
    };
    for (unsigned i = 0; i < 8; i++) {
        struct profile_site site = {
            .account = profile_add_account(p, &accounts[i % 2]),
            .flags = (uint16_t)i,
            .first_seen_ns = i,
            .figures = {i * 100, i, i * 1000, i * 10},
        };
        profile_add_site(p, &site, frames + i % 4, 4 - i % 4);
    }
    p->pid = 42;
    p->processes = 1;
    p->program = profile_add_string(p, "x");
    both(argv[1], "sites", p);
    profile_free(p);
    return 0;
}
