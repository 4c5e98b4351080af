/* A simulated job with buffers, circular buffers and kernels that gets killed without a warning, so
 * that one can watch its memory disappear from the books. */
#include <memoir/memoir.h>

#include "cli/demo/client.h"

enum { BUFFERS = 150, RINGS = 800, KERNELS = 30 };

static struct client_blocks buffers = {.space = MEMOIR_SPACE_DRAM, .tag = "buffers"};
static struct client_blocks rings = {.space = MEMOIR_SPACE_CB, .tag = "circular buffers"};
static struct client_blocks kernels = {.space = MEMOIR_SPACE_KERNEL, .tag = "kernels"};

int main(int argc, char **argv)
{
    struct client client;
    client_init(&client, argc, argv);
    for (int i = 0; i < BUFFERS; i++)
        client_grow(&client, &buffers, 170000);
    for (int i = 0; i < RINGS; i++)
        client_grow(&client, &rings, 28000);
    for (int i = 0; i < KERNELS; i++)
        client_grow(&client, &kernels, 6800);
    while (client_pause(1000))
        ;
    client_drop(&client, &kernels); /* it was not killed in time */
    client_drop(&client, &rings);
    client_drop(&client, &buffers);
    return 0;
}
