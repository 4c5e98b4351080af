/* memoir token: who may ask memoird over HTTP, and over TCP. Changes memoird's file of tokens, which it reads again. */
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/sha256.h"
#include "cli/command.h"
#include "cli/ps.h"
#include "cli/table.h"
#include "cli/term.h"
#include "cli/token_file.h"

enum { OUTPUT_MAX = 4 << 20 };

static const char *const role_words[] = {"read", "control", NULL};

struct token_values {
    struct command_common common;
    const char *user;
    int role;
    uint64_t expires_ns;
    const char *file, *state;
    bool json, csv, no_header;
    int color;
};

static const struct token_values defaults = {0};

#define AT(field) offsetof(struct token_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"user", 'u', OPTION_STRING, AT(user), "USER",
     "add: it sees what this user sees, root everything (default: you; as root: totals only)",
     .completion = COMPLETE_USER},
    {"role", 0, OPTION_CHOICE, AT(role), "ROLE",
     "add: read may look, control may also act on the user's processes (default: read)",
     .choices = role_words},
    {"expires", 0, OPTION_DURATION, AT(expires_ns), "TIME",
     "add: it is good for so long: 12h, 30d (default: until it is revoked)"},
    {"file", 0, OPTION_STRING, AT(file), "FILE",
     "memoird's token-file (default: tokens in its state directory)"},
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "memoird's state directory (default: that of the memoird of yours that runs; else /var/lib/memoir as root, "
     "$XDG_STATE_HOME/memoir or ~/.local/state/memoir)",
     .completion = COMPLETE_DIRECTORY},
    OPTION_JSON,
    OPTION_CSV,
    OPTION_NO_HEADER,
    OPTION_COLOR,
    {0},
};

enum { COLUMN_NAME, COLUMN_USER, COLUMN_UID, COLUMN_ROLE, COLUMN_EXPIRES, COLUMN_EXPIRED };

static const struct column columns[] = {
    {"name", "NAME", "what it was called", COLUMN_TEXT},
    {"user", "USER", "the user whose commands and call sites it shows; absent: totals only",
     COLUMN_TEXT},
    {"uid", NULL, "the number of that user", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    {"role", "ROLE", "read, or control", COLUMN_TEXT},
    {"expires", "EXPIRES", "until when it is good; absent: until it is revoked", COLUMN_TIME},
    {"expired", NULL, "is that over?", COLUMN_YES, COLUMN_EXPORT_ONLY},
    {0},
};

static const struct command_fields fields[] = {{"FIELDS OF A TOKEN", columns}, {0}};

/* ---- who and where ---- */

static int uid_of(const char *word, uint32_t *ret_uid)
{
    char *end;
    unsigned long number = strtoul(word, &end, 10);
    if (*word >= '0' && *word <= '9' && !*end && number < UINT32_MAX) {
        *ret_uid = (uint32_t)number;
        return 0;
    }
    const struct passwd *user = getpwnam(word);
    if (!user)
        return -ENOENT;
    *ret_uid = user->pw_uid;
    return 0;
}

static int path_of(const struct token_values *v, char *path, size_t size)
{
    char found[PS_STATE_PATH_MAX];
    const char *state = v->state;
    if (v->file) {
        snprintf(path, size, "%s", v->file);
        return COMMAND_OK;
    }
    int r = state ? COMMAND_OK : ps_state_find_own(found);
    if (r != COMMAND_OK)
        return r;
    if (!state)
        state = found;
    r = fs_mkdir_all(state, 0700);
    if (r < 0)
        return command_fail("cannot use '%s': %s", state, strerror(-r));
    snprintf(path, size, "%s/tokens", state);
    return COMMAND_OK;
}

static int file_fail(const char *path, const char *what, int error)
{
    if (error == -EACCES || error == -EPERM)
        return command_fail("cannot %s '%s': it is memoird's; ask as the user that it runs as",
                            what, path);
    return command_fail("cannot %s '%s': %s", what, path, strerror(-error));
}

/* ---- the three words ---- */

static int make(const struct token_values *v, struct token_file *file, const char *name)
{
    struct token_line token = {.control = v->role == 1};
    char secret[TOKEN_CHARS + 1];
    if (!token_name_is_good(name))
        return command_fail("invalid token name '%s': use up to %d letters, digits and . _ - @",
                            name, TOKEN_NAME_MAX);
    if (token_file_find(file, name) >= 0)
        return command_fail(
            "there is a token '%s' already: revoke it first, or choose another name", name);
    strcpy(token.name, name);
    token.has_uid = v->user || geteuid() != 0;
    token.uid = geteuid();
    if (v->user && uid_of(v->user, &token.uid) < 0)
        return command_fail("there is no user '%s'", v->user);
    if (v->expires_ns)
        token.expires_s = (clock_real_ns() + v->expires_ns) / NS_PER_S;
    int r = token_make(secret);
    if (r < 0)
        return r;
    sha256(secret, TOKEN_CHARS, token.digest);
    r = token_file_add(file, &token);
    if (r < 0)
        return file_fail(file->path, "write", r);
    printf("%s\n", secret);
    fflush(stdout);
    if (isatty(STDERR_FILENO))
        fprintf(
            stderr,
            "This is the only time that it is shown. Send it as \"Authorization: Bearer TOKEN\".\n");
    explicit_bzero(secret, sizeof(secret));
    return COMMAND_OK;
}

static void row_of(struct table *table, const struct token_line *token)
{
    const struct passwd *user = token->has_uid ? getpwuid(token->uid) : NULL;
    char number[16];
    snprintf(number, sizeof(number), "%u", token->uid);
    table_row(table);
    table_set_text(table, COLUMN_NAME, token->name);
    if (token->has_uid) {
        table_set_text(table, COLUMN_USER, user ? user->pw_name : number);
        table_set_number(table, COLUMN_UID, token->uid);
    }
    table_set_text(table, COLUMN_ROLE, role_words[token->control]);
    if (token->expires_s)
        table_set_number(table, COLUMN_EXPIRES, token->expires_s * NS_PER_S);
    table_set_number(table, COLUMN_EXPIRED,
                     token->expires_s && token->expires_s <= clock_real_ns() / NS_PER_S);
}

static int list(const struct token_values *v, const struct token_file *file)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    struct table table;
    struct term term;
    struct table_layout layout = {.header = !v->no_header};
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    table_init(&table, columns);
    for (size_t i = 0; i < file->n; i++)
        row_of(&table, &file->tokens[i]);
    int r;
    if (v->json) {
        struct json json;
        command_json_begin(&json, &out, "memoir.tokens/1");
        table_json_rows(&table, "tokens", &json);
        json_object_end(&json);
        r = json_finish(&json);
        buffer_append_char(&out, '\n');
    } else if (v->csv) {
        r = table_print_csv(&table, &layout, &out);
    } else if (file->n == 0) {
        fprintf(stderr, "No tokens in %s; memoir token add NAME makes one.\n", file->path);
        r = 0;
    } else {
        r = table_print(&table, &layout, &term, &out);
    }
    table_release(&table);
    return r < 0 ? r : command_output(&out);
}

