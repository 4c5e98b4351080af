/* Makes the first inputs of fuzz_cluster: seed_cluster corpus/cluster */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buffer.h"
#include "cluster/message.h"
#include "query/query.h"

static void save(const char *dir, const char *name, struct buffer *bytes)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, bytes->data, bytes->len) != (ssize_t)bytes->len)
        perror(path);
    if (fd >= 0)
        close(fd);
    buffer_reset(bytes);
}

int main(int argc, char **argv)
{
    static const uint8_t proof[MESSAGE_MAC_BYTES], signature[MESSAGE_SIGNATURE_BYTES];
    struct buffer out = BUFFER_INIT(1 << 20), body = BUFFER_INIT(1 << 20);
    struct query *query;
    struct query_result *result;
    struct query_error error;
    if (argc != 2)
        return 2;
    message_write_hello(
        &(struct message_hello){.name = "web", .version = "1.2.3", .interval_ms = 2000}, &out);
    save(argv[1], "hello", &out);
    message_write_hello(
        &(struct message_hello){
            .name = "web", .version = "1.2.3", .interval_ms = 8000, .watch_ms = 2000},
        &out);
    save(argv[1], "hello-watch", &out);
    message_write_bye(&out);
    save(argv[1], "bye", &out);
    message_write_lost("0123456789abcdef0123456789abcdef", &out);
    save(argv[1], "lost", &out);
    message_write_ask(
        &(struct message_ask){.what = MESSAGE_CALL,
                              .deadline_ms = 2000,
                              .rights = {.user = "ann", .expires_ns = 1, .signature = signature},
                              .body = (const uint8_t *)"POST\0/api/v1/processes/1/scan\0",
                              .body_len = 32},
        &out);
    save(argv[1], "ask-signed", &out);
    message_write_ask(&(struct message_ask){.what = MESSAGE_QUERY,
                                            .deadline_ms = 2000,
                                            .rights = {.user = "ann", .key = proof, .mac = proof},
                                            .body = (const uint8_t *)"processes\0\0\0\0\0\0",
                                            .body_len = 16},
                      &out);
    save(argv[1], "ask", &out);
    if (query_new(&(struct query_spec){.table = "processes", .by = "program", .show = "rss,count"},
                  &query, &error) < 0 ||
        query_result_new(query, 0, &result) < 0 || query_partial_write(result, &body) < 0)
        return 1;
    message_write_reply(&(struct message_reply){.parts = 1,
                                                .body = (const uint8_t *)body.data,
                                                .body_len = body.len},
                        &out);
    save(argv[1], "reply", &out);
    save(argv[1], "partial", &body);
    message_write_refuse(&(struct message_refuse){.reason = "busy"}, &out);
    save(argv[1], "refuse", &out);
    buffer_append_str(&out, "{\"type\":\"io.nats.server.advisory.v1.client_disconnect\",\"client\":"
                            "{\"id\":5,\"user\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}}");
    save(argv[1], "disconnect", &out);
    query_result_free(result);
    query_free(query);
    buffer_release(&out);
    buffer_release(&body);
    return 0;
}
