/* What people call a process. */
#include "check.h"
#include "ledger/name.h"

static const struct {
    const char *exe, *comm, *command, *name;
} cases[] = {
    {"/usr/bin/python3.11", "python3", "python3 train.py --epochs 3", "train.py"},
    {"/usr/bin/python3.11", "python3", "/usr/bin/python3 -u /srv/job/train.py", "train.py"},
    {"/usr/bin/python3.11", "python3", "python3 -uB run.py", "run.py"},
    {"/usr/bin/python3.11", "torchrun", "python3 /opt/venv/bin/torchrun x.py", "torchrun"},
    {"/usr/bin/python3.11", "a-very-long-scr", "python3 /opt/a-very-long-script x.py",
     "a-very-long-script"},
    /* An argument may hold spaces: what follows may be a part of it. */
    {"/usr/bin/python3.11", "python3", "python3 -W ignore secret.py run.py", "python3.11"},
    {"/usr/bin/python3.11", "python3", "python3 -Wignore secret.py run.py", "python3.11"},
    {"/usr/bin/python3.11", "python3", "python3 -X a secret run.py", "python3.11"},
    {"/usr/bin/python3.11", "python3", "python3 /srv/secret project/run.py", "python3.11"},
    {"/usr/bin/perl", "perl", "perl -MFoo qw(secret.pl) tool.pl", "perl"},
    {"/usr/bin/node", "node", "node --title secret.js server.js", "node"},
    {"/usr/bin/node", "node", "node --title=a secret.js server.js", "node"},
    {"/usr/bin/bash", "bash", "bash --rcfile secret.sh x.sh", "bash"},
    {"/usr/bin/bash", "bash", "bash --norc x.sh", "x.sh"},
    {"/usr/bin/python3.11", "python3", "python3 -m http.server 80", "http.server"},
    {"/usr/bin/python3.11", "python3", "python3 -c print(1)", "python3.11"},
    {"/usr/bin/python3.11", "python3", "python3", "python3.11"},
    {"/usr/bin/python3.11", "python3", "python3 -", "python3.11"},
    {"/opt/venv/bin/python", "python", "/opt/venv/bin/python /opt/venv/bin/torchrun x.py",
     "python"},
    {"/usr/bin/perl", "perl", "perl -w tool.pl", "tool.pl"},
    {"/usr/bin/perl", "perl", "perl -I lib -w tool.pl", "perl"},
    {"/usr/bin/bash", "bash", "bash -x ./build.sh all", "build.sh"},
    {"/usr/bin/bash", "bash", "-bash", "bash"},
    {"/usr/bin/dash", "sh", "sh -c sleep 1", "dash"},
    {"/usr/bin/bash", "bash", "bash /dev/fd/3 one", "bash"}, /* a descriptor is no name either */
    {"/usr/bin/bash", "bash", "bash /proc/self/fd/63", "bash"},
    {"/usr/bin/python3.11", "python3", "python3 /dev/stdin", "python3.11"},
    {"/usr/bin/bash", "bash", "bash ./dev/fd.sh", "fd.sh"},
    /* Code and arguments are no names: all may see these. */
    {"/usr/bin/bash", "bash", "bash -ce PASSWORD=secret psql", "bash"},
    {"/usr/bin/bash", "bash", "bash -euo pipefail -c PASSWORD=secret psql", "bash"},
    {"/usr/bin/bash", "bash", "bash -euo pipefail ./build.sh", "build.sh"},
    {"/usr/bin/bash", "bash", "bash -s -- secret", "bash"},
    {"/usr/bin/python3.11", "python3", "python3 -cimport secret", "python3.11"},
    {"/usr/bin/python3.11", "python3", "python3 - secret", "python3.11"},
    {"/usr/bin/python3.11", "python3", "python3 -Imhttp.server 80", "http.server"},
    {"/usr/bin/perl", "perl", "perl -nE say secret", "perl"},
    {"/usr/bin/node", "node", "node --eval secret", "node"},
    {"/usr/bin/node", "node", "node --eval=a secret", "node"},
    {"/usr/bin/php", "php", "php -d a=b --run secret", "php"},
    {"/usr/bin/node", "node", "node --max-old-space-size=100 server.js", "server.js"},
    {"/usr/sbin/nginx", "nginx", "nginx: worker process", "nginx"},
    {"/usr/bin/pythonic", "pythonic", "pythonic x.py", "pythonic"},
    {"/srv/app/server", "server", "./server --port 80", "server"},
    /* By the name that it was started with: one file, several programs. */
    {"/usr/bin/redis-check-rdb", "redis-server", "/usr/bin/redis-server 127.0.0.1:6379",
     "redis-server"},
    {"/usr/bin/redis-check-rdb", "redis-server", "redis-server *:6379", "redis-server"},
    {"/usr/bin/busybox", "httpd", "httpd -f", "httpd"},
    {"/usr/lib/x", "a-very-long-pro", "/usr/bin/a-very-long-program y", "a-very-long-program"},
    {"/usr/bin/redis-check-rdb", "io_thd_1", "redis-server *:6379", "redis-check-rdb"},
    {"/usr/bin/python3.11", "python3", "python3", "python3.11"},
    {"", "kworker/0:1", "", "kworker/0:1"},
    {"", "", "/a/b/c d", "c"},
    {"", "", "", "?"},
    {"/", "", "", "?"},
    {"/srv/app/server (deleted)", "server", "./server --port 80", "server"},
};

static void names_are_those_of_programs_not_of_interpreters(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char name[64];
        ledger_name(cases[i].exe, cases[i].comm, cases[i].command, name, sizeof(name));
        assert_string_equal(name, cases[i].name);
    }
}

static void long_name_is_cut(void **state)
{
    char name[8];
    ledger_name("/usr/bin/a-very-long-name", "b", "a", name, sizeof(name));
    assert_string_equal(name, "a-very-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_programs_not_of_interpreters),
        cmocka_unit_test(long_name_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
