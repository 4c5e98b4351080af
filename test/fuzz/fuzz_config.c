/* A configuration file may hold anything; memoird takes it, or says in one line what is wrong with it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static int file_of(const uint8_t *data, size_t size)
{
    int fd = memfd_create("config", 0);
    demand(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 65536)
        return 0;
    int fd = file_of(data, size);
    char path[64], error[CONFIG_ERROR_MAX] = "";
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    char *argv[] = {(char *)"memoird", (char *)"--config", path, NULL};
    struct config config;
    enum config_action action;
    if (config_load(3, argv, &config, &action, error) < 0) {
        demand(memchr(error, '\0', sizeof(error)) && error[0] && !strchr(error, '\n'));
    } else {
        demand(action == CONFIG_RUN && strcmp(config.config, path) == 0);
        demand(config_differ(&config, &config) == 0);
        config_release(&config);
    }
    close(fd);
    return 0;
}
