/* Messages of other nodes: whatever the bytes are, reading them neither crashes nor accepts what the limits forbid, and an
 * answer that is rejected leaves no row behind. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/gather.h"
#include "cluster/internal.h"
#include "cluster/message.h"
#include "query/query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static const char id[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static struct gather *question(void)
{
    struct gather *gather = NULL;
    struct query_error error;
    struct gather_options options = {.nonce = {1, 1}, .now_ns = NS_PER_S};
    demand(
        query_new(&(struct query_spec){.table = "processes", .by = "program", .show = "rss,count"},
                  &options.query, &error) == 0);
    demand(gather_new(&options, &gather) == 0);
    struct member member = {.state = MEMBER_ALIVE};
    memcpy(member.id, id, sizeof(id));
    demand(gather_expect(gather, &member, NS_PER_S) == 0);
    return gather;
}

static void check_reply(const struct message_reply *reply)
{
    struct gather *gather = question();
    size_t n;
    (void)gather_reply(gather, id, reply, 2 * NS_PER_S);
    const struct gather_node *node = gather_nodes(gather, &n);
    demand(gather_finish(gather) == 0);
    if (node->state != GATHER_ANSWERED)
        demand(query_result_rows(gather_result(gather)) == 0);
    gather_free(gather);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct message message;
    char user[SUBJECT_ID_CHARS + 1];
    uint8_t *exact = malloc(size ? size : 1); /* so that a read past its end is seen */
    demand(exact != NULL);
    if (size)
        memcpy(exact, data, size);
    if (service_disconnected(exact, size, user))
        demand(subject_id_valid(user));
    if (message_read(exact, size, &message) == 0) {
        if (message.kind == MESSAGE_HELLO)
            demand(message.hello.name[0] && strlen(message.hello.name) <= MESSAGE_NAME_MAX);
        if (message.kind == MESSAGE_LOST)
            demand(strlen(message.lost) == MESSAGE_ID_CHARS);
        if (message.kind == MESSAGE_ASK)
            demand(message.ask.body_len <= size &&
                   !message.ask.rights.key == !message.ask.rights.mac);
        if (message.kind == MESSAGE_REPLY)
            check_reply(&message.reply);
    }
    /* And as the answer itself, which most inputs do not get to be. */
    check_reply(&(struct message_reply){.parts = 1, .body = exact, .body_len = size});
    free(exact);
    return 0;
}
