#pragma once

/* Calls fn from a frame of PLUGIN_FRAME_BYTES and returns what it returns. */
int plugin_call(int (*fn)(void));
