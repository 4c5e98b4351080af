/* A question about the dead in the native protocol. Apart from exited_source.c, which reads the answer: the names of
 * jansson and of our own writer fall together. */
#include <errno.h>

#include "base/buffer.h"
#include "base/json.h"
#include "cli/exited_source.h"
#include "query/query.h"

int exited_request_write(const struct query_spec *spec, struct buffer *out)
{
    const struct {
        const char *key, *text;
    } parts[] = {{"table", spec->table},
                 {"by", spec->by},
                 {"where", spec->where},
                 {"show", spec->show},
                 {"sort", spec->sort}};
    struct json json;
    json_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "query");
    json_object_begin(&json);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (parts[i].text)
            json_field_string(&json, parts[i].key, parts[i].text);
    if (spec->limit)
        json_field_u64(&json, "limit", spec->limit);
    json_field_bool(&json, "partial", true);
    json_object_end(&json);
    json_object_end(&json);
    return json_finish(&json);
}
