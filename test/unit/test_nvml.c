/* NVML read by a process of its own, from a library whose figures stand in a file (test/nvml/fake.c). This program is its
 * own worker. */
#include "nvml/nvml.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "nvml/facts.h"
#include "nvml/wire.h"
#include "nvml/worker.h"

enum { PATIENCE_MS = 60000, SHORT_MS = 200 };

static char figures[] = "/tmp/memoir-test-nvml-XXXXXX";

static void library_use(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/fake-nvml-%s.so", FAKE_NVML_DIR, name);
    setenv("MEMOIR_NVML", path, 1);
}

static void figures_write(const char *text)
{
    FILE *file = fopen(figures, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static const char two_gpus[] =
    "driver 999.12\n"
    "gpu uuid=GPU-aa bus=00000000:1B:00.0 total=1000 used=300 reserved=20 cores=7 name=NVIDIA Fake\n"
    "process pid=30 used=70 use=c\n"
    "process pid=12 used=200 use=cg\n"
    "process pid=13 used=- use=g\n"
    "gpu uuid=GPU-bb bus=00010000:AF:00.0 total=2000 used=0 reserved=0 name=NVIDIA Other\n"
    "process pid=12 used=5 use=c\n";

static int set_up(void **state)
{
    library_use("now");
    figures_write(two_gpus);
    return nvml_new((struct nvml **)state);
}

static int tear_down(void **state)
{
    nvml_free(*state);
    return 0;
}

static struct nvml_facts asked(struct nvml *nvml)
{
    struct nvml_facts facts;
    int r = nvml_ask(nvml, PATIENCE_MS, &facts);
    if (r < 0)
        fail_msg("%s: %s", strerror(-r), nvml_why(nvml));
    return facts;
}

/* "0:12=200cg 0:13=?g": device, PID, bytes and use. */
static const char *processes(const struct nvml_facts *facts)
{
    static char text[4096];
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < facts->n_processes && len < sizeof(text); i++) {
        const struct nvml_process *p = &facts->processes[i];
        char used[32] = "?";
        if (p->has_used)
            snprintf(used, sizeof(used), "%llu", (unsigned long long)p->used_bytes);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u:%u=%s%s%s", i ? " " : "",
                                p->device, p->pid, used, p->uses & NVML_COMPUTE ? "c" : "",
                                p->uses & NVML_GRAPHICS ? "g" : "");
    }
    return text;
}

static void devices_and_processes_are_as_the_library_says(void **state)
{
    struct nvml_facts facts = asked(*state);
    assert_string_equal(facts.driver, "999.12");
    assert_int_equal(facts.n_devices, 2);
    const struct nvml_device *d = &facts.devices[0];
    assert_string_equal(d->uuid, "GPU-aa");
    assert_string_equal(d->bus, "0000:1b:00.0");
    assert_string_equal(d->name, "NVIDIA Fake");
    assert_int_equal(d->valid, NVML_HAS_TOTAL | NVML_HAS_USED | NVML_HAS_RESERVED |
                                   NVML_HAS_PROCESSES | NVML_HAS_SPEED);
    assert_int_equal(d->total_bytes, 1000);
    assert_int_equal(d->used_bytes, 300);
    assert_int_equal(d->reserved_bytes, 20);
    assert_string_equal(facts.devices[1].bus, "10000:af:00.0"); /* domains may be long */
    assert_int_equal(facts.devices[1].index, 1);
    assert_false(facts.devices[1].valid & NVML_HAS_SPEED);
    assert_string_equal(processes(&facts), "0:12=200cg 0:13=?g 0:30=70c 1:12=5c");
    nvml_facts_release(&facts);
}

static void the_worker_stays_and_sees_changes(void **state)
{
    struct nvml_facts facts = asked(*state);
    nvml_facts_release(&facts);
    figures_write("driver 1\ngpu uuid=GPU-aa total=1000 used=400 name=N\n");
    facts = asked(*state);
    assert_int_equal(facts.devices[0].used_bytes, 400);
    assert_string_equal(facts.devices[0].bus, "");
    assert_int_equal(facts.n_processes, 0);
    nvml_facts_release(&facts);
    nvml_rest(*state);
    facts = asked(*state); /* by another one */
    assert_int_equal(facts.n_devices, 1);
    nvml_facts_release(&facts);
}

static void with_text(const char *first, const char *rest)
{
    char text[2048];
    snprintf(text, sizeof(text), "%s%s", first, rest);
    figures_write(text);
}

/* As entry points without a version, and as version 2 and 3 say it; and with entries that are longer than declared. */
static void every_version_of_the_lists_gives_the_same(void **state)
{
    static const struct {
        const char *library, *mode;
    } cases[] = {{"now", ""}, {"now", "mode old\n"}, {"now", "mode long\n"}, {"old", ""}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        library_use(cases[i].library);
        with_text(cases[i].mode, two_gpus);
        nvml_rest(*state);
        struct nvml_facts facts = asked(*state);
        assert_string_equal(processes(&facts), "0:12=200cg 0:13=?g 0:30=70c 1:12=5c");
        nvml_facts_release(&facts);
    }
}

