/* Exits of all processes, from the kernel (bpf/exits.h) into the store (exit_store.h), a few at each turn of the
 * loop. Where the kernel does not tell, one line says why, and processes with books are retired as ever. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;
struct exit_event;
struct exit_file;
struct exit_record;
struct exit_watch;

enum {
    EXIT_WATCH_TURN = 512,   /* exits at one turn of the loop: about a millisecond */
    EXIT_WATCH_PAUSE_MS = 20 /* between two turns, unless there was more than one turn's work */
};

/* Makes the store, and begins to watch if the setting `exits` wants it and the kernel lets us; says so if not.
 * *ret_watch stays NULL where nothing is wanted and nothing was kept before. -ENOMEM. */
int exit_watch_new(struct daemon *daemon, struct exit_watch **ret_watch);
void exit_watch_free(struct exit_watch *watch); /* NULL is fine */

/* Each refresh: note in the file that a watcher runs, and tell of exits that were lost. */
void exit_watch_tick(struct exit_watch *watch);

/* How this process ended, if that was told; what waits in the kernel's ring is read first. NULL: it was not.
 * Good until the loop's next turn. */
const struct exit_record *exit_watch_find(struct exit_watch *watch, pid_t pid,
                                          uint64_t start_ticks);

/* All that is kept, for queries. */
const struct exit_file *exit_watch_file(const struct exit_watch *watch);

/* What the kernel tells, as a record: `boot_ns` is when the machine was started, since 1970. */
void exit_record_of(const struct exit_event *event, uint64_t boot_ns,
                    struct exit_record *ret_record);
