/*
 * atfork.h: when our fork handlers are registered.
 *
 * They hold the allocator's locks across fork(), so what others do to prepare for it has to come before: somebody's handler may wait for a
 * thread that needs memory. Handlers that prepare run in reverse order, so ours must be the first ones that are registered. To do that
 * whenever a program starts would have each touch dozens of pages of the C library, though most have no second thread that could hold a
 * lock. So it is done when there is one, before it runs: pthread_create() asks us for memory first. And who registers handlers
 * before that comes by here: the shared library has a __register_atfork() of its own, which is what pthread_atfork() calls in programs and
 * libraries. Where they do not find ours (it is linked in, or was loaded after them), we register at the start, as early as can be.
 */
#pragma once

#include <stdbool.h>

/* At the start. */
void atfork_watch(void);

/* There is a second thread, or somebody is about to register handlers. Any thread; once. */
void atfork_begin(void);

typedef int atfork_register(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                            void *library);

/* What pthread_atfork() calls, which is linked into each library: the C library's, or ours. */
extern atfork_register __register_atfork;

/* atfork_catch.c, in the shared library alone: NULL elsewhere. Ours, which others call; and a way to the C library's that does not lead
 * past it: NULL where there is none. */
extern atfork_register atfork_catch __attribute__((weak, visibility("hidden")));
atfork_register *atfork_aside(void) __attribute__((weak, visibility("hidden")));
