/* The description of the API without a daemon that serves it: `memoird --print-api`. The dashboard's types are made
 * from it. See api.h. */
#include "daemon/api.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/version.h"
#include "http/builtin.h"

void api_description(struct buffer *out)
{
    size_t n, n_own;
    const struct http_route *routes = api_routes(&n), *own = builtin_routes(&n_own);
    const struct http_route **all = calloc(n + n_own, sizeof(*all));
    if (!all) {
        out->error = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < n; i++)
        all[i] = &routes[i];
    for (size_t i = 0; i < n_own; i++)
        all[n + i] = &own[i];
    struct openapi_source source = {
        .title = "Memoir", .version = MEMOIR_VERSION, .routes = all, .n_routes = n + n_own};
    source.schemas = api_schemas(&source.n_schemas);
    (void)openapi_write(&source, out); /* its error is the buffer's */
    buffer_append_char(out, '\n');
    free(all);
}
