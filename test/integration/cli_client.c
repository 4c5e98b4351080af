/* A client with known figures, for tests of the commands: reports, says "ready", and waits until its
 * standard input ends. Argument "lossy" makes it lose a report; "die" ends it without a word. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <memoir/memoir.h>

static int declare(int ordinal, const char *name, const char *uid)
{
    return memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .ordinal = ordinal,
        .name = name,
        .uid = uid,
        .bus = ordinal == 0 ? "0000:81:00.0" : NULL,
        .capacity = {{MEMOIR_SPACE_DRAM, 1000000000}, {MEMOIR_SPACE_L1, 1500000}},
    });
}

int main(int argc, char **argv)
{
    memoir_open(0);
    int first = declare(0, "Test device", "TEST-0");
    int second = declare(1, "Other device", "TEST-1");
    memoir_tag_push("weights");
    for (unsigned i = 0; i < 10; i++)
        memoir_alloc(first, MEMOIR_SPACE_DRAM, 1000 + i, 1000000);
    memoir_tag_pop();
    for (unsigned i = 0; i < 4; i++)
        memoir_free(first, MEMOIR_SPACE_DRAM, 1000 + i);
    memoir_alloc(first, MEMOIR_SPACE_CB, 1, 2048);
    memoir_alloc(second, MEMOIR_SPACE_KERNEL, 1, 512);
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, 1, 300000);
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_PINNED, 1, 65536);
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_SHARED, 1, 4096);
    memoir_transfer(&(struct memoir_transfer_options){
        .struct_size = sizeof(struct memoir_transfer_options),
        .from_device = MEMOIR_HOST,
        .from_space = MEMOIR_SPACE_PINNED,
        .from_id = 1,
        .to_device = first,
        .to_space = MEMOIR_SPACE_DRAM,
        .to_id = 1009,
        .bytes = 65536,
    });
    if (argc > 1 && strcmp(argv[1], "lossy") == 0)
        memoir_free(first, MEMOIR_SPACE_DRAM, 424242);
    puts("ready");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "die") == 0)
        kill(getpid(), SIGKILL);
    while (getchar() != EOF)
        ;
    return 0;
}
