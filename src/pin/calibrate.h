/*
 * calibrate.h: measure the costs of this machine, once.
 *
 * At the first copy of served memory the library looks for a calibration of this GPU and driver
 * (cost_file.h). Without one it measures: about a tenth of a second and 64 MiB on the device,
 * which are given back. Until then, and where that fails, cautious figures are assumed.
 */
#pragma once

#include <stdbool.h>

#include "pin/cost.h"
#include "pin/driver.h"

/* Any thread, at any copy. Costs a load once it is done. */
void pin_calibrate_once(void);

/* Measure. 0, or -errno: no context, no memory on the device, figures that make no sense. */
int pin_calibrate_measure(const struct pin_driver *driver, struct pin_cost *ret);

/* Measure and save, whatever is saved already: for `memoir pin calibrate`. */
int pin_calibrate_now(struct pin_cost *ret_cost, char *ret_path, size_t path_size);