static void without_version_2_used_includes_what_is_reserved(void **state)
{
    library_use("old");
    struct nvml_facts facts = asked(*state);
    assert_int_equal(facts.devices[0].used_bytes, 320);
    assert_false(facts.devices[0].valid & NVML_HAS_RESERVED);
    nvml_facts_release(&facts);
}

static void figures_that_are_not_available_are_absent(void **state)
{
    with_text("mode no-memory\n", two_gpus);
    struct nvml_facts facts = asked(*state);
    assert_int_equal(facts.devices[0].valid, NVML_HAS_PROCESSES | NVML_HAS_SPEED);
    nvml_facts_release(&facts);
}

static void mig_instances_are_devices_with_their_own_processes(void **state)
{
    figures_write("gpu uuid=GPU-aa bus=00000000:1B:00.0 total=1000 used=300 mig=1 name=A100\n"
                  "process pid=9 used=9 use=c\n" /* the whole GPU's list is not asked for */
                  "mig uuid=MIG-11 total=500 used=100 name=A100 MIG 3g.20gb\n"
                  "process pid=12 used=60 use=c\n"
                  "mig uuid=MIG-22 total=400 used=90 name=A100 MIG 2g.10gb\n"
                  "process pid=13 used=50 use=c\n"
                  "gpu uuid=GPU-bb bus=00000000:1C:00.0 total=2000 used=0 name=A100\n"
                  "process pid=12 used=7 use=c\n");
    struct nvml_facts facts = asked(*state);
    assert_int_equal(facts.n_devices, 4);
    assert_int_equal(facts.devices[0].mig_count, 2);
    assert_string_equal(facts.devices[1].uuid, "MIG-11");
    assert_int_equal(facts.devices[1].mig_index, 0);
    assert_string_equal(facts.devices[2].uuid, "MIG-22");
    assert_int_equal(facts.devices[2].mig_index, 2);
    assert_int_equal(facts.devices[2].index, 0);
    assert_int_equal(facts.devices[3].index, 1);
    assert_string_equal(processes(&facts), "1:12=60c 2:13=50c 3:12=7c");
    nvml_facts_release(&facts);
}

static void many_processes_fit_and_those_past_the_limit_are_counted(void **state)
{
    FILE *file = fopen(figures, "w");
    fprintf(file, "gpu uuid=GPU-aa total=1 used=1 name=N\n");
    for (int i = 0; i < 4000; i++)
        fprintf(file, "process pid=%d used=1 use=c\n", 10000 - i);
    fprintf(file, "gpu uuid=GPU-bb total=1 used=1 name=N\n");
    for (int i = 0; i < 100; i++)
        fprintf(file, "process pid=%d used=1 use=c\n", i + 1);
    fclose(file);
    struct nvml_facts facts = asked(*state);
    assert_int_equal(facts.n_processes, NVML_PROCESSES_MAX);
    assert_int_equal(facts.processes_left_out, 4);
    assert_true(facts.devices[0].valid & NVML_HAS_PROCESSES);
    assert_false(facts.devices[1].valid & NVML_HAS_PROCESSES);
    nvml_facts_release(&facts);
}

/* ---- when it goes wrong ---- */

static void refused(struct nvml *nvml, unsigned wait_ms, int error, const char *why)
{
    struct nvml_facts facts;
    assert_int_equal(nvml_ask(nvml, wait_ms, &facts), error);
    assert_non_null(strstr(nvml_why(nvml), why));
    if (strcmp(why, "MEMOIR_NVML=off") != 0) /* which costs nothing to find out again */
        assert_int_equal(nvml_ask(nvml, wait_ms, &facts), -EAGAIN);
    assert_non_null(strstr(nvml_why(nvml), why)); /* still */
}

static void a_library_that_is_missing_is_named(void **state)
{
    setenv("MEMOIR_NVML", "/nowhere/libnvidia-ml.so.1", 1);
    refused(*state, PATIENCE_MS, -ENOENT, "/nowhere/libnvidia-ml.so.1 not found");
}

static void it_can_be_switched_off(void **state)
{
    setenv("MEMOIR_NVML", "off", 1);
    refused(*state, PATIENCE_MS, -ENOENT, "MEMOIR_NVML=off");
}

static void another_library_under_its_name_is_not_asked(void **state)
{
    library_use("other");
    refused(*state, PATIENCE_MS, -ENOEXEC, "lacks nvmlInit_v2");
}

static void a_refusal_is_told_in_the_librarys_words(void **state)
{
    figures_write("mode refuse\n");
    refused(*state, PATIENCE_MS, -ENODEV, "Driver Not Loaded");
}

static void a_crash_ends_only_the_worker(void **state)
{
    figures_write("mode crash\n");
    refused(*state, PATIENCE_MS, -ECHILD, "crashed");
}

static void a_crash_while_loading_is_one_too(void **state)
{
    figures_write("mode crash-init\n");
    refused(*state, PATIENCE_MS, -ECHILD, "crashed");
}

static void a_hang_ends_with_the_time(void **state)
{
    figures_write("mode hang\n");
    refused(*state, SHORT_MS, -ETIME, "no answer within 200 ms");
}

