/* plain_user.h: is a process nothing but one of its user's? */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* All uids of the process are `uid`, its gids are one, it can be dumped, and it has no capabilities but in a user namespace of its own:
 * as current_user() (process.bpf.h) has it for the process that runs. It may become another one at any time: whoever acts on the
 * answer asks again afterwards. */
bool plain_user_is(pid_t pid, uint32_t uid);

/* Does the process live in our user namespace? */
bool plain_user_same_namespace(pid_t pid);
