/* memoird: what its parts share. Everything here belongs to the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"

struct allowance;
struct api;
struct asking;
struct behalf_table;
struct broker;
struct clustering;
struct commands;
struct driver_facts;
struct events;
struct exit_watch;
struct climbing;
struct growing;
struct history;
struct hosts;
struct ledger;
struct ledger_book;
struct loop;
struct loop_source;
struct native;
struct pressure;
struct reaper;
struct retired;
struct server;
struct traces;
struct attaching;
struct tracing;
struct watch;
struct web;

struct daemon {
    struct config config;
    int argc; /* for SIGHUP: flags go on winning over the file */
    char **argv;

    char *state_path; /* never NULL once started */
    int state_fd;
    int lock_fds[2];      /* of the state directory and of the books, -1: none */
    const char *own_root; /* the directory of places that we mounted or keep as root, or NULL */
    char *pid_file;       /* to remove at the end, or NULL */

    struct broker *broker; /* acts as other users; NULL: we are not root, or it cannot be had */
    struct loop *loop;
    struct ledger *ledger;
    struct watch *watch;
    struct reaper *reaper;
    struct native *native;
    struct retired *retired;
    struct behalf_table *behalf;
    struct commands *commands; /* NULL: not known of others */
    struct server *server;
    struct asking *asking;
    struct events *events;
    struct history *history;        /* NULL: none is kept */
    struct exit_watch *exits;       /* NULL: not configured */
    struct climbing *climbing;      /* NULL: processes that keep no book are not watched */
    struct growing *growing;        /* NULL: call sites are not watched */
    struct pressure *pressure;      /* NULL: not published */
    struct hosts *hosts;            /* the process table; NULL: it cannot be read */
    struct driver_facts *driver;    /* what NVML says; NULL: it is not asked */
    struct tracing *tracing;        /* the observer */
    struct attaching *attaching;    /* observers of heaps */
    struct traces *traces;          /* what it knows of processes */
    struct clustering *clustering;  /* other nodes; NULL: it cannot be had */
    struct allowance *retire_share; /* of lines and records, by user */
    struct api *api;                /* what is behind it */
    struct web *web;                /* HTTP; NULL: not configured, or it failed */
    struct loop_source *signals[3];
    struct loop_source *refresh_timer, *refresh_work;

    bool retired_file_failed; /* said so once */
};

/* Everything up to the moment when the loop can run: broker, state directory, locks, mount, tables, watches. There must
 * be no other thread yet.
 * Takes `config`. Logs what is wrong and returns -errno. */
int daemon_start(struct daemon *daemon, struct config *config, int argc, char **argv);

/* Runs until SIGTERM or SIGINT. */
int daemon_run(struct daemon *daemon);

/* Tells the books that they are no longer watched, and gives everything back. Fine after a failed start. */
void daemon_stop(struct daemon *daemon);