static int take_back(struct token_file *file, const char *name)
{
    if (token_file_find(file, name) < 0) {
        (void)command_fail("there is no token '%s'", name);
        return COMMAND_NOTHING;
    }
    int r = token_file_remove(file, name);
    return r < 0 ? file_fail(file->path, "write", r) : COMMAND_OK;
}

static int run(const void *values, const struct operands *operands)
{
    const struct token_values *v = values;
    const char *word = operands->n ? operands->words[0] : "list";
    bool adds = strcmp(word, "add") == 0, revokes = strcmp(word, "revoke") == 0;
    char path[PATH_MAX];
    struct token_file file;
    if (!adds && !revokes && strcmp(word, "list") != 0)
        return command_misuse(&cmd_token, "'%s' is none of add, list and revoke", word);
    if ((adds || revokes) != (operands->n == 2))
        return command_misuse(&cmd_token, adds || revokes ? "%s needs a NAME" : "%s takes no NAME",
                              word);
    if (v->json && v->csv)
        return command_misuse(&cmd_token, "--json and --csv exclude each other");
    if (!adds && (v->user || v->role || v->expires_ns))
        return command_misuse(&cmd_token, "--user, --role and --expires belong to add");
    int r = path_of(v, path, sizeof(path));
    if (r != COMMAND_OK)
        return r;
    r = token_file_open(path, &file);
    if (r < 0)
        return file_fail(path, "read", r);
    r = adds      ? make(v, &file, operands->words[1])
        : revokes ? take_back(&file, operands->words[1])
                  : list(v, &file);
    token_file_close(&file);
    return r;
}

static const struct command_example examples[] = {
    {"sudo memoir token add grafana", "make a token that sees totals, and print it"},
    {"sudo memoir token add ci --user ann --role control --expires 30d",
     "one that sees and may act on ann's processes for a month"},
    {"curl -H \"Authorization: Bearer $TOKEN\" http://localhost:7070/api/v1/processes", "use it"},
    {"sudo memoir token list", "show which there are"},
    {"sudo memoir token revoke grafana", "take it back; memoird refuses it from then on"},
    {0},
};

const struct command cmd_token = {
    .name = "token",
    .usage = "token add NAME [OPTION...] | token list | token revoke NAME",
    .help = "who may ask memoird over HTTP: make, list and revoke tokens",
    .description =
        "A token lets a program ask memoird over HTTP (or, with tcp set, report to it). It is printed once; the file keeps "
        "only its SHA-256. memoird notices a change by itself.\n\n"
        "Browsers need no token: memoir open logs them in.",
    .options = options,
    .examples = examples,
    .fields = fields,
    .operands_max = 2,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
