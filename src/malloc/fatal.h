/* fatal.h: the last words of a program that did something to its heap that cannot be survived. */
#pragma once

/* One line on stderr: "memoir-malloc: free(): 0x1234: no block of this program's heap", then abort. */
__attribute__((noreturn, cold)) void fatal_block(const char *function, const char *problem,
                                                 const void *block);

/* As abort() does, without its lock and its streams. */
__attribute__((noreturn, cold)) void fatal_end(void);
