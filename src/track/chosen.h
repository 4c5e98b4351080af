/*
 * chosen.h: what the program calls by a name.
 *
 * dlsym(RTLD_DEFAULT) tells, but for one kind of program: one that is linked at a fixed address, as Debian's python3 is, and takes
 * the address of a function. For it the address of that function is a stub in the program, in all libraries. Here such a stub is not an
 * answer: the first library that has the function is.
 */
#pragma once

#include <stdint.h>

/* Its address, or 0. Takes the lock of the loader. */
uintptr_t chosen_symbol(const char *name);
