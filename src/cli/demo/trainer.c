/* A simulated training job: weights and optimizer state stay, activations go up in the forward pass
 * and down in the backward pass of every step. */
#include <stddef.h>

#include <memoir/memoir.h>

#include "cli/demo/client.h"

enum { LAYERS = 32 };

static struct client_blocks weights = {.space = MEMOIR_SPACE_DRAM, .tag = "weights"};
static struct client_blocks optimizer = {.space = MEMOIR_SPACE_DRAM, .tag = "optimizer"};
static struct client_blocks activations = {.space = MEMOIR_SPACE_DRAM, .tag = "activations"};
static struct client_blocks staging = {.space = MEMOIR_SPACE_PINNED, .tag = "staging"};
static struct client_blocks tiles = {.space = MEMOIR_SPACE_L1, .tag = "tiles"};
static struct client_blocks rings = {.space = MEMOIR_SPACE_CB, .tag = "matmul"};
static struct client_blocks kernels = {.space = MEMOIR_SPACE_KERNEL, .tag = "kernels"};

static void load_model(struct client *client)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        client_grow(client, &weights, 66 * MIB);
        client_grow(client, &optimizer, 132 * MIB);
        client_grow(client, &kernels, 24 * KIB + client_random(client, 16) * KIB);
    }
    for (int i = 0; i < 4; i++)
        client_grow(client, &staging, 16 * MIB);
}

static void copy_batch(const struct client *client)
{
    memoir_transfer(&(struct memoir_transfer_options){
        .struct_size = sizeof(struct memoir_transfer_options),
        .from_device = MEMOIR_HOST,
        .from_space = MEMOIR_SPACE_PINNED,
        .from_id = staging.first_id,
        .to_device = client->device,
        .to_space = MEMOIR_SPACE_DRAM,
        .bytes = 16 * MIB / client->share,
    });
}

static bool forward(struct client *client)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        client_grow(client, &activations, 48 * MIB + client_random(client, 32) * MIB);
        client_grow(client, &tiles, 2 * MIB);
        for (int i = 0; i < 8; i++)
            client_grow(client, &rings, 64 * KIB);
        if (!client_pause(25))
            return false;
    }
    return true;
}

static bool backward(struct client *client)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        client_shrink(client, &activations);
        client_shrink(client, &tiles);
        for (int i = 0; i < 8; i++)
            client_shrink(client, &rings);
        if (!client_pause(35))
            return false;
    }
    return true;
}

static void unload(struct client *client)
{
    struct client_blocks *all[] = {&activations, &tiles,     &rings,  &kernels,
                                   &staging,     &optimizer, &weights};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        client_drop(client, all[i]);
}

int main(int argc, char **argv)
{
    struct client client;
    client_init(&client, argc, argv);
    load_model(&client);
    do {
        copy_batch(&client);
    } while (forward(&client) && backward(&client));
    unload(&client);
    return 0;
}
