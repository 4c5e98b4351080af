/* For whom may who is at the other end of a socket speak? */
#include "daemon/peer.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "check.h"
#include "ledger/pidns.h"
#include "ledger/proc.h"

/* A peer that is this process, or for tests made to look like another one. */
static struct peer self(void)
{
    struct peer peer;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(peer_init(&peer, fds[0]), 0);
    close(fds[0]);
    close(fds[1]);
    return peer;
}

static pid_t sleeper(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void the_kernel_tells_who_it_is(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    assert_false(peer.remote);
    assert_int_equal(peer.pid, getpid());
    assert_int_equal(peer.uid, geteuid());
    assert_true(peer.start_ticks > 0);
    assert_true(peer.n_pids >= 1);
    assert_true(peer_is_own(&peer, getpid()));
    assert_false(peer_is_own(&peer, 0));
    assert_false(peer_is_own(&peer, -1));
}

static void he_speaks_for_himself_and_his_children(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    peer.uid = peer.uid == 0 ? 0 : peer.uid;
    struct peer_process process = {0};
    pid_t child = sleeper();
    assert_int_equal(peer_resolve(&peer, getpid(), &process), 0);
    assert_int_equal(process.pid, getpid());
    assert_int_equal(process.start_ticks, peer.start_ticks);
    assert_int_equal(peer_resolve(&peer, child, &process), 0);
    assert_int_equal(process.pid, child);
    assert_true(peer_is_known(&peer, child));
    end(child);
    peer_forget(&peer, child);
    assert_false(peer_is_known(&peer, child));
    assert_int_equal(peer_resolve(&peer, child, &process), -ESRCH);
}

static void he_does_not_speak_for_strangers(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    struct peer_process process = {.pid = -7};
    pid_t child = sleeper();
    /* As another user: the parent of this process is no child of it, and a child is not of his uid. */
    peer.uid = 54321;
    assert_int_equal(peer_resolve(&peer, getppid(), &process), -EPERM);
    assert_int_equal(peer_resolve(&peer, 1, &process), -EPERM);
    assert_int_equal(peer_resolve(&peer, child, &process), -EPERM);
    assert_int_equal(peer_resolve(&peer, 0, &process), -EPERM);
    assert_int_equal(peer_resolve(&peer, -1, &process), -EPERM);
    assert_int_equal(process.pid, -7);
    end(child);
}

static void a_sibling_is_a_stranger(void **state)
{
    pid_t first = sleeper(), second = sleeper();
    struct peer_process process;
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    if (peer.uid == 0) { /* root may speak for anybody */
        assert_int_equal(peer_resolve(&peer, first, &process), 0);
        end(first);
        end(second);
        return;
    }
    peer.pid = first;
    peer.pids[0] = first;
    assert_int_equal(peer_resolve(&peer, second, &process), -EPERM);
    end(first);
    end(second);
}

static void root_speaks_for_anybody(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    peer.uid = 0;
    struct peer_process process;
    assert_int_equal(peer_resolve(&peer, getppid(), &process), 0);
    assert_int_equal(process.pid, getppid());
    assert_int_equal(peer_resolve(&peer, 0x7ffffff0, &process), -ESRCH);
    assert_true(peer_may_see(&peer, 54321));
}

static void another_process_with_his_pid_is_not_him(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    peer.uid = 54321;
    peer.start_ticks--; /* he began at another time, so he is gone */
    struct peer_process process;
    assert_int_equal(peer_resolve(&peer, getpid(), &process), -ESRCH);
}

static void he_is_not_himself_as_another_user(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    peer.uid = 54321; /* who connected, and then called exec on a setuid program */
    struct peer_process process;
    assert_int_equal(peer_resolve(&peer, getpid(), &process), -EPERM);
}

static void his_numbers_in_other_namespaces_are_his(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    peer.foreign_ns = true;
    peer.n_pids = 3;
    peer.pids[0] = getpid();
    peer.pids[1] = 1001;
    peer.pids[2] = 7;
    struct peer_process process;
    static const pid_t claims[] = {7, 1001};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(peer_resolve(&peer, claims[i], &process), 0);
        assert_int_equal(process.pid, getpid());
    }
    /* Numbers that he does not have are those of his namespace, not of ours. */
    assert_int_equal(peer_resolve(&peer, getppid(), &process), -ESRCH);
}

