/* Where memoird keeps its state: see ps.h. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/ps.h"

enum { ANSWER_MAX = 1 << 16 };

void ps_state_default(char path[static PS_STATE_PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    path[0] = '\0';
    if (geteuid() == 0)
        snprintf(path, PS_STATE_PATH_MAX, "/var/lib/memoir");
    else if (state && state[0] == '/')
        snprintf(path, PS_STATE_PATH_MAX, "%s/memoir", state);
    else if (home && home[0] == '/')
        snprintf(path, PS_STATE_PATH_MAX, "%s/.local/state/memoir", home);
}

/* What the daemon at the other end says: an absolute path. -ENODATA where it tells none. */
static int state_ask(int fd, char ret_path[static PS_STATE_PATH_MAX])
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer line = BUFFER_INIT(ANSWER_MAX);
    int r = ask_line(fd, "{\"hello\":1}", &line);
    if (r < 0)
        return r;
    json_t *answer = json_loadb(line.data, line.len, 0, NULL);
    const char *state = json_string_value(json_object_get(answer, "state"));
    r = state && state[0] == '/' && strlen(state) < PS_STATE_PATH_MAX ? 0 : -ENODATA;
    if (r == 0)
        snprintf(ret_path, PS_STATE_PATH_MAX, "%s", state);
    json_decref(answer);
    return r;
}

/* False where no daemon runs, or where we may not read its state. */
static bool told(char path[static PS_STATE_PATH_MAX])
{
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect(NULL);
    return fd >= 0 && state_ask(fd, path) == 0 && access(path, R_OK | X_OK) == 0;
}

const char *ps_state_find(const char *asked)
{
    static char found[PS_STATE_PATH_MAX];
    static bool looked;
    if (asked)
        return asked;
    if (!looked && !told(found))
        ps_state_default(found);
    looked = true;
    return found;
}

/* ---- to write there ---- */

static bool nobody_listens(int error)
{
    return error == -ENOENT || error == -ECONNREFUSED;
}

/* Like ask_connect(), but a daemon of ours that cannot be reached is not passed over for the machine's. */
static int connect_strictly(char ret_socket[static ASK_PATH_MAX])
{
    ask_own_path(ret_socket);
    int fd = *ret_socket ? ask_connect_within(ret_socket, ASK_PATIENCE_S) : -ENOENT;
    if (!nobody_listens(fd))
        return fd;
    snprintf(ret_socket, ASK_PATH_MAX, "%s", ASK_MACHINE_PATH);
    return ask_connect_within(ret_socket, ASK_PATIENCE_S);
}

int ps_state_find_own(char ret_path[static PS_STATE_PATH_MAX])
{
    char socket_path[ASK_PATH_MAX];
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    struct stat state;
    MEMOIR_CLEANUP(closep)
    int fd = connect_strictly(socket_path);
    if (nobody_listens(fd)) {
        ps_state_default(ret_path);
        return *ret_path ? COMMAND_OK
                         : command_fail("no directory for state: set --state DIR, or HOME");
    }
    if (fd < 0)
        return command_fail("memoird at %s cannot be asked where it keeps its tokens: %s; ask as "
                            "its user, or name --state",
                            socket_path, strerror(-fd));
    /* A socket is where its owner wants it, and its answer what the owner likes: we follow our own only. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return -errno;
    if (peer.uid != geteuid())
        return command_fail("memoird at %s runs as another user (uid %u): ask as its user, or name "
                            "--state",
                            socket_path, (unsigned)peer.uid);
    int r = state_ask(fd, ret_path);
    if (r < 0)
        return command_fail(
            "memoird at %s does not tell where it keeps its tokens: %s; name --state", socket_path,
            strerror(-r));
    if (stat(ret_path, &state) < 0 || !S_ISDIR(state.st_mode) || state.st_uid != geteuid() ||
        access(ret_path, R_OK | W_OK | X_OK) < 0)
        return command_fail(
            "memoird at %s keeps its tokens in %s: ask as its user, or name --state", socket_path,
            ret_path);
    return COMMAND_OK;
}
