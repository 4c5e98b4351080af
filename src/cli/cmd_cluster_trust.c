/* memoir cluster trust: which nodes vouch for their users here. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "cli/cluster.h"
#include "cli/ps.h"

enum { FILE_MAX = 4 << 20, ID_CHARS = 32, KEY_CHARS = 64, HEX = 16 };

#define AT(field) offsetof(struct cluster_values, field)

static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n;
}

/* ID+KEY[:USER=LOCAL...] */
static bool is_valid(const char *word)
{
    if (!is_hex(word, ID_CHARS) || word[ID_CHARS] != '+' || !is_hex(word + ID_CHARS + 1, KEY_CHARS))
        return false;
    const char *rest = word + ID_CHARS + 1 + KEY_CHARS;
    return *rest == '\0' || (*rest == ':' && strchr(rest, '=') && !strpbrk(rest, " \t,\n"));
}

/* The file with the word added to its list, in place of what it had of the same node. */
static void list_change(const struct buffer *text, const char *word, bool remove,
                        struct buffer *out)
{
    static const char key[] = "cluster-trust = ";
    MEMOIR_CLEANUP(freep)
    char *copy = strdup(buffer_string(text));
    MEMOIR_CLEANUP(buffer_release)
    struct buffer list = BUFFER_INIT(FILE_MAX);
    char *rest = copy, *line, *one;
    if (!copy)
        out->error = -ENOMEM;
    while (rest && (line = strsep(&rest, "\n")) != NULL) {
        if (strncmp(line, key, sizeof(key) - 1) != 0) {
            if (*line)
                buffer_printf(out, "%s\n", line);
            continue;
        }
        for (char *words = line + sizeof(key) - 1; (one = strsep(&words, " ,\t")) != NULL;)
            if (*one && strncmp(one, word, ID_CHARS) != 0)
                buffer_printf(&list, " %s", one);
    }
    if (!remove)
        buffer_printf(&list, " %s", word);
    if (list.len)
        buffer_printf(out, "%s%s\n", key, buffer_string(&list) + 1);
}

static int run(const void *values, const struct operands *operands)
{
    const struct cluster_values *v = values;
    char state[PS_STATE_PATH_MAX], path[PS_STATE_PATH_MAX + 32];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(FILE_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(FILE_MAX);
    if (operands->n != 1)
        return command_misuse(
            &cmd_cluster_trust,
            "missing argument: what 'memoir cluster key' prints on the other node");
    const char *word = operands->words[0];
    if (!is_valid(word) && !(v->remove && is_hex(word, ID_CHARS)))
        return command_misuse(
            &cmd_cluster_trust,
            "invalid node '%s': expected ID+KEY as 'memoir cluster key' prints it "
            "there, and perhaps :USER=LOCAL",
            word);
    int r = cluster_state_find(v, state);
    if (r != COMMAND_OK)
        return r;
    snprintf(path, sizeof(path), "%s/cluster.conf", state);
    r = fs_read_file(path, &text);
    if (r == -ENOENT)
        return command_fail("this node joined no cluster by 'memoir cluster': set cluster-trust in "
                            "memoird.conf instead");
    if (r < 0)
        return command_fail("cannot read '%s': %s", path, strerror(-r));
    list_change(&text, word, v->remove, &out);
    r = cluster_file_write(path, &out);
    return r == COMMAND_OK ? cluster_reload(v) : r;
}

static const struct option_spec options[] = {
    OPTION_HELP,
    {"remove", 0, OPTION_FLAG, AT(remove), NULL, "trust this node no longer; its ID will do"},
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "memoird's state directory (default: that of your own daemon that runs, else its default)",
     .completion = COMPLETE_DIRECTORY},
    OPTION_CLUSTER_SOCKET,
    {0},
};
static const struct command_example examples[] = {
    {"sudo memoir cluster trust ID+KEY", "users of that node are the local users of the same name"},
    {"sudo memoir cluster trust ID+KEY:root=root",
     "root of that node is root here, and no other user"},
    {0},
};
const struct command cmd_cluster_trust = {
    .name = "cluster trust",
    .usage = "cluster trust ID+KEY[:USER=LOCAL...] [OPTION...]",
    .help = "let another node vouch for its users here",
    .description =
        "Takes the word that memoir cluster key prints on the other node. Users of that node then see here what the local user of the same "
        "name sees, and may act on that user's processes; with USER=LOCAL one user is mapped and no other. root is matched only by "
        "root=root. For nodes that joined by memoir cluster; others have cluster-trust in memoird.conf.",
    .options = options,
    .examples = examples,
    .operands_max = 1,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = run,
};
