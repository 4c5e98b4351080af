/* elf_parser.h: the child that parses what users wrote: ELF files (elf_file.h), objects of CPython (python_objects.h) and lists of
 * libraries (link_map.h) in memory of their processes.
 *
 * It is this program again under another name, and has one socket and nothing else: no capability, no other descriptor, and a seccomp
 * filter (site/symbol_confine.h). It asks the observer for the bytes that it needs. For a question about memory of a process the observer
 * reads that process only, and no more than the question can need; parser_pool.h has a child for each user whose processes are read. The child switches to a user that has nothing where the observer may change
 * users; under memoird's unit it may not, and the child stays root without a capability. A child that cannot be confined exits, and
 * nothing is parsed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { ELF_PARSER_FILES_MAX = 1280 }; /* more than MODULE_FILES_MAX */

struct elf_parser;

/* Starts the child and waits until it is confined. 0; -EPERM: it cannot be; -errno. */
int elf_parser_new(struct elf_parser **ret_parser);
void elf_parser_free(struct elf_parser *parser); /* after all its files; NULL is fine */

pid_t elf_parser_pid(const struct elf_parser *parser); /* 0: none runs */

/* Children that died or took too long over a file, and files that are refused for it. */
uint64_t elf_parser_deaths(const struct elf_parser *parser);

/* main() asks whether this process is to be the child, before all else, and then becomes it. */
bool elf_parser_is_this(int argc, char *const *argv);
int elf_parser_main(void);
