/* profile_fixture.h: small profiles made by hand, for the tests of src/profile. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "check.h"
#include "profile/profile.h"

static inline uint32_t fixture_module(struct profile *p, const char *path, const char *build_id)
{
    struct profile_module m = {
        .kind = PROFILE_MODULE_FILE,
        .path = profile_add_string(p, path),
        .build_id_len = (uint8_t)strlen(build_id),
        .bias = 0x500000,
        .map_start = 0x500000,
        .map_end = 0x600000,
    };
    memcpy(m.build_id, build_id, strlen(build_id));
    return profile_add_module(p, &m);
}

/* A frame with a name; NULL: without. */
static inline uint32_t fixture_frame(struct profile *p, uint32_t module, uint64_t offset,
                                     const char *function, const char *file, uint32_t line)
{
    uint32_t frame = profile_add_frame(p, module, offset);
    struct profile_line l = {
        .function = function ? profile_add_string(p, function) : 0,
        .file = file ? profile_add_string(p, file) : 0,
        .line = line,
    };
    if (!p->frames[frame].looked_up)
        profile_set_lines(p, frame, &l, function || file);
    return frame;
}

static inline uint32_t fixture_heap(struct profile *p)
{
    return profile_add_account(p, &(struct profile_account){.space = MEMOIR_SPACE_HEAP,
                                                            .name = profile_add_string(p, "heap"),
                                                            .ordinal = -1});
}

static inline uint32_t fixture_dram(struct profile *p, int ordinal, const char *uid)
{
    return profile_add_account(p, &(struct profile_account){
                                      .space = MEMOIR_SPACE_DRAM,
                                      .name = profile_add_string(p, "dram"),
                                      .has_device = true,
                                      .ordinal = ordinal,
                                      .device_name = profile_add_string(p, "Card"),
                                      .device_uid = profile_add_string(p, uid),
                                  });
}

struct fixture_site {
    uint32_t account;
    unsigned flags;
    uint64_t live_bytes, live_blocks, alloc_bytes, alloc_blocks;
    uint64_t first_seen_ns;
    uint32_t frames[8];
    size_t n;
};

static inline uint32_t fixture_site(struct profile *p, struct fixture_site s)
{
    struct profile_site site = {
        .account = s.account,
        .flags = (uint16_t)s.flags,
        .first_seen_ns = s.first_seen_ns,
        .figures = {s.live_bytes, s.live_blocks, s.alloc_bytes, s.alloc_blocks},
    };
    return profile_add_site(p, &site, s.frames, s.n);
}

/* A program of three functions: main calls left and right, both call ask; heap and device memory. */
static inline struct profile *fixture_program(const char *build_id, uint64_t shift)
{
    struct profile *p = profile_new();
    assert_non_null(p);
    uint32_t program = fixture_module(p, "/usr/bin/program", build_id);
    uint32_t libc = fixture_module(p, "/lib/libc.so.6", "libc-build-id");
    uint32_t ask = fixture_frame(p, program, 0x1000 + shift, "ask", "/src/ask.c", 10);
    uint32_t left = fixture_frame(p, program, 0x2000 + shift, "left", "/src/paths.c", 20);
    uint32_t right = fixture_frame(p, program, 0x3000 + shift, "right", "/src/paths.c", 30);
    uint32_t main_ = fixture_frame(p, program, 0x4000 + shift, "main", "/src/main.c", 40);
    uint32_t start = fixture_frame(p, libc, 0x27000, "__libc_start_main", NULL, 0);
    uint32_t heap = fixture_heap(p), dram = fixture_dram(p, 0, "CARD-0");
    p->pid = 4242;
    p->processes = 1;
    p->program = profile_add_string(p, "program");
    p->command = profile_add_string(p, "program --fast");
    p->taken_real_ns = UINT64_C(1700000000000000000);
    fixture_site(
        p, (struct fixture_site){heap, 0, 1000, 2, 3000, 5, 100, {ask, left, main_, start}, 4});
    fixture_site(p,
                 (struct fixture_site){heap, 0, 500, 1, 500, 1, 90, {ask, right, main_, start}, 4});
    fixture_site(p, (struct fixture_site){dram, 0, 4096, 1, 8192, 2, 80, {right, main_, start}, 3});
    fixture_site(p, (struct fixture_site){heap, 0, 0, 0, 700, 7, 70, {main_, start}, 2});
    assert_int_equal(profile_error(p), 0);
    return p;
}
