/* NATS's service protocol, so that `nats service ls` shows us; and the server's disconnect events. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/json_read.h"
#include "cluster/internal.h"

static const char service_name[] = "memoir";

static void begin(const struct cluster *cluster, const char *type, struct json *json)
{
    char text[64];
    snprintf(text, sizeof(text), "io.nats.micro.v1.%s_response", type);
    json_object_begin(json);
    json_field_string(json, "type", text);
    json_field_string(json, "name", service_name);
    json_field_string(json, "id", cluster->id);
    json_field_string(json, "version", cluster->version);
    json_key(json, "metadata");
    json_object_begin(json);
    json_field_string(json, "node", cluster->name);
    json_object_end(json);
}

static void endpoint_begin(struct json *json)
{
    json_key(json, "endpoints");
    json_array_begin(json);
    json_object_begin(json);
    json_field_string(json, "name", "query");
    json_field_string(json, "subject", SUBJECT_PREFIX "ask.*");
    json_field_string(json, "queue_group", "");
}

static void endpoint_end(struct json *json)
{
    json_object_end(json);
    json_array_end(json);
}

static void stats(const struct cluster *cluster, struct json *json)
{
    char started[32] = "";
    time_t seconds = (time_t)(cluster->options.started_ns / NS_PER_S);
    struct tm tm;
    const struct cluster_figures *f = &cluster->figures;
    if (gmtime_r(&seconds, &tm))
        strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_field_string(json, "started", started);
    endpoint_begin(json);
    json_field_u64(json, "num_requests", f->questions);
    json_field_u64(json, "num_errors", f->refused);
    json_field_string(json, "last_error", "");
    json_field_u64(json, "processing_time", cluster->busy_ns);
    json_field_u64(json, "average_processing_time", f->answers ? cluster->busy_ns / f->answers : 0);
    endpoint_end(json);
}

bool service_answer(struct cluster *cluster, const char *subject, struct buffer *out)
{
    struct json json;
    if (strncmp(subject, "$SRV.", 5) != 0)
        return false;
    const char *verb = subject + 5;
    size_t len = strcspn(verb, ".");
    bool ping = len == 4 && strncmp(verb, "PING", 4) == 0;
    bool info = len == 4 && strncmp(verb, "INFO", 4) == 0;
    bool figures = len == 5 && strncmp(verb, "STATS", 5) == 0;
    if (!ping && !info && !figures)
        return true;
    json_init(&json, out);
    begin(cluster, ping ? "ping" : info ? "info" : "stats", &json);
    if (info) {
        json_field_string(&json, "description", "memory of this machine's processes");
        endpoint_begin(&json);
        endpoint_end(&json);
    } else if (figures) {
        stats(cluster, &json);
    }
    json_object_end(&json);
    (void)json_finish(&json);
    return true;
}

/* Only the account's name counts, which the server knows: a client chooses its connection's name itself. */
bool service_disconnected(const void *bytes, size_t len, char ret_id[static SUBJECT_ID_CHARS + 1])
{
    struct json_read read;
    struct json_text key, text;
    char user[SUBJECT_ID_CHARS + 2];
    bool found = false;
    json_read_init(&read, bytes, len);
    json_read_object(&read);
    while (json_read_key(&read, &key)) {
        if (!json_text_is(&key, "client") || json_read_peek(&read) != JSON_OBJECT) {
            json_read_skip(&read);
            continue;
        }
        json_read_object(&read);
        while (json_read_key(&read, &key)) {
            if (!json_text_is(&key, "user") || json_read_peek(&read) != JSON_STRING) {
                json_read_skip(&read);
                continue;
            }
            found = json_read_string(&read, &text) &&
                    json_text_copy(&text, user, sizeof(user)) >= 0 && subject_id_valid(user);
        }
    }
    if (json_read_finish(&read) < 0 || !found)
        return false;
    memcpy(ret_id, user, SUBJECT_ID_CHARS + 1);
    return true;
}
