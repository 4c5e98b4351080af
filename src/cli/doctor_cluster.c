/* Is memoird in a cluster, and do the other nodes answer? See doctor.h. */
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/ask.h"
#include "cli/cluster.h"
#include "cli/doctor.h"

enum { ANSWER_MAX = 16 << 20 };

static void check_cluster(struct doctor *d)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(ANSWER_MAX);
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect(NULL);
    if (fd < 0 || ask_line(fd, "{\"cluster\":\"status\"}", &text) < 0)
        return; /* another check tells whether memoird runs */
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *answer = json_loadb(text.data, text.len, 0, NULL);
    const json_t *cluster = json_object_get(answer, "cluster"), *member;
    const char *state = json_string_value(json_object_get(cluster, "state"));
    const char *problem = json_string_value(json_object_get(cluster, "problem"));
    const char *server = json_string_value(json_object_get(cluster, "server"));
    size_t i, alive = 0, unreachable = 0;
    if (!state)
        return;
    if (strcmp(state, "none") == 0) {
        doctor_find(d, DOCTOR_OK, NULL, "memoird is in no cluster");
        return;
    }
    json_array_foreach(json_object_get(cluster, "members"), i, member)
    {
        const char *word = json_string_value(json_object_get(member, "state"));
        alive += word && strcmp(word, "alive") == 0;
        unreachable += word && strcmp(word, "unreachable") == 0;
    }
    if (strcmp(state, "connected") != 0)
        doctor_find(d, DOCTOR_WARN, "see memoird's log, and doc/cluster.md",
                    "no connection to the cluster's server: %s", problem ? problem : state);
    else if (unreachable)
        doctor_find(d, DOCTOR_WARN, "memoir cluster status names them",
                    "%zu of %zu nodes of the cluster are unreachable", unreachable,
                    alive + unreachable);
    else
        doctor_find(d, DOCTOR_OK, NULL, "%zu node%s of the cluster at %s", alive,
                    alive == 1 ? "" : "s", server ? server : "its server");
}

const struct doctor_check doctor_cluster_checks[] = {{"cluster", check_cluster}, {0}};
