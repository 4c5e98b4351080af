/* fatal.h: the last words of a program that did something to its heap that cannot be survived. */
#pragma once

/* As abort() does, without its lock and its streams. */
__attribute__((noreturn, cold)) void fatal_end(void);
