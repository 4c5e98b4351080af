/* elf_parser_child.h: what the parts of the child share (elf_parser_child.c, elf_parser_code.c, elf_parser_process.c). One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "observe/elf_wire.h"

/* Over the socket. Without the observer there is nothing more to do: they end the process. */
void elf_child_send(const void *data, size_t bytes);
void elf_child_receive(void *data, size_t bytes);

/* Bytes of the file that the question at hand is about: an elf_read_fn. */
int64_t elf_child_read(void *context, uint64_t offset, void *to, size_t n);

/* The answer to a question that is about no open file. */
void elf_child_done(int result, const void *told, size_t bytes);

/* Answer a question about instructions of a file. */
void elf_child_code(const struct elf_ask *ask);

/* Answer a question about memory of a process. `payload`: ask->payload_bytes, aligned to 8. */
void elf_child_process(const struct elf_ask *ask, const uint8_t *payload);
