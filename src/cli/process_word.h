/*
 * process_word.h: which process a word on the command line means: by its number, or by the name of its program.
 */
#ifndef MEMOIR_CLI_PROCESS_WORD_H
#define MEMOIR_CLI_PROCESS_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ledger;
struct ledger_process;

/* Is `word` the number of a process? Fills in only if it is. */
bool process_word_pid(const char *word, uint64_t *ret_pid);

/* Is this the name of its program, as views show it or as the kernel has it? */
bool process_word_calls(const char *name, const struct ledger_process *process);

/* How many processes the word means, and the last of them. By name only those that live. */
size_t process_word_find(const struct ledger *ledger, const char *word,
                         struct ledger_process **ret_process);

#endif
