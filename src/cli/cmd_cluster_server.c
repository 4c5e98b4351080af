/* memoir cluster init, invite, join and leave: the files that tell memoird where its cluster is, and the configuration of a
 * private nats-server, which memoird runs.
 *
 *     STATE/cluster.conf          where this node's cluster is, with its account; read by memoird
 *     STATE/cluster/nats.conf     the private server's configuration
 *     STATE/cluster/accounts      one line for each node: ID PASSWORD
 *
 * Each node has an account of its own, and the server lets it publish only under its own ID (src/cluster/subject.h). */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/token_line.h"
#include "cli/cluster.h"
#include "cli/ps.h"

enum { HOST_SIZE = 256, FILE_MAX = 4 << 20, ID_CHARS = 32, PATH_SIZE = PS_STATE_PATH_MAX + 64 };

#define AT(field) offsetof(struct cluster_values, field)

struct account {
    char id[ID_CHARS + 1], password[TOKEN_CHARS + 1];
};

/* ---- files ---- */

int cluster_state_find(const struct cluster_values *v, char path[static PS_STATE_PATH_MAX])
{
    int r = COMMAND_OK;
    if (v->state)
        snprintf(path, PS_STATE_PATH_MAX, "%s", v->state);
    else
        r = ps_state_find_own(path);
    if (r != COMMAND_OK)
        return r;
    r = fs_mkdir_all(path, 0700);
    return r < 0 ? command_fail("cannot use '%s': %s", path, strerror(-r)) : COMMAND_OK;
}

int cluster_file_write(const char *path, const struct buffer *text)
{
    char fresh[PATH_SIZE + 8];
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    (void)unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd < 0 ? -errno : text->error ? text->error : fs_write_all(fd, text->data, text->len);
    if (fd >= 0)
        close(fd);
    if (r >= 0 && rename(fresh, path) < 0)
        r = -errno;
    return r < 0 ? command_fail("cannot write '%s': %s", path, strerror(-r)) : COMMAND_OK;
}

static int account_make(struct account *ret)
{
    uint8_t random[ID_CHARS / 2];
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return -EIO;
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(ret->id + 2 * i, 3, "%02x", random[i]);
    return token_make(ret->password);
}

/* ---- the server's configuration ---- */

/* No allow_responses: who sends itself a message may name any subject as the one to answer to, and then publish there as another
 * node. Answers to `nats service ls` need the inboxes only, which no node listens to. */
static void account_write(const char *id, const char *password, struct buffer *out)
{
    buffer_printf(out,
                  "      { user: \"%s\", password: \"%s\", permissions: {\n"
                  "          publish: { allow: [\"memoir.1.beat.%s\", \"memoir.1.ask.%s\", "
                  "\"memoir.1.to.*.%s\", \"memoir.1.re.*.%s\", \"_INBOX.>\"] },\n"
                  "          subscribe: { allow: [\"memoir.1.beat.*\", \"memoir.1.ask.*\", "
                  "\"memoir.1.to.%s.*\", \"memoir.1.re.%s.*\", \"$SRV.>\", "
                  "\"$SYS.ACCOUNT.*.DISCONNECT\"] } } }\n",
                  id, password, id, id, id, id, id, id);
}

static void head_write(const struct cluster_values *v, const char *dir, struct buffer *out)
{
    buffer_printf(out,
                  "# Written by memoir cluster; memoird runs nats-server with it.\n"
                  "listen: \"%s\"\n"
                  "server_name: \"memoir\"\n"
                  "pid_file: \"%s/nats.pid\"\n"
                  "log_file: \"%s/nats.log\"\n"
                  "logfile_size_limit: 10MB\n"
                  "# A hung node or server is seen within 4 s; the default is minutes.\n"
                  "ping_interval: \"2s\"\n"
                  "ping_max: 2\n"
                  "write_deadline: \"2s\"\n"
                  "max_connections: 8192\n",
                  v->listen, dir, dir);
    if (v->tls_cert)
        buffer_printf(out, "tls { cert_file: \"%s\", key_file: \"%s\" }\n", v->tls_cert,
                      v->tls_key ? v->tls_key : "");
    buffer_append_str(out, "include \"accounts.conf\"\n");
}