/* A process in a pid namespace of its own, where it is 1. Its pid here, or 0 when that is not allowed. */
static pid_t first_of_namespace(void)
{
    int fds[2];
    pid_t pid = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t parent = fork();
    if (parent == 0) {
        pid_t child = unshare(CLONE_NEWPID) == 0 ? fork() : 0;
        if (child == 0 && getpid() == 1) {
            alarm(120); /* should the test fail before it ends this */
            pause();
            _exit(0);
        }
        if (write(fds[1], &child, sizeof(child)) != sizeof(child))
            _exit(1);
        _exit(0);
    }
    waitpid(parent, NULL, 0);
    assert_int_equal(read(fds[0], &pid, sizeof(pid)), sizeof(pid));
    close(fds[0]);
    close(fds[1]);
    return pid;
}

static void a_namespace_is_searched_once_for_many_questions(void **state)
{
    pid_t inner = first_of_namespace(), outer = 0;
    if (inner <= 0)
        skip();
    uint64_t ns;
    struct pidns_map *map;
    assert_int_equal(proc_pid_ns(inner, &ns), 0);
    assert_int_equal(pidns_map_new(&map), 0);
    assert_int_equal(pidns_find_any(map, ns, 1, &outer), 0);
    assert_int_equal(outer, inner);
    for (pid_t pid = 2; pid < 1000; pid++)
        assert_int_equal(pidns_find_any(map, ns, pid, &outer), -EAGAIN);
    assert_int_equal(pidns_find_any(map, UINT64_MAX, 1, &outer), -EAGAIN);
    assert_int_equal(pidns_find_any(map, ns, 1, &outer), 0);
    pidns_map_free(map);
    /* The same by who lives there, however the kernel is asked. */
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    struct peer_process process;
    peer.pid = inner;
    peer.pid_ns = ns;
    peer.foreign_ns = true;
    peer.n_pids = 2;
    peer.pids[0] = peer.pids[1] = 4711; /* not his own, so that it is translated */
    peer.uid = 0;
    assert_int_equal(peer_resolve(&peer, 1, &process), 0);
    assert_int_equal(process.pid, inner);
    assert_int_equal(peer_resolve(&peer, 2, &process), -ESRCH);
    kill(inner, SIGKILL);
}

static void lookups_of_one_user_are_limited_over_all_connections(void **state)
{
    int refused = 0, connections = 2 * PEER_LOOKS_MAX / PEER_LOOKUP_LOOKS / PEER_LOOKUPS_MAX;
    for (int i = 0; i < connections; i++) {
        MEMOIR_CLEANUP(peer_release)
        struct peer peer = self();
        struct peer_process process;
        assert_int_equal(peer_resolve(&peer, getpid(), &process), 0); /* oneself always */
        peer.uid = 54322;
        for (pid_t claim = 1000000; claim < 1000000 + PEER_LOOKUPS_MAX - 1; claim++)
            refused += peer_resolve(&peer, claim, &process) == -EAGAIN;
    }
    assert_true(refused > 0);
}

static void lookups_are_limited(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    peer.uid = 54321;
    struct peer_process process;
    int refused = 0;
    for (pid_t claim = 1000000; claim < 1000100; claim++)
        refused += peer_resolve(&peer, claim, &process) == -EAGAIN;
    assert_in_range(refused, 100 - PEER_LOOKUPS_MAX - 1, 100 - PEER_LOOKUPS_MAX);
    /* The same one again costs nothing and says the same. */
    for (int i = 0; i < 1000; i++)
        assert_int_equal(peer_resolve(&peer, 1000000, &process), -ESRCH);
}

static void who_sees_what(void **state)
{
    MEMOIR_CLEANUP(peer_release)
    struct peer peer = self();
    peer.uid = 500;
    assert_true(peer_may_see(&peer, 500));
    assert_false(peer_may_see(&peer, 501));
    assert_false(peer_may_see(&peer, 0));
    peer.remote = true;
    assert_false(peer_may_see(&peer, 500));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_tells_who_it_is),
        cmocka_unit_test(he_speaks_for_himself_and_his_children),
        cmocka_unit_test(he_does_not_speak_for_strangers),
        cmocka_unit_test(a_sibling_is_a_stranger),
        cmocka_unit_test(root_speaks_for_anybody),
        cmocka_unit_test(another_process_with_his_pid_is_not_him),
        cmocka_unit_test(he_is_not_himself_as_another_user),
        cmocka_unit_test(his_numbers_in_other_namespaces_are_his),
        cmocka_unit_test(a_namespace_is_searched_once_for_many_questions),
        cmocka_unit_test(lookups_are_limited),
        cmocka_unit_test(lookups_of_one_user_are_limited_over_all_connections),
        cmocka_unit_test(who_sees_what),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
