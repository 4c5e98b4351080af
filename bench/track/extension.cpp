/*
 * extension.cpp: what a pair of new and delete costs in an extension of Python.
 *
 * A library that /usr/bin/python3 loads with RTLD_LOCAL, by ctypes, as it loads all extensions: its C++ library is in no scope that
 * RTLD_NEXT sees.
 */
#include <ctime>

extern "C" double extension_pairs(unsigned long pairs);

static double now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

/* Nanoseconds of a pair. */
double extension_pairs(unsigned long pairs)
{
    double begun = now_ns();
    for (unsigned long i = 0; i < pairs; i++) {
        char *block = new char[16 + i % 64];
        asm volatile("" : : "r"(block) : "memory"); /* or the compiler leaves both out */
        delete[] block;
    }
    return (now_ns() - begun) / double(pairs);
}
