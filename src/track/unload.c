/* unload.c: dlclose(), which makes callers that we know unknown. */
#include <dlfcn.h>

#include "track/wrap.h"

/* Code that called us may be gone afterwards, and other code be in its place. */
EXPORT int dlclose(void *handle)
{
    int r = real_dlclose(handle);
    fetch_add_relaxed(&track_closes, 1);
    struct track_root *root = &track_page.root;
    if (load_relaxed(&root->pass))
        fetch_add_relaxed(&root->pass, UINT64_C(1) << 48);
    if (load_relaxed(&root->glibc_pass))
        fetch_add_relaxed(&root->glibc_pass, UINT64_C(1) << 48);
    if (load_relaxed(&root->near_pass))
        fetch_add_relaxed(&root->near_pass, UINT64_C(1) << 48);
    if (load_relaxed(&root->sized_pass))
        fetch_add_relaxed(&root->sized_pass, UINT64_C(1) << 48);
    return r;
}
