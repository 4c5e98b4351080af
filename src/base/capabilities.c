/* See capabilities.h. */
#include "base/capabilities.h"

#include <errno.h>
#include <linux/capability.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int capabilities_drop(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* goes with the others, too */
    if (syscall(SYS_capset, &header, data) < 0)
        return -errno;
    memset(data, 0xff, sizeof(data));
    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        if (data[i].effective | data[i].permitted | data[i].inheritable)
            return -EPERM;
    return 0;
}