/* accounts.conf from the list of accounts. */
static int accounts_publish(const char *dir, const struct buffer *accounts)
{
    char path[PATH_SIZE + 32];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(FILE_MAX);
    MEMOIR_CLEANUP(freep)
    char *copy = strdup(buffer_string(accounts)), *rest = copy, *line;
    buffer_append_str(&out, "system_account: SYS\n"
                            "accounts {\n"
                            "  SYS { exports: [ { stream: \"$SYS.ACCOUNT.*.DISCONNECT\" } ] }\n"
                            "  MEMOIR {\n"
                            "    imports: [ { stream: { account: SYS, subject: "
                            "\"$SYS.ACCOUNT.*.DISCONNECT\" } } ]\n"
                            "    users: [\n");
    while (copy && (line = strsep(&rest, "\n")) != NULL) {
        char *password = strchr(line, ' ');
        if (!password)
            continue;
        *password++ = '\0';
        account_write(line, password, &out);
    }
    buffer_append_str(&out, "    ]\n  }\n}\n");
    snprintf(path, sizeof(path), "%s/accounts.conf", dir);
    return cluster_file_write(path, &out);
}

static int account_add(const char *dir, const struct account *account)
{
    char path[PATH_SIZE + 32];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(FILE_MAX);
    snprintf(path, sizeof(path), "%s/accounts", dir);
    int r = fs_read_file(path, &text);
    if (r < 0 && r != -ENOENT)
        return command_fail("cannot read '%s': %s", path, strerror(-r));
    buffer_printf(&text, "%s %s\n", account->id, account->password);
    r = cluster_file_write(path, &text);
    return r == COMMAND_OK ? accounts_publish(dir, &text) : r;
}

/* ---- where this node's cluster is ---- */

static int node_write(const struct cluster_values *v, const char *state, const char *url,
                      const struct account *account, const char *server)
{
    char path[PATH_SIZE];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(FILE_MAX);
    buffer_printf(&out, "# Written by memoir cluster; memoird reads it.\ncluster = %s\n", url);
    if (account)
        buffer_printf(&out, "cluster-id = %s\ncluster-user = %s\ncluster-password = %s\n",
                      account->id, account->id, account->password);
    if (v->name)
        buffer_printf(&out, "cluster-name = %s\n", v->name);
    if (v->tls_ca)
        buffer_printf(&out, "cluster-tls-ca = %s\n", v->tls_ca);
    if (server)
        buffer_printf(&out, "cluster-server = %s\n", server);
    snprintf(path, sizeof(path), "%s/cluster.conf", state);
    return cluster_file_write(path, &out);
}

int cluster_reload(const struct cluster_values *v)
{
    MEMOIR_CLEANUP(cluster_decrefp)
    json_t *cluster = NULL;
    int r = cluster_request(v->socket, "{\"cluster\":\"reload\"}", &cluster);
    if (r != COMMAND_OK)
        fputs("memoir: memoird takes it up when it starts\n", stderr);
    return COMMAND_OK;
}

static const char *port_of(const char *listen)
{
    const char *colon = strrchr(listen, ':');
    return colon ? colon + 1 : listen;
}

/* By which other machines reach this one, and what a certificate is made out to. */
static void public_name(const struct cluster_values *v, char ret_host[static HOST_SIZE])
{
    if (v->advertise)
        snprintf(ret_host, HOST_SIZE, "%s", v->advertise);
    else if (gethostname(ret_host, HOST_SIZE - 1) < 0)
        strcpy(ret_host, "localhost");
}

/* Where memoird itself finds the server that it runs. */
static void own_url(const struct cluster_values *v, char *ret_url, size_t size)
{
    char host[HOST_SIZE] = "";
    int len = (int)(strrchr(v->listen, ':') - v->listen);
    bool everywhere =
        len == 0 || strncmp(v->listen, "0.0.0.0:", 8) == 0 || strncmp(v->listen, "[::]:", 5) == 0;
    if (v->tls_cert)
        public_name(v, host);
    else if (everywhere)
        strcpy(host, "127.0.0.1");
    else
        snprintf(host, sizeof(host), "%.*s", len, v->listen);
    snprintf(ret_url, size, "%s://%s:%s", v->tls_cert ? "tls" : "nats", host, port_of(v->listen));
}

