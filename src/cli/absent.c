/* What is not there. See absent.h. */
#include "cli/absent.h"

#include <stddef.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/command.h"
#include "cli/devices.h"
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
