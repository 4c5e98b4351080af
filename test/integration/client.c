/* A program that does what its arguments say, one after the other, for tests that need a real client:
 *
 *   device=NAME      declare a simulated device; device spaces after it belong to it
 *   SPACE=NxBYTES    report N blocks of BYTES each: dram, l1, cb, kernel, pinned, mapped, heap ...
 *   free=SPACE=N     report the first N of them as freed
 *   tag=NAME         tag what follows
 *   open=N           memoir_open() for N blocks
 *   ready            print "ready PID" and flush
 *   wait             until a line comes from standard input, or its end
 *   exec             run this program again with the arguments that follow
 *   run=PROGRAM      replace it by PROGRAM
 *   fork             go on in a child, the parent waits for it
 *   uid=N            give up root for good
 *   signal=N         kill itself
 *   exit=N           by _exit, without any handler
 *   return=N         from main
 */
#include <errno.h>
#include <memoir/memoir.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    int space;
} spaces[] = {
    {"heap", MEMOIR_SPACE_HEAP},     {"mapped", MEMOIR_SPACE_MAPPED},
    {"pinned", MEMOIR_SPACE_PINNED}, {"managed", MEMOIR_SPACE_MANAGED},
    {"shared", MEMOIR_SPACE_SHARED}, {"dram", MEMOIR_SPACE_DRAM},
    {"l1", MEMOIR_SPACE_L1},         {"trace", MEMOIR_SPACE_TRACE},
    {"cb", MEMOIR_SPACE_CB},         {"kernel", MEMOIR_SPACE_KERNEL},
};

static int device;
static uint64_t next_id[MEMOIR_SPACE_MAX + 1], freed_id[MEMOIR_SPACE_MAX + 1];

static void fail(const char *what)
{
    fprintf(stderr, "client: bad argument '%s'\n", what);
    exit(64);
}

static int space_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++)
        if (strlen(spaces[i].name) == len && strncmp(spaces[i].name, name, len) == 0)
            return spaces[i].space;
    return 0;
}

static int device_of(int space)
{
    return space >= MEMOIR_SPACE_DRAM ? device : MEMOIR_HOST;
}

static void declare(const char *name)
{
    struct memoir_device_options options = {
        .struct_size = sizeof(options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .name = name,
        .uid = name,
        .capacity = {{MEMOIR_SPACE_DRAM, UINT64_C(32) << 30}, {MEMOIR_SPACE_L1, 100 << 20}},
    };
    device = memoir_device(&options);
}

static void report(const char *arg)
{
    size_t len = strcspn(arg, "=");
    int space = space_find(arg, len);
    unsigned long long n = 0, bytes = 0;
    if (!space || sscanf(arg + len, "=%llux%llu", &n, &bytes) != 2)
        fail(arg);
    for (unsigned long long i = 0; i < n; i++)
        memoir_alloc(device_of(space), space, ++next_id[space], bytes);
}

static void report_free(const char *arg)
{
    size_t len = strcspn(arg, "=");
    int space = space_find(arg, len);
    unsigned long long n = 0;
    if (!space || sscanf(arg + len, "=%llu", &n) != 1)
        fail(arg);
    for (unsigned long long i = 0; i < n; i++)
        memoir_free(device_of(space), space, ++freed_id[space]);
}

static void wait_for_line(void)
{
    char byte;
    ssize_t n;
    do
        n = read(0, &byte, 1);
    while ((n < 0 && errno == EINTR) || (n == 1 && byte != '\n'));
}

static void go_on_in_child(void)
{
    pid_t child = fork();
    if (child == 0)
        return;
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    exit(child < 0 ? 1 : WEXITSTATUS(status));
}

static const char *value_of(const char *arg, const char *key)
{
    size_t len = strlen(key);
    return strncmp(arg, key, len) == 0 && arg[len] == '=' ? arg + len + 1 : NULL;
}

/* Arguments with a value. */
static void act(const char *arg)
{
    const char *value;
    if ((value = value_of(arg, "device")))
        declare(value);
    else if ((value = value_of(arg, "free")))
        report_free(value);
    else if ((value = value_of(arg, "tag")))
        memoir_tag_push(value);
    else if ((value = value_of(arg, "open")))
        memoir_open(strtoull(value, NULL, 10));
    else if ((value = value_of(arg, "run")))
        execlp(value, value, (char *)NULL);
    else if ((value = value_of(arg, "uid"))) {
        if (setuid((uid_t)atoi(value)) < 0)
            fail(arg);
    } else if ((value = value_of(arg, "signal")))
        raise(atoi(value));
    else if ((value = value_of(arg, "exit")))
        _exit(atoi(value));
    else if ((value = value_of(arg, "return")))
        exit(atoi(value));
    else
        report(arg);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "ready") == 0) {
            printf("ready %d\n", (int)getpid());
            fflush(stdout);
        } else if (strcmp(argv[i], "wait") == 0) {
            wait_for_line();
        } else if (strcmp(argv[i], "fork") == 0) {
            go_on_in_child();
        } else if (strcmp(argv[i], "exec") == 0) {
            argv[i] = argv[0];
            execv("/proc/self/exe", argv + i);
            perror("client: exec");
            return 1;
        } else {
            act(argv[i]);
        }
    }
    return 0;
}