static void line_print(const struct cluster_values *v, const struct account *account,
                       const char *port)
{
    char host[HOST_SIZE] = "";
    public_name(v, host);
    printf("memoir cluster join %s://%s:%s@%s:%s\n", v->tls_cert ? "tls" : "nats", account->id,
           account->password, host, port);
}

/* ---- init ---- */

static int init_run(const void *values, const struct operands *operands)
{
    const struct cluster_values *v = values;
    char state[PS_STATE_PATH_MAX], dir[PATH_SIZE], path[PATH_SIZE + 32], url[HOST_SIZE + 64];
    struct account own, next;
    if (!strchr(v->listen, ':'))
        return command_misuse(&cmd_cluster_init, "invalid address '%s': expected HOST:PORT",
                              v->listen);
    if (!v->tls_cert != !v->tls_key)
        return command_misuse(&cmd_cluster_init, "--tls-cert and --tls-key belong together");
    int r = cluster_state_find(v, state);
    if (r != COMMAND_OK)
        return r;
    snprintf(dir, sizeof(dir), "%s/cluster", state);
    snprintf(path, sizeof(path), "%s/cluster.conf", state);
    if (access(path, F_OK) == 0)
        return command_fail("this node is in a cluster already: 'memoir cluster leave' first, or "
                            "'memoir cluster invite' for further nodes");
    r = fs_mkdir_all(dir, 0700);
    if (r < 0)
        return command_fail("cannot use '%s': %s", dir, strerror(-r));
    snprintf(path, sizeof(path), "%s/accounts", dir);
    (void)unlink(path);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer head = BUFFER_INIT(FILE_MAX);
    head_write(v, dir, &head);
    snprintf(path, sizeof(path), "%s/nats.conf", dir);
    r = cluster_file_write(path, &head);
    if (r == COMMAND_OK && (account_make(&own) < 0 || account_make(&next) < 0))
        r = command_fail("no random numbers yet: try again");
    if (r == COMMAND_OK)
        r = account_add(dir, &own);
    if (r == COMMAND_OK)
        r = account_add(dir, &next);
    own_url(v, url, sizeof(url));
    if (r == COMMAND_OK)
        r = node_write(v, state, url, &own, v->listen);
    if (r == COMMAND_OK)
        r = cluster_reload(v);
    if (r != COMMAND_OK)
        return r;
    fputs("The cluster's server listens at ", stderr);
    fprintf(stderr, "%s%s.\nOn the next machine, once:\n", v->listen,
            v->tls_cert ? " with TLS" : " without TLS, so use it on a network that you trust");
    line_print(v, &next, port_of(v->listen));
    fputs("For each further machine: memoir cluster invite\n", stderr);
    return COMMAND_OK;
}

#define OPTION_STATE                                                                                    \
    {                                                                                                   \
        "state", 0, OPTION_STRING, AT(state), "DIR",                                                    \
            "memoird's state directory (default: that of your own daemon that runs, else its default)", \
            .completion = COMPLETE_DIRECTORY                                                            \
    }
#define OPTION_ADVERTISE                                                               \
    {                                                                                  \
        "advertise", 0, OPTION_STRING, AT(advertise), "HOST",                          \
            "the name by which other machines reach this one (default: the host name)" \
    }
#define OPTION_NAME                                                                              \
    {                                                                                            \
        "name", 0, OPTION_STRING, AT(name), "NAME", "name of this node (default: the host name)" \
    }

static const struct option_spec init_options[] = {
    OPTION_HELP,
    {"listen", 0, OPTION_STRING, AT(listen), "HOST:PORT",
     "where the server listens (default: 0.0.0.0:4222)"},
    OPTION_ADVERTISE,
    OPTION_NAME,
    {"tls-cert", 0, OPTION_STRING, AT(tls_cert), "FILE",
     "serve by TLS with this certificate (PEM)"},
    {"tls-key", 0, OPTION_STRING, AT(tls_key), "FILE", "its private key (PEM)"},
    {"tls-ca", 0, OPTION_STRING, AT(tls_ca), "FILE", "the authority that vouches for it (PEM)"},
    OPTION_STATE,
    OPTION_CLUSTER_SOCKET,
    {0},
};
static const struct command_example init_examples[] = {
    {"sudo memoir cluster init", "start a cluster; prints the line for the next machine"},
    {"sudo memoir cluster init --listen 10.0.0.1:4222 --advertise 10.0.0.1",
     "the same at one address of this machine"},
    {0},
};
const struct command cmd_cluster_init = {
    .name = "cluster init",
    .usage = "cluster init [OPTION...]",
    .help = "start a cluster with a private NATS server beside memoird",
    .description =
        "Makes this machine the first node of a cluster: memoird runs a nats-server of its own, with an account for each node that "
        "may speak for that node only. Prints the line by which the next machine joins. With a NATS server of your own you do not "
        "need this: see memoird --cluster.",
    .options = init_options,
    .examples = init_examples,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = init_run,
};