static void it_is_asked_again_after_a_pause(void **state)
{
    struct nvml_facts facts;
    figures_write("mode crash\n");
    assert_int_equal(nvml_ask(*state, PATIENCE_MS, &facts), -ECHILD);
    uint64_t began = clock_monotonic_ns();
    figures_write(two_gpus);
    int r;
    while ((r = nvml_ask(*state, PATIENCE_MS, &facts)) == -EAGAIN)
        usleep(1000);
    assert_int_equal(r, 0);
    assert_string_equal(nvml_why(*state), "");
    assert_true(clock_monotonic_ns() - began > NVML_PAUSE_MIN_MS * NS_PER_MS / 2);
    nvml_facts_release(&facts);
}

static void *cancel(void *nvml)
{
    usleep(50000);
    nvml_cancel(nvml);
    return NULL;
}

static void a_question_under_way_can_be_cancelled(void **state)
{
    struct nvml_facts facts;
    pthread_t thread;
    figures_write("mode hang\n");
    assert_int_equal(pthread_create(&thread, NULL, cancel, *state), 0);
    assert_int_equal(nvml_ask(*state, PATIENCE_MS, &facts), -ECANCELED);
    pthread_join(thread, NULL);
    assert_int_equal(nvml_ask(*state, PATIENCE_MS, &facts), -ECANCELED);
}

static void no_worker_is_left_behind(void **state)
{
    struct nvml_facts facts = asked(*state);
    nvml_facts_release(&facts);
    nvml_rest(*state);
    char path[64], text[256] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    FILE *file = fopen(path, "r");
    if (file) {
        assert_null(fgets(text, sizeof(text), file));
        fclose(file);
    }
}

/* ---- what comes over the pipe ---- */

static void answers_that_cannot_be_are_refused(void **state)
{
    struct nvml_device devices[1] = {{.uuid = "GPU-a"}};
    struct {
        struct nvml_device device;
        struct nvml_process processes[2];
    } rest = {devices[0], {{.device = 0, .pid = 5}, {.device = 0, .pid = 6}}};
    struct nvml_wire_head good = {.magic = NVML_WIRE_MAGIC, .n_devices = 1, .n_processes = 2};
    struct nvml_facts facts;
    size_t len;
    assert_int_equal(nvml_facts_read(&good, &rest, sizeof(rest), &facts), 0);
    nvml_facts_release(&facts);
    assert_int_equal(nvml_facts_read(&good, &rest, sizeof(rest) - 1, &facts), -EBADMSG);
    struct nvml_wire_head bad = good;
    bad.magic++;
    assert_int_equal(nvml_wire_rest(&bad, &len), -EBADMSG);
    bad = good;
    bad.n_devices = NVML_DEVICES_MAX + 1;
    assert_int_equal(nvml_wire_rest(&bad, &len), -EBADMSG);
    rest.processes[1].pid = 5; /* twice */
    assert_int_equal(nvml_facts_read(&good, &rest, sizeof(rest), &facts), -EBADMSG);
    rest.processes[1] = (struct nvml_process){.device = 1, .pid = 6}; /* of no device */
    assert_int_equal(nvml_facts_read(&good, &rest, sizeof(rest), &facts), -EBADMSG);
    memset(rest.device.uuid, 'x', sizeof(rest.device.uuid)); /* without an end */
    rest.processes[1].device = 0;
    assert_int_equal(nvml_facts_read(&good, &rest, sizeof(rest), &facts), 0);
    assert_int_equal(strlen(facts.devices[0].uuid), NVML_UUID_MAX - 1);
    nvml_facts_release(&facts);
}

#define WITH_NVML(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
    if (nvml_worker_is_this(argc, argv))
        return nvml_worker_main();
    int fd = mkstemp(figures);
    if (fd < 0)
        return 1;
    close(fd);
    setenv("FAKE_NVML", figures, 1);
    const struct CMUnitTest tests[] = {
        WITH_NVML(devices_and_processes_are_as_the_library_says),
        WITH_NVML(the_worker_stays_and_sees_changes),
        WITH_NVML(every_version_of_the_lists_gives_the_same),
        WITH_NVML(without_version_2_used_includes_what_is_reserved),
        WITH_NVML(figures_that_are_not_available_are_absent),
        WITH_NVML(mig_instances_are_devices_with_their_own_processes),
        WITH_NVML(many_processes_fit_and_those_past_the_limit_are_counted),
        WITH_NVML(a_library_that_is_missing_is_named),
        WITH_NVML(it_can_be_switched_off),
        WITH_NVML(another_library_under_its_name_is_not_asked),
        WITH_NVML(a_refusal_is_told_in_the_librarys_words),
        WITH_NVML(a_crash_ends_only_the_worker),
        WITH_NVML(a_crash_while_loading_is_one_too),
        WITH_NVML(a_hang_ends_with_the_time),
        WITH_NVML(it_is_asked_again_after_a_pause),
        WITH_NVML(a_question_under_way_can_be_cancelled),
        WITH_NVML(no_worker_is_left_behind),
        cmocka_unit_test(answers_that_cannot_be_are_refused),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(figures);
    return r;
}
