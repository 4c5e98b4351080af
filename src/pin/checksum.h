/* checksum.h: proof that copies move what they should: mode --checksum. */
#pragma once

#include <stdint.h>

#include "pin/cost.h"
#include "pin/driver.h"

/* After a copy that is complete: read the device's side again by pageable memory and compare it
 * with the host's. Adds what moved to a sum that does not depend on the order of copies, so that
 * two runs can be compared. */
void pin_checksum(const void *host, CUdeviceptr device, uint64_t bytes, enum pin_direction to);
