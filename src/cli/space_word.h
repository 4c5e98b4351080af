/*
 * space_word.h: the kind of memory that --space names, read in one way by all commands.
 */
#ifndef MEMOIR_CLI_SPACE_WORD_H
#define MEMOIR_CLI_SPACE_WORD_H

#include <stdbool.h>
#include <stdint.h>

struct command;

/* enum memoir_space for "dram", in any case of letters; 0 for "rss" where that is one. A word that names
 * none is a mistake on the command line of `command`: it is told with the nearest that there is, and the
 * answer is COMMAND_USAGE. */
int space_word_parse(const struct command *command, const char *word, bool rss,
                     uint32_t *ret_space);

#endif
