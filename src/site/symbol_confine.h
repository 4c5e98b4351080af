/* Confinement of the symbol worker, which parses files of untrusted users. */
#pragma once

/* Give up every right for good: root becomes nobody without groups, all capability sets become empty, and a seccomp
 * filter leaves only the calls that work on open descriptors and on memory. No file, socket or process can be opened
 * afterwards. 0 when all of that was checked to hold; -errno otherwise, and then the process must exit. One thread. */
int symbol_confine(void);