/* ---- invite ---- */

/* The address in a line "listen: "HOST:PORT"" of the server's configuration. */
static int port_read(const char *dir, char *ret_port, size_t size, bool *ret_tls)
{
    char path[PATH_SIZE + 32];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(FILE_MAX);
    snprintf(path, sizeof(path), "%s/nats.conf", dir);
    int r = fs_read_file(path, &text);
    const char *at = r < 0 ? NULL : strstr(buffer_string(&text), "listen: \"");
    if (!at)
        return command_fail(
            "this machine runs no server of a cluster: 'memoir cluster init' makes one");
    char listen[128];
    snprintf(listen, sizeof(listen), "%.*s", (int)strcspn(at + 9, "\""), at + 9);
    snprintf(ret_port, size, "%.8s", port_of(listen));
    *ret_tls = strstr(buffer_string(&text), "\ntls {") != NULL;
    return COMMAND_OK;
}

static int invite_run(const void *values, const struct operands *operands)
{
    struct cluster_values v = *(const struct cluster_values *)values;
    char state[PS_STATE_PATH_MAX], dir[PATH_SIZE], port[16];
    struct account next;
    bool tls = false;
    int r = cluster_state_find(&v, state);
    if (r != COMMAND_OK)
        return r;
    snprintf(dir, sizeof(dir), "%s/cluster", state);
    r = port_read(dir, port, sizeof(port), &tls);
    if (r != COMMAND_OK)
        return r;
    if (account_make(&next) < 0)
        return command_fail("no random numbers yet: try again");
    r = account_add(dir, &next);
    if (r == COMMAND_OK)
        r = cluster_reload(&v);
    v.tls_cert = tls ? "" : NULL;
    if (r == COMMAND_OK)
        line_print(&v, &next, port);
    return r;
}

static const struct option_spec invite_options[] = {
    OPTION_HELP, OPTION_ADVERTISE, OPTION_STATE, OPTION_CLUSTER_SOCKET, {0},
};
static const struct command_example invite_examples[] = {
    {"sudo memoir cluster invite", "the line for one more machine"},
    {0},
};
const struct command cmd_cluster_invite = {
    .name = "cluster invite",
    .usage = "cluster invite [OPTION...]",
    .help = "an account for one more node of the private server",
    .description =
        "Makes an account at the private server that memoir cluster init started, and prints the line by which one "
        "machine joins with it.",
    .options = invite_options,
    .examples = invite_examples,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = invite_run,
};

/* ---- join, leave ---- */

/* nats://ID:PASSWORD@HOST:PORT apart, or any URL as it is. */
static int line_split(const char *line, char *ret_url, size_t size, struct account *ret_account,
                      bool *ret_has_account)
{
    const char *scheme = strstr(line, "://"), *at = strrchr(line, '@');
    const char *colon = scheme ? strchr(scheme + 3, ':') : NULL;
    *ret_has_account = false;
    if (!scheme || strchr(line, '\n') || strlen(line) >= size)
        return -EINVAL;
    snprintf(ret_url, size, "%s", line);
    if (!at || !colon || colon > at || colon - scheme - 3 != ID_CHARS ||
        (size_t)(at - colon - 1) >= sizeof(ret_account->password))
        return 0;
    snprintf(ret_account->id, sizeof(ret_account->id), "%.*s", ID_CHARS, scheme + 3);
    snprintf(ret_account->password, sizeof(ret_account->password), "%.*s", (int)(at - colon - 1),
             colon + 1);
    snprintf(ret_url, size, "%.*s%s", (int)(scheme + 3 - line), line, at + 1);
    *ret_has_account = true;
    return 0;
}

