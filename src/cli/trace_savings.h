/* trace_savings.h: what pinned memory would save where copies are from pageable memory. Pure.
 *
 * The driver copies pageable memory in pieces through a pinned buffer of its own, on the CPU; from pinned memory the device reads by
 * itself. The saved time is the difference of the two rates, as an estimate: the default rates are what an H200 on PCIe 5 reached for
 * copies of 16 MB. Registering memory costs about 0.08 ms per MB, once. */
#ifndef MEMOIR_CLI_TRACE_SAVINGS_H
#define MEMOIR_CLI_TRACE_SAVINGS_H

#include <stdint.h>

#define SAVINGS_PAGEABLE_RATE      UINT64_C(10000000000) /* bytes in a second */
#define SAVINGS_PINNED_RATE        UINT64_C(50000000000)
#define SAVINGS_REGISTER_NS_PER_MB UINT64_C(80000)

struct savings_rates {
    uint64_t pageable, pinned; /* bytes in a second; not 0 */
};

/* Nanoseconds that copies of `bytes` in all take less from pinned memory; 0 if pinned memory is not faster. */
uint64_t savings_ns(const struct savings_rates *rates, uint64_t bytes);

/* Nanoseconds to register `bytes` once. */
uint64_t savings_register_ns(uint64_t bytes);

#endif
