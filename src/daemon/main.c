/* memoird's command line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/version.h"
#include "daemon/api.h"
#include "daemon/clustering_confine.h"
#include "daemon/commands.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/service.h"
#include "daemon/tables.h"
#include "nvml/worker.h"
#include "query/query.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, PAGE_MAX = 1 << 20 };

static int print(void (*page)(struct buffer *out))
{
    struct buffer out = BUFFER_INIT(PAGE_MAX);
    page(&out);
    bool written = !out.error && fwrite(out.data, 1, out.len, stdout) == out.len;
    buffer_release(&out);
    return written && fflush(stdout) == 0 ? EXIT_OK : EXIT_FAILED;
}

static int act(enum config_action action)
{
    switch (action) {
    case CONFIG_HELP:
        return print(config_print_help);
    case CONFIG_PRINT:
        return print(config_print_sample);
    case CONFIG_MANUAL:
        return print(config_print_manual);
    case CONFIG_API:
        return print(api_description);
    default:
        printf("memoird %s\n", MEMOIR_VERSION);
        return EXIT_OK;
    }
}

int main(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], COMMANDS_HELPER) == 0)
        return commands_help();
    if (nvml_worker_is_this(argc, argv))
        return nvml_worker_main();
    if (argc == 2 && strcmp(argv[0], CLUSTERING_SERVER_HELPER) == 0)
        return clustering_server_become(argv[1]);
    (void)tables_register();
    struct config config;
    enum config_action action;
    char error[CONFIG_ERROR_MAX];
    if (config_load(argc, argv, &config, &action, error) < 0) {
        fprintf(stderr, "%s\n", error);
        return EXIT_USAGE;
    }
    if (action != CONFIG_RUN) {
        config_release(&config);
        return act(action);
    }
    if (config.daemon) {
        int r = service_background();
        if (r < 0) {
            fprintf(stderr, "memoird: cannot go to the background: %s\n", strerror(-r));
            return EXIT_FAILED;
        }
    }
    struct daemon daemon;
    int r = daemon_start(&daemon, &config, argc, argv);
    if (r >= 0)
        r = daemon_run(&daemon);
    daemon_stop(&daemon);
    return r < 0 ? EXIT_FAILED : EXIT_OK;
}
