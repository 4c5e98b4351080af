/*
 * run_python.h: is the program that is to be run a CPython, whose objects malloc does not see unless it is told to use it?
 */
#ifndef MEMOIR_CLI_RUN_PYTHON_H
#define MEMOIR_CLI_RUN_PYTHON_H

#include <stdbool.h>

/* By the name of its file (also behind symbolic links), or of the interpreter of a script ("#!/usr/bin/env python3", too). `path`: where
 * it was found; NULL: nowhere. Its arguments may tell Python to ignore the environment (-E, -I): then it is none. */
bool run_python_is(char *const *argv, const char *path);

/* Has the user chosen an allocator for it (PYTHONMALLOC, PYTHONDEVMODE)? */
bool run_python_chosen(void);

#endif
