/* Texts of /proc, as kernels write them and as nobody should. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "ledger/host.h"
#include "ledger/host_parse.h"

/* ---- processes ---- */

static void status_without_memory_has_a_user_only(void **state)
{
    struct host_status status;
    assert_int_equal(
        host_parse_status("Name:\tx\\nUid:\t7\nTgid:\t5\nUid:\t1000\t0\t0\t0\n", &status), 0);
    assert_int_equal(status.uid, 1000);
    assert_int_equal(status.group, 5);
    assert_false(status.has_parts);
    assert_false(status.has_peak);
    assert_int_equal(host_parse_status("Name:\tx\nTgid:\t5\n", &status), -EBADMSG);
    assert_int_equal(host_parse_status("Name:\tx\nTgid:\t5\nUid:\t99999999999\n", &status),
                     -EBADMSG);
}

static void a_rollup_gives_shares(void **state)
{
    struct host_rollup rollup;
    static const char text[] = "55d0-7ffd ---p 00000000 00:00 0                          [rollup]\n"
                               "Rss:                1712 kB\nPss:                 180 kB\n"
                               "Pss_Dirty:            96 kB\nPss_Anon:             96 kB\n"
                               "Shared_Clean:       1600 kB\nShared_Dirty:          8 kB\n"
                               "Private_Clean:        16 kB\nPrivate_Dirty:        96 kB\n"
                               "Private_Hugetlb:    2048 kB\nSwap:                  0 kB\n";
    assert_int_equal(host_parse_rollup(text, &rollup), 0);
    assert_int_equal(rollup.pss, 180 * 1024);
    assert_int_equal(rollup.uss, (16 + 96 + 2048) * 1024);
    assert_int_equal(rollup.dirty, (96 + 8) * 1024);
    assert_int_equal(host_parse_rollup("Pss: 1 kB\n", &rollup), -EBADMSG);
}

/* ---- the machine ---- */

static const char meminfo[] =
    "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"
    "Buffers:          10 kB\nCached:          300 kB\nSwapCached:        0 kB\n"
    "Active:          200 kB\nInactive:        150 kB\nSwapTotal:        50 kB\n"
    "SwapFree:         40 kB\nDirty:             1 kB\nAnonPages:       350 kB\n"
    "Shmem:            60 kB\nSlab:             50 kB\nSReclaimable:     30 kB\n"
    "SUnreclaim:       20 kB\nKernelStack:       5 kB\nPageTables:       15 kB\n"
    "SecPageTables:     1 kB\nPercpu:            4 kB\nHugetlb:           0 kB\n";

static void parts_add_up_to_the_total(void **state)
{
    struct host_system system = {0};
    assert_int_equal(host_parse_meminfo(meminfo, &system), 0);
    uint64_t sum = 0;
    for (int i = 0; i < HOST_PARTS; i++)
        sum += system.parts[i];
    assert_int_equal(sum, system.total_bytes);
    assert_int_equal(system.parts[HOST_PART_REST], 165 * 1024);
    assert_int_equal(system.parts[HOST_PART_CACHE], 240 * 1024);
    assert_int_equal(system.available_bytes, 400 * 1024);
    assert_int_equal(system.used_bytes, 600 * 1024);
    assert_int_equal(system.excess_bytes, 0);
    assert_int_equal(system.valid, HOST_HAS_TOTAL | HOST_HAS_AVAILABLE);
}

static void available_is_not_made_up(void **state)
{
    struct host_system system = {0};
    assert_int_equal(
        host_parse_meminfo("MemTotal: 9 kB\nMemFree: 1 kB\nBuffers: 1 kB\nCached: 1 kB\n", &system),
        0);
    assert_int_equal(system.valid, HOST_HAS_TOTAL);
    assert_int_equal(host_parse_meminfo("MemTotal: 9 kB\n", &system), -EBADMSG);
}

static void parts_past_the_total_are_told(void **state)
{
    struct host_system system = {0};
    assert_int_equal(
        host_parse_meminfo("MemTotal: 9 kB\nMemFree: 8 kB\nBuffers: 8 kB\nCached: 1 kB\n", &system),
        0);
    assert_int_equal(system.parts[HOST_PART_REST], 0);
    assert_int_equal(system.excess_bytes, 8 * 1024);
}

/* ---- cgroups ---- */

#define ID       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID_UPPER "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef"

static void the_memory_controller_comes_first(void **state)
{
    char path[HOST_PATH_MAX];
    bool v1;
    assert_int_equal(host_parse_cgroup("0::/user.slice/a b\n", path, sizeof(path), &v1), 0);
    assert_string_equal(path, "/user.slice/a b");
    assert_false(v1);
    assert_int_equal(
        host_parse_cgroup("5:cpu,memory:/m\n1:name=systemd:/s\n0::/u\n", path, sizeof(path), &v1),
        0);
    assert_string_equal(path, "/m");
    assert_true(v1);
    assert_int_equal(
        host_parse_cgroup("1:name=systemd:/s\n2:xmemory:/n\n", path, sizeof(path), &v1), -EBADMSG);
    assert_int_equal(host_parse_cgroup("0::/long\n", path, 5, &v1), -EBADMSG);
}

