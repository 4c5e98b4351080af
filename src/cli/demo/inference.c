/* A simulated inference server: its KV cache grows token by token while requests are answered and is
 * dropped when the batch is done. It fills, but it is no leak. */
#include <memoir/memoir.h>

#include "cli/demo/client.h"

enum { LAYERS = 28, TOKENS_PER_BATCH = 120 };

static struct client_blocks weights = {.space = MEMOIR_SPACE_DRAM, .tag = "weights"};
static struct client_blocks cache = {.space = MEMOIR_SPACE_DRAM, .tag = "kv cache"};
static struct client_blocks scratch = {.space = MEMOIR_SPACE_L1, .tag = "attention"};
static struct client_blocks rings = {.space = MEMOIR_SPACE_CB, .tag = "attention"};
static struct client_blocks kernels = {.space = MEMOIR_SPACE_KERNEL, .tag = "kernels"};

static void load_model(struct client *client)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        client_grow(client, &weights, 120 * MIB);
        client_grow(client, &kernels, 18 * KIB + client_random(client, 12) * KIB);
    }
}

static bool decode_token(struct client *client)
{
    client_grow(client, &cache, 14 * MIB + client_random(client, 8) * MIB);
    for (int i = 0; i < 24; i++) {
        client_grow(client, &scratch, 512 * KIB);
        client_grow(client, &rings, 96 * KIB);
    }
    bool go_on = client_pause(80);
    client_drop(client, &scratch);
    client_drop(client, &rings);
    return go_on;
}

/* Answer a batch of requests; false when the program is to end. */
static bool answer_batch(struct client *client)
{
    uint64_t tokens = TOKENS_PER_BATCH / 2 + client_random(client, TOKENS_PER_BATCH);
    bool go_on = true;
    for (uint64_t i = 0; i < tokens && go_on; i++)
        go_on = decode_token(client);
    client_drop(client, &cache);
    return go_on && client_pause(700);
}

int main(int argc, char **argv)
{
    struct client client;
    client_init(&client, argc, argv);
    load_model(&client);
    while (answer_batch(&client))
        ;
    client_drop(&client, &kernels);
    client_drop(&client, &weights);
    return 0;
}
