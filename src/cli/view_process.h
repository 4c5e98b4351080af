/*
 * view_process.h: a view of one program, for commands whose layout for people comes from elsewhere (sites, flame).
 */
#ifndef MEMOIR_CLI_VIEW_PROCESS_H
#define MEMOIR_CLI_VIEW_PROCESS_H

#include <stdint.h>

struct command;
struct view_options;

/* Print the rows of the view `name` that are of the process `word` (a PID, or the name of a program) as memoir query
 * prints them. `dir`: of books, or NULL. `limit`: rows, 0 all. Returns enum command_exit or -errno. */
int view_process(const struct command *command, const char *name,
                 const struct view_options *options, const char *word, const char *dir,
                 uint64_t limit);

#endif