static void paths_tell_of_containers_pods_and_jobs(void **state)
{
    static const struct {
        const char *path, *container, *pod, *job;
    } rows[] = {
        {"/system.slice/docker-" ID ".scope", ID, "", ""},
        {"/docker/" ID, ID, "", ""},
        {"/kubepods.slice/kubepods-burstable.slice/"
         "kubepods-burstable-pod6f1ed2a4_1111_2222_3333_444455556666.slice/cri-containerd-" ID
         ".scope",
         ID, "6f1ed2a4-1111-2222-3333-444455556666", ""},
        {"/kubepods/besteffort/pod6f1ed2a4-1111-2222-3333-444455556666/" ID, ID,
         "6f1ed2a4-1111-2222-3333-444455556666", ""},
        {"/lxc.payload.web/init.scope", "web", "", ""},
        {"/slurm/uid_1000/job_4711/step_0/task_3", "", "", "4711"},
        {"/system.slice/slurmstepd.scope/job_12/step_batch", "", "", "12"},
        {"/system.slice/node1_slurmstepd.scope/job_12/step_0/user/job_13", "", "", "12"},
        {"/mine/job_12", "", "", ""},
        {"/user.slice/user-1000.slice/slurm/job_12", "", "", ""},
        {"/system.slice/web.service/slurmstepd.scope/job_12", "", "", ""},
        {"/system.slice/" ID "0", "", "", ""},
        {"/system.slice/x" ID, "", "", ""},
        {"/system.slice/" ID_UPPER, "", "", ""},
        {"/lxc.payload./init.scope", "", "", ""},
        {"/lxc.paylord.web", "", "", ""},
        {"/kubepods/tripod6f1ed2a4-1111-2222-3333-444455556666", "", "", ""},
        {"/kubepods/pox6f1ed2a4-1111-2222-3333-444455556666", "", "", ""},
        {"/kubepods/6f1ed2a4-1111-2222-3333-444455556666", "", "", ""},
        {"/kubepods/pod6f1ed2a4.1111.2222.3333.444455556666", "", "", ""},
        {"/kubepods/pod6f1ed2a4-1111-2222-3333-44445555666", "", "", ""},
        {"/system.slice/web.service/job_12", "", "", ""},
        {"/slurm/job_", "", "", ""},
        {"/slurm/job_12x", "", "", ""},
        {"/slurm/jobs12", "", "", ""},
        {"/slurm/xob_12", "", "", ""},
        {"/slurm/job_7/job_8", "", "", "7"},
        {"/system.slice/a/slurmstepd", "", "", ""},
        {"/", "", "", ""},
        {"", "", "", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char container[HOST_WORD_MAX], pod[HOST_WORD_MAX], job[HOST_WORD_MAX];
        host_cgroup_words(rows[i].path, container, pod, job, HOST_WORD_MAX);
        assert_string_equal(container, rows[i].container);
        assert_string_equal(pod, rows[i].pod);
        assert_string_equal(job, rows[i].job);
    }
}

/* ---- environments ---- */

static struct host_environment environment(const char *text, size_t len)
{
    struct host_environment found;
    host_parse_environ(text, len, &found);
    return found;
}
#define ENVIRONMENT(text) environment(text, sizeof(text) - 1)

static void schedulers_are_recognised(void **state)
{
    struct host_environment e = ENVIRONMENT("A=1\0SLURM_JOB_ID=4711\0PMI_RANK=9\0SLURM_PROCID=3\0");
    assert_string_equal(e.job, "4711");
    assert_true(e.has_rank);
    assert_int_equal(e.rank, 3); /* the better source, wherever it stands */
    e = ENVIRONMENT("OMPI_COMM_WORLD_RANK=12\0LD_PRELOAD=/x/libmemoir-track.so\0");
    assert_int_equal(e.rank, 12);
    assert_true(e.tracker);
    assert_string_equal(e.job, "");
}

static void bad_words_of_an_environment_are_none(void **state)
{
    struct host_environment e = ENVIRONMENT("SLURM_JOB_ID=1\x1b[31m\0PMI_RANK=-1\0RANK=\0");
    assert_string_equal(e.job, "");
    assert_false(e.has_rank);
    e = ENVIRONMENT("SLURM_JOB_ID=12345"); /* cut: another digit may follow */
    assert_string_equal(e.job, "");
    e = ENVIRONMENT("SLURM_PROCID=99999999999999999999\0=\0SLURM_JOB_IDX=1\0\0\0");
    assert_false(e.has_rank);
    assert_string_equal(e.job, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_without_memory_has_a_user_only),
        cmocka_unit_test(a_rollup_gives_shares),
        cmocka_unit_test(parts_add_up_to_the_total),
        cmocka_unit_test(available_is_not_made_up),
        cmocka_unit_test(parts_past_the_total_are_told),
        cmocka_unit_test(the_memory_controller_comes_first),
        cmocka_unit_test(paths_tell_of_containers_pods_and_jobs),
        cmocka_unit_test(schedulers_are_recognised),
        cmocka_unit_test(bad_words_of_an_environment_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