/* From standard input: its last word, so that the whole line that init printed will do. The arguments of a program can be read by
 * every user, and sudo writes them to its log. */
static const char *line_take(const char *word, char *line, size_t size)
{
    if (strcmp(word, "-") != 0)
        return word;
    if (!fgets(line, (int)size, stdin))
        return "";
    line[strcspn(line, "\r\n")] = '\0';
    const char *space = strrchr(line, ' ');
    return space ? space + 1 : line;
}

static int join_run(const void *values, const struct operands *operands)
{
    const struct cluster_values *v = values;
    char state[PS_STATE_PATH_MAX], url[512], line[512];
    struct account account;
    bool has_account;
    if (operands->n != 1)
        return command_misuse(&cmd_cluster_join,
                              "missing argument: the line that init or invite printed");
    const char *word = line_take(operands->words[0], line, sizeof(line));
    int r = line_split(word, url, sizeof(url), &account, &has_account) < 0
                ? command_misuse(&cmd_cluster_join, "%s: expected nats://ID:PASSWORD@HOST:PORT",
                                 word == operands->words[0] ? "invalid line"
                                                            : "invalid line on standard input")
                : cluster_state_find(v, state);
    if (r == COMMAND_OK)
        r = node_write(v, state, url, has_account ? &account : NULL, NULL);
    explicit_bzero(line, sizeof(line));
    return r == COMMAND_OK ? cluster_reload(v) : r;
}

static const struct option_spec join_options[] = {
    OPTION_HELP,
    OPTION_NAME,
    {"tls-ca", 0, OPTION_STRING, AT(tls_ca), "FILE",
     "the authority that vouches for the server (PEM)"},
    OPTION_STATE,
    OPTION_CLUSTER_SOCKET,
    {0},
};
static const struct command_example join_examples[] = {
    {"sudo memoir cluster join nats://ID:PASSWORD@HOST:4222",
     "join, with the line that init printed"},
    {"ssh one sudo memoir cluster invite | sudo memoir cluster join -",
     "the same, with the line from standard input: other users of the machine cannot see the password"},
    {0},
};
const struct command cmd_cluster_join = {
    .name = "cluster join",
    .usage = "cluster join LINE [OPTION...]",
    .help = "join a cluster with the line that init or invite printed",
    .description =
        "Tells this machine's memoird where its cluster is and how to log in there. It takes effect at once, and stays. LINE - reads the "
        "line from standard input: arguments can be read by every user of the machine, and stay in the shell's history and sudo's log.",
    .options = join_options,
    .examples = join_examples,
    .operands_max = 1,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = join_run,
};

static int leave_run(const void *values, const struct operands *operands)
{
    const struct cluster_values *v = values;
    char state[PS_STATE_PATH_MAX], path[PATH_SIZE + 32];
    static const char *const files[] = {"cluster.conf", "cluster/nats.conf",
                                        "cluster/accounts.conf", "cluster/accounts"};
    int r = cluster_state_find(v, state);
    if (r != COMMAND_OK)
        return r;
    snprintf(path, sizeof(path), "%s/cluster.conf", state);
    if (access(path, F_OK) < 0) {
        command_fail("this node joined no cluster by 'memoir cluster'");
        return COMMAND_NOTHING;
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(path, sizeof(path), "%s/%s", state, files[i]);
        if (unlink(path) < 0 && errno != ENOENT)
            return command_fail("cannot remove '%s': %s", path, strerror(errno));
    }
    return cluster_reload(v);
}

static const struct option_spec leave_options[] = {
    OPTION_HELP,
    OPTION_STATE,
    OPTION_CLUSTER_SOCKET,
    {0},
};
static const struct command_example leave_examples[] = {
    {"sudo memoir cluster leave", "leave the cluster; on the machine of init its server stops"},
    {0},
};
const struct command cmd_cluster_leave = {
    .name = "cluster leave",
    .usage = "cluster leave [OPTION...]",
    .help = "leave the cluster",
    .description =
        "Undoes memoir cluster init or join: memoird says goodbye to the others, and the private server, if it runs on "
        "this machine, stops.",
    .options = leave_options,
    .examples = leave_examples,
    .values_size = sizeof(cluster_defaults),
    .defaults = &cluster_defaults,
    .run = leave_run,
};
