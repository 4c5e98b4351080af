/* Confinement of the processes that parse files of untrusted users. */
#pragma once

/* Give up every right for good: root becomes a user that has nothing, without groups, all capability sets become empty, and a seccomp
 * filter leaves only the calls that work on open descriptors and on memory. No file, socket or process can be opened
 * afterwards. 0 when all of that was checked to hold; -errno otherwise, and then the process must exit. One thread. */
int symbol_confine(void);

/* The same for a process that has one socket and is sent no files. Where it may not change its user it stays what it is: without a
 * capability, and without a call that takes the name of a file, the user decides nothing. */
int symbol_confine_alone(void);
