/* Words of the native protocol: spaces, kinds of devices, topics, ids. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_read.h"

/* A space by its name, 0 if it is none; and the other way, NULL if it is none. */
uint32_t native_space(const struct json_text *text);
const char *native_space_name(uint32_t space);

/* enum memoir_device_kind, or -1; and the other way, "other" for those of later versions. */
int native_device_kind(const struct json_text *text);
const char *native_device_kind_name(uint32_t kind);

/* enum native_topic, or 0. */
uint32_t native_topic(const struct json_text *text);
const char *native_topic_name(uint32_t topic);

/* "0x" and 1 to 16 hex digits. */
bool native_id_parse(const struct json_text *text, uint64_t *ret_id);

/* As much of a text as fits, decoded, whole characters, ended by NUL; NULs in it become spaces. */
void native_text_cut(const struct json_text *text, char *to, size_t size);
