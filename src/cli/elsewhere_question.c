/* Questions about other nodes as memoird takes them: written by our own JSON writer, whose names and those of jansson, which
 * elsewhere.c reads answers with, fall together. */
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/cluster.h"
#include "query/query.h"

enum { TOKEN_MAX = 4096, OUTPUT_MAX = 64 << 20 };

/* The first line of a file. */
static int token_field(struct json *json, const char *path)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TOKEN_MAX);
    if (!path)
        return COMMAND_OK;
    int r = fs_read_file(path, &text);
    if (r < 0)
        return command_fail("cannot read the token in '%s': %s", path, strerror(-r));
    if (text.data)
        text.data[strcspn(text.data, "\r\n")] = '\0';
    json_field_string(json, "token", buffer_string(&text));
    if (text.data)
        explicit_bzero(text.data, text.len);
    return COMMAND_OK;
}

int elsewhere_question(const struct elsewhere_values *v, const struct query_spec *spec,
                       struct buffer *out)
{
    const struct {
        const char *key, *value;
    } words[] = {
        {"table", spec->table}, {"by", spec->by},     {"where", spec->where},
        {"show", spec->show},   {"sort", spec->sort}, {"node", v->node},
    };
    struct json json;
    json_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "query");
    json_object_begin(&json);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (words[i].value && words[i].value[0])
            json_field_string(&json, words[i].key, words[i].value);
    if (spec->limit)
        json_field_u64(&json, "limit", spec->limit);
    if (!v->node)
        json_field_string(&json, "scope", "cluster");
    if (v->until_s) {
        json_field_u64(&json, "since", v->since_s);
        json_field_u64(&json, "until", v->until_s);
        json_field_u64(&json, "step", v->step_s);
    }
    json_field_bool(&json, "partial", true);
    int r = token_field(&json, v->token_file);
    json_object_end(&json);
    json_object_end(&json);
    int written = json_finish(&json);
    return r != COMMAND_OK ? r : written;
}

int cluster_call_question(const char *node, const char *target, const char *body,
                          const char *token_file, struct buffer *out)
{
    struct json json;
    json_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "call");
    json_object_begin(&json);
    json_field_string(&json, "node", node);
    json_field_string(&json, "method", "POST");
    json_field_string(&json, "target", target);
    json_field_string(&json, "body", body);
    int r = token_field(&json, token_file);
    json_object_end(&json);
    json_object_end(&json);
    int written = json_finish(&json);
    return r != COMMAND_OK ? r : written;
}

int cluster_print_json(const char *text)
{
    struct json json;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    command_json_begin(&json, &out, "memoir.cluster/3");
    json_key(&json, "cluster");
    json_raw(&json, text, strlen(text));
    json_object_end(&json);
    buffer_append_char(&out, '\n');
    int r = json_finish(&json);
    return r < 0 ? r : command_output(&out);
}
