/* quota.h: how many CPUs a cgroup may use. Pure. */
#pragma once

/* The text of a file "cpu.max" ("QUOTA PERIOD" in microseconds, or "max PERIOD"), rounded up to
 * whole CPUs; 0: no limit, or not such a text. */
unsigned pin_quota_cpus(const char *text);
