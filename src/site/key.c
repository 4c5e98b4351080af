/* Stable keys of call sites; the definition is part of the book's format. */
#include "site/key.h"

#include <string.h>

#include "base/hash.h"

/* Set apart, so that no path can pose as a build-id. */
#define SEED_BUILD_ID UINT64_C(0x6275696c642d6964)
#define SEED_NAME     UINT64_C(0x6e616d65)
#define SEED_SCRIPT   UINT64_C(0x736372697074)
#define SEED_FUNCTION UINT64_C(0x66756e6374696f6e)

/* A key that ended in unknown code carries this in its lowest bit, so that a run counts once. */
#define ENDED_UNKNOWN UINT64_C(1)

static const char *base_name(const char *path)
{
    const char *name = path;
    for (const char *p = path; *p; p++)
        if (*p == '/' && p[1] != '\0')
            name = p + 1;
    return name;
}

uint64_t site_key_module(const uint8_t *build_id, size_t build_id_len, const char *path)
{
    uint64_t key = SITE_KEY_UNKNOWN;
    if (build_id_len > 0)
        key = hash_bytes(build_id, build_id_len, SEED_BUILD_ID);
    else if (path && path[0] != '\0')
        key = hash_string(base_name(path), SEED_NAME);
    else
        return SITE_KEY_UNKNOWN;
    return key == SITE_KEY_UNKNOWN ? 1 : key;
}

uint64_t site_key_script(const char *file)
{
    uint64_t key = hash_string(base_name(file), SEED_SCRIPT);
    return key == SITE_KEY_UNKNOWN ? 1 : key;
}

uint64_t site_key_line(const char *function, uint32_t line)
{
    return hash_combine(hash_string(function, SEED_FUNCTION), line);
}

uint64_t site_key_add(uint64_t key, uint64_t module_key, uint64_t offset)
{
    if (module_key != SITE_KEY_UNKNOWN)
        return hash_combine(hash_combine(key, module_key), offset) & ~ENDED_UNKNOWN;
    if (key & ENDED_UNKNOWN)
        return key;
    return hash_combine(key, SITE_KEY_UNKNOWN) | ENDED_UNKNOWN;
}

uint64_t site_key_finish(uint64_t key)
{
    key = hash_mix(key);
    return key == 0 ? 1 : key;
}

uint64_t site_key(const struct site_frame *frames, size_t n)
{
    uint64_t key = SITE_KEY_SEED;
    for (size_t i = 0; i < n; i++) {
        const struct site_frame *f = &frames[i];
        key = site_key_add(key, site_key_module(f->build_id, f->build_id_len, f->path), f->offset);
    }
    return site_key_finish(key);
}
