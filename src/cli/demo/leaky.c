/* A simulated service that answers requests and forgets to free a part of each: it grows steadily.
 * The leak is capped, so that a demo that was left alone stays a demo. */
#include <memoir/memoir.h>

#include "cli/demo/client.h"

enum { LEAKS_MAX = 4000 }; /* 1.6 GiB after 20 minutes */

static struct client_blocks model = {.space = MEMOIR_SPACE_DRAM, .tag = "model"};
static struct client_blocks requests = {.space = MEMOIR_SPACE_DRAM, .tag = "request"};
static struct client_blocks leaked = {.space = MEMOIR_SPACE_DRAM, .tag = "leaked request"};

static bool answer_request(struct client *client)
{
    for (int i = 0; i < 6; i++)
        client_grow(client, &requests, 2 * MIB);
    if (leaked.n < LEAKS_MAX)
        client_grow(client, &leaked, 416 * KIB);
    bool go_on = client_pause(300);
    client_drop(client, &requests);
    return go_on;
}

int main(int argc, char **argv)
{
    struct client client;
    client_init(&client, argc, argv);
    client_grow(&client, &model, 220 * MIB);
    while (answer_request(&client))
        ;
    client_drop(&client, &model); /* what leaked, it has forgotten */
    return 0;
}
