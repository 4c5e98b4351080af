/* Texts of /proc hold names, arguments and environments that strangers chose. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/procfs.h"
#include "ledger/host.h"
#include "ledger/host_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    struct procfs_statm statm;
    struct procfs_stat stat;
    struct procfs_mapping mapping;
    struct procfs_ids ids;
    pid_t pids[2], inner;
    struct host_status status;
    struct host_rollup rollup;
    struct host_system system = {0};
    struct host_environment environment;
    char path[HOST_PATH_MAX], container[HOST_WORD_MAX], pod[HOST_WORD_MAX], job[HOST_WORD_MAX];
    bool v1;
    (void)procfs_statm_parse(text, &statm);
    if (procfs_stat_parse(text, &stat)) {
        if (!memchr(stat.comm, '\0', sizeof(stat.comm)))
            abort();
        (void)procfs_stat_exit_status(&stat);
    }
    if (procfs_mapping_parse(text, text + size, &mapping) &&
        (mapping.start >= mapping.end || mapping.name > text + size))
        abort();
    (void)procfs_status_ids(text, "\nUid:", &ids);
    (void)procfs_status_pids(text, pids, 2, &inner);
    (void)procfs_time_offset(text, "boottime");
    (void)host_parse_status(text, &status);
    (void)host_parse_rollup(text, &rollup);
    if (host_parse_meminfo(text, &system) == 0 && system.excess_bytes &&
        system.parts[HOST_PART_REST])
        abort();
    if (host_parse_cgroup(text, path, sizeof(path), &v1) == 0)
        host_cgroup_words(path, container, pod, job, HOST_WORD_MAX);
    host_cgroup_words(text, container, pod, job, HOST_WORD_MAX);
    host_parse_environ(text, size, &environment);
    for (const char *c = environment.job; *c; c++)
        if (*c < ' ')
            abort();
    free(text);
    return 0;
}
