/* reason.h: decisions in words. */
#pragma once

#include "pin/policy.h"

/* "its copies have cost as much as pinning it"; never NULL. */
const char *pin_reason_text(enum pin_reason reason);
/* One word, for JSON: "earned"; "unknown" for others. */
const char *pin_reason_word(enum pin_reason reason);
