/* state_read.h: read what a process shows about its pinning (state.h), and saved histories
 * (history.h). For programs: uses malloc. Nothing in these files is trusted. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "pin/history.h"
#include "pin/state.h"

/* A copy of the file of this process, checked whole: numbers are within bounds, texts end. `dir`:
 * where books are kept (NULL: the usual places). For free(). -ENOENT: the process shows none;
 * -EACCES; -EBADMSG: not such a file; -ENOMEM. */
int pin_state_read(const char *dir, pid_t pid, uint32_t uid, struct pin_state **ret_state);
/* The same from the bytes of a file; those are borrowed. */
int pin_state_check(const void *bytes, size_t n, pid_t pid, struct pin_state **ret_state);
/* Remove the file: for whoever started the process. */
void pin_state_remove(const char *dir, pid_t pid, uint32_t uid);

/* Remove the files of processes that are gone: one that is killed leaves its file. A process that
 * runs holds a lock on its file, so that a later one with its PID is not taken for it. Gives the
 * number of files. */
unsigned pin_state_sweep(const char *dir, uint32_t uid);

enum { PIN_HISTORY_SITES_MAX = 4096 };

/* A history as a state that has sites alone. -EBADMSG: not a history. */
int pin_history_read(const char *path, struct pin_state **ret_state);
int pin_history_parse(const char *text, size_t n, struct pin_state **ret_state);
