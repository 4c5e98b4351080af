/* Loaded modules (programs, shared libraries) of this process, found by code address.
 *
 * Usable inside a stranger's process: lookups go through glibc's _dl_find_object (2.35 and newer),
 * which takes no lock and is async-signal-safe; nothing is allocated, errno is kept. With an older
 * glibc or another libc every lookup says -ENOSYS and callers make do with absolute addresses.
 *
 * A module found for an address that is on the caller's own stack stays mapped while the caller looks
 * at it: code with an active frame cannot be dlclosed. Pointers here are good for that long. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODULE_BUILD_ID_MAX = 32 };

struct module_info {
    uintptr_t base;      /* load bias: address in the process minus address in the ELF file */
    uintptr_t map_start; /* first and one past the last mapped address */
    uintptr_t map_end;
    const char *path; /* as the loader has it; "" for the main program. Borrowed: copy it at once */
    uint8_t build_id[MODULE_BUILD_ID_MAX];
    uint8_t build_id_len; /* 0: the module has none; a longer one is cut */
    bool permanent;       /* was loaded at program start or is marked so: never unloaded */
};

/* Find the module around `pc`. 0; -ENOENT for code of no module (JIT, the vdso, anything anonymous),
 * -ENOSYS without loader support. About 0.2 us, one or two system calls (stack.h) included. */
int module_find(uintptr_t pc, struct module_info *ret_info);

/* The address as in the ELF file, which is what symbols and debug information speak of; it is the
 * same in every run. */
static inline uint64_t module_offset(const struct module_info *info, uintptr_t pc)
{
    return pc - info->base;
}

/* ---- what the unwinder needs; module_find() is built on it ---- */

struct link_map;

struct module_object {
    uintptr_t map_start;
    uintptr_t map_end;
    const uint8_t *eh_frame_hdr; /* NULL: none */
    const struct link_map *map;
};

/* The loader's own record. About 10 ns. The vdso counts: it has call frame information. */
int module_object_find(uintptr_t pc, struct module_object *ret_object);

/* Loaded at program start, or DF_1_NODELETE. False may also mean "not known". */
bool module_object_permanent(const struct module_object *object);

/* The part of the module that is mapped readable around `addr`: a whole PT_LOAD segment. */
int module_segment_find(const struct module_object *object, uintptr_t addr, const uint8_t **ret_lo,
                        const uint8_t **ret_hi);

/* PF_R, PF_W, PF_X of the segment around `addr`, as the file has them; 0 if there is no readable one. */
uint32_t module_segment_flags(const struct module_object *object, uintptr_t addr);

/* Where the build-id lies in memory; -ENOENT if there is none. */
int module_build_id_find(const struct module_object *object, const uint8_t **ret_id,
                         size_t *ret_len);

/* The same within the bytes of one note segment, which may be anything. */
int module_note_build_id(const uint8_t *notes, size_t len, const uint8_t **ret_id, size_t *ret_len);
