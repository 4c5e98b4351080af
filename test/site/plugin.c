/* A library that is unloaded and replaced by another build of itself at the same address. The builds
 * differ in the size of one frame only, so that code, tables and addresses look alike: the hardest
 * case for whoever caches what was at an address. */
#include "plugin.h"

volatile int plugin_sink;

__attribute__((visibility("default"))) int plugin_call(int (*fn)(void))
{
    volatile char frame[PLUGIN_FRAME_BYTES];
    frame[0] = 1;
    frame[PLUGIN_FRAME_BYTES - 1] = 2;
    int r = fn();
    plugin_sink += frame[0] + frame[PLUGIN_FRAME_BYTES - 1];
    return r;
}
