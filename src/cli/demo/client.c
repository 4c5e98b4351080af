/* What the simulated programs share. See client.h. */
#include "cli/demo/client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <memoir/memoir.h>

#include "base/hash.h"

enum { DEVICES = 2 };

static volatile sig_atomic_t ended;

static void end(int number)
{
    ended = 1;
}

static void declare_device(struct client *client)
{
    static const char *const names[DEVICES] = {"Simulated accelerator A",
                                               "Simulated accelerator B"};
    static const char *const uids[DEVICES] = {"SIM-0A", "SIM-0B"};
    client->device = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .ordinal = client->ordinal,
        .name = names[client->ordinal],
        .uid = uids[client->ordinal],
        .capacity =
            {
                {MEMOIR_SPACE_DRAM, 12288 * MIB},
                {MEMOIR_SPACE_L1, 171 * MIB}, /* circular buffers and kernels live in it too */
            },
    });
}

void client_init(struct client *client, int argc, char **argv)
{
    *client = (struct client){.share = 1, .next_id = 1};
    if (argc > 1)
        client->ordinal = atoi(argv[1]) == 1;
    if (argc > 2 && atoi(argv[2]) > 0)
        client->share = (uint64_t)atoi(argv[2]);
    client->random = (uint64_t)client->ordinal + 1;
    /* No SA_RESTART: a pause ends at once. */
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = end}, NULL);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = end}, NULL);
    declare_device(client);
}

bool client_pause(unsigned ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    if (!ended)
        nanosleep(&time, NULL);
    return !ended;
}

uint64_t client_random(struct client *client, uint64_t n)
{
    client->random = hash_mix(client->random + HASH_K0);
    return client->random % n;
}

static bool on_host(const struct client_blocks *blocks)
{
    return blocks->space < MEMOIR_SPACE_DRAM;
}

void client_grow(struct client *client, struct client_blocks *blocks, uint64_t bytes)
{
    if (blocks->n == 0) {
        blocks->first_id = client->next_id;
        client->next_id += UINT64_C(1) << 32; /* room for this row's handles */
    }
    memoir_alloc_with(&(struct memoir_alloc_options){
        .struct_size = sizeof(struct memoir_alloc_options),
        .device = on_host(blocks) ? MEMOIR_HOST : client->device,
        .space = blocks->space,
        .id = blocks->first_id + blocks->n,
        .bytes = bytes / client->share,
        .tag = blocks->tag,
        .caller = __builtin_return_address(0),
    });
    blocks->n++;
}

void client_shrink(struct client *client, struct client_blocks *blocks)
{
    if (blocks->n == 0)
        return;
    blocks->n--;
    memoir_free(on_host(blocks) ? MEMOIR_HOST : client->device, blocks->space,
                blocks->first_id + blocks->n);
}

void client_drop(struct client *client, struct client_blocks *blocks)
{
    while (blocks->n > 0)
        client_shrink(client, blocks);
}
