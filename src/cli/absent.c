/* What is not there. See absent.h. */
#include "cli/absent.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/term.h"
#include "ledger/ledger.h"

enum { TEXT_MAX = 65536, DEVICES_NAMED_MAX = 16 };

bool absent_device(const struct ledger *ledger, const char *device, bool host)
{
    char label[DEVICES_LABEL_MAX];
    size_t n;
    struct ledger_device *const *devices = ledger_devices(ledger, &n);
    if (host && strcasecmp(device, "host") == 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (devices_match(devices[i], device))
            return false;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer known = BUFFER_INIT(TEXT_MAX);
    for (size_t i = 0; i < n && i < DEVICES_NAMED_MAX; i++)
        buffer_printf(&known, "%s%s", i ? ", " : "", devices_label(label, devices[i]));
    if (n > DEVICES_NAMED_MAX)
        buffer_printf(&known, " and %zu more", n - DEVICES_NAMED_MAX);
    command_fail("no process has told of device %s%s%s", device,
                 n ? "; there are: " : ", nor of any other", buffer_string(&known));
    return true;
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
