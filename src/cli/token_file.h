/*
 * token_file.h: the file of tokens, as `memoir token` changes it.
 */
#ifndef MEMOIR_CLI_TOKEN_FILE_H
#define MEMOIR_CLI_TOKEN_FILE_H

#include <stddef.h>

#include "base/token_line.h"

struct token_file {
    char *path;
    int lock_fd; /* of its directory: one command at a time */
    char *text;  /* as it was read; "" where there is none */
    struct token_line *tokens;
    size_t n;
};

/* Read it, with or without the intention to write it. A file that does not exist is an empty one. -errno. */
int token_file_open(const char *path, struct token_file *ret_file);
void token_file_close(struct token_file *file);

/* Its index, or -1. */
int token_file_find(const struct token_file *file, const char *name);

/* Add a line, or take away that of this name; comments and other lines stay as they are. Readers see the old file or
 * the new one. -errno. */
int token_file_add(struct token_file *file, const struct token_line *token);
int token_file_remove(struct token_file *file, const char *name);

#endif
