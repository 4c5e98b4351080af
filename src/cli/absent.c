/* What is not there. See absent.h. */
#include "cli/absent.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/command.h"
#include "cli/term.h"
#include "ledger/ledger.h"

enum { TEXT_MAX = 65536, DEVICES_NAMED_MAX = 16 };

/* Does a device answer to what the user typed? As view_test_device() asks. */
static bool answers_to(const struct ledger_device *device, const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end != text && !*end && number == device->ordinal)
        return true;
    return (*device->uid && strcasecmp(device->uid, text) == 0) ||
           (*device->bus && strcasecmp(device->bus, text) == 0) ||
           strcasecmp(device->name, text) == 0;
}

bool absent_device(const struct ledger *ledger, const char *device, bool host)
{
    size_t n;
    struct ledger_device *const *devices = ledger_devices(ledger, &n);
    if (host && strcasecmp(device, "host") == 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (answers_to(devices[i], device))
            return false;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer known = BUFFER_INIT(TEXT_MAX);
    for (size_t i = 0; i < n && i < DEVICES_NAMED_MAX; i++)
        buffer_printf(&known, "%s%d%s%s", i ? ", " : "", devices[i]->ordinal,
                      *devices[i]->name ? " " : "", devices[i]->name);
    if (n > DEVICES_NAMED_MAX)
        buffer_printf(&known, " and %zu more", n - DEVICES_NAMED_MAX);
    command_fail("no process reports device %s%s%s", device,
                 n ? "; there are: " : ", nor any other", buffer_string(&known));
    return true;
}

enum absent_why absent_why(uint64_t pid)
{
    char path[32];
    struct stat st;
    if (pid == 0 || pid > INT32_MAX)
        return ABSENT_GONE;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    if (stat(path, &st) < 0) /* which /proc may hide (hidepid) */
        return kill((pid_t)pid, 0) < 0 && errno == ESRCH ? ABSENT_GONE : ABSENT_FORBIDDEN;
    return geteuid() == 0 || st.st_uid == geteuid() ? ABSENT_NO_BOOK : ABSENT_FORBIDDEN;
}

int absent_process(uint64_t pid, const char *no_book)
{
    char path[32];
    struct stat st;
    switch (absent_why(pid)) {
    case ABSENT_GONE:
        command_fail("there is no process %" PRIu64
                     "; memoir ps lists those that keep a book, and memoir "
                     "exited those that ended",
                     pid);
        break;
    case ABSENT_FORBIDDEN:
        snprintf(path, sizeof(path), "/proc/%d", (int)pid);
        const struct passwd *user = stat(path, &st) == 0 ? getpwuid(st.st_uid) : NULL;
        command_fail("not permitted: process %d is %s%s; only its owner and root may see its books "
                     "and its memory",
                     (int)pid, user ? "of user " : "another user's", user ? user->pw_name : "");
        break;
    case ABSENT_NO_BOOK:
        command_fail("process %d runs and keeps no book: %s", (int)pid, no_book);
        break;
    }
    return COMMAND_NOTHING;
}

void absent_dir(const char *dir, const struct term *term, struct buffer *out)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@,";
    if (!dir)
        return;
    buffer_append_str(out, " --dir ");
    if (*dir && !dir[strspn(dir, plain)]) {
        buffer_append_str(out, dir);
        return;
    }
    buffer_append_char(out, '\'');
    for (const char *part = dir;; part++) {
        MEMOIR_CLEANUP(buffer_release)
        struct buffer text = BUFFER_INIT(TEXT_MAX);
        size_t len = strcspn(part, "'");
        buffer_append(&text, part, len);
        term_append(term, out, buffer_string(&text), 0);
        part += len;
        if (!*part)
            break;
        buffer_append_str(out, "'\\''");
    }
    buffer_append_char(out, '\'');
}

void absent_books(const char *what, const char *command, const char *dir)
{
    struct term term;
    term_init(&term, STDERR_FILENO, TERM_COLOR_AUTO);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    buffer_printf(&text, "%s Try: memoir demo", what);
    absent_dir(dir, &term, &text);
    buffer_printf(&text, ", and memoir %s", command);
    absent_dir(dir, &term, &text);
    buffer_append_str(&text,
                      " in another terminal.\nmemoir run PROGRAM tracks any program; those that "
                      "report by themselves link with -lmemoir. memoir doctor");
    absent_dir(dir, &term, &text);
    buffer_append_str(&text, " tells what could be wrong.\n");
    if (geteuid() != 0)
        buffer_append_str(&text, "(Only root sees books of other users.)\n");
    fputs(buffer_string(&text), stderr);
}
