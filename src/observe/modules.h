/* modules.h: which code lies where in another process.
 *
 * The executable mappings come from /proc/PID/maps. A mapping's ELF file is opened when the first address in it is looked up,
 * through /proc/PID/map_files, which gives the very file that is mapped, in containers too and after it was deleted. Where
 * that is not allowed or the process is gone, the path is tried, in the process's root and then in ours, and believed if device and
 * inode are those of the mapping. Files are shared by all processes.
 *
 * One thread at a time for everything that shares a file cache. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "book/layout.h"
#include "observe/elf_file.h"

enum {
    MODULE_SLOW_CLUSTER = 16,      /* pages of such a file that are read together */
    MODULE_FILES_MAX = 1024,       /* ELF files kept open, for all processes together */
    MODULES_MAX = 4096,            /* of one process, over its life */
    MODULE_RANGES_MAX = 16384,     /* executable mappings of one process */
    MODULE_MAPS_MAX = 32 << 20,    /* bytes of /proc/PID/maps */
    MODULE_TABLES_MAX = 256 << 20, /* bytes of unwind tables in memory, for all files together */
};

struct deadline;

/* An ELF file. The key says which one it is; a file that changed is another one. */
struct module_file {
    uint64_t dev, ino, size, mtime_ns;
    struct elf_file elf;
    uint32_t number; /* never used again for another file, as long as 2^24 were not opened */
    int fd;
    /* Its file system has no block device: a network's, a user's own (FUSE), or memory. Reads may hang. */
    struct deadline *deadline; /* NULL: read directly */
    uint32_t owner;            /* user of the process for which it was opened */
    bool stuck;                /* one did */
    uint32_t references;       /* modules of processes */
    uint64_t used;             /* turn of the cache when it was last looked at */
};

/* All files that are known. Zeroed memory is an empty cache. */
struct module_files {
    struct module_file *files[MODULE_FILES_MAX]; /* in no order */
    uint32_t n;
    uint32_t numbers;
    uint64_t turn;
    struct deadline *deadline; /* for files that may make us wait; NULL: read directly */
    struct elf_parser *parser; /* that parses them; NULL: this process */
};
void module_files_release(struct module_files *cache); /* after all users */

/* The file that a process has mapped so. `path` is its name there. */
struct module_range;
int module_files_open(struct module_files *cache, pid_t pid, uint32_t owner,
                      const struct module_range *range, const char *path,
                      struct module_file **ret_file);

/* elf_file_rule() and elf_file_step(), within the limit on tables in memory. */
int module_files_rule(struct module_files *cache, struct module_file *file, uint64_t vaddr,
                      struct elf_rule *ret_rule);
int module_files_step(struct module_files *cache, struct module_file *file, uint64_t vaddr,
                      const struct elf_stack *stack, struct elf_frame *frame);

/* A file as it is loaded in one process. */
struct module {
    struct book_module info;  /* as books have it */
    struct module_file *file; /* NULL: not readable or no ELF file */
    uint64_t dev, ino;        /* of the mapping, as maps tell it */
    uint64_t bias;            /* info.bias; without a file: maps' start minus offset */
};

enum module_range_kind {
    MODULE_RANGE_FILE = 0,
    MODULE_RANGE_ANONYMOUS,  /* JIT code, the vdso, memory of no file */
    MODULE_RANGE_TRAMPOLINE, /* where probed functions return to */
};

struct module_range {
    uint64_t start, end, offset;
    uint64_t dev, ino;
    uint32_t name; /* in module_map.names */
    uint32_t kind; /* enum module_range_kind */
    struct module *module;
    bool tried; /* `module` is known, or it is known that there is none */
};

struct module_map {
    struct module_files *cache;
    pid_t pid;
    uint32_t owner;              /* its user */
    struct module_range *ranges; /* by address */
    uint32_t n_ranges;
    char *names;
    struct module **modules;
    uint32_t n_modules;
    bool cut; /* a limit was reached: some mappings are missing */
};

int module_map_init(struct module_map *map, struct module_files *cache, pid_t pid);
void module_map_release(struct module_map *map);

/* Read the maps. Modules that are known keep their addresses. 0, -ESRCH, -EACCES, -EFBIG; on failure the map stays as it was. */
int module_map_read(struct module_map *map);

/* The same from text as in /proc/PID/maps, for tests. Takes nothing. */
int module_map_parse(struct module_map *map, const char *text, size_t len);

/* The mapping around an address, or NULL. */
struct module_range *module_map_range(const struct module_map *map, uint64_t pc);

/* The module of a mapping of kind FILE, opened if need be; NULL if there is no room. */
struct module *module_map_module(struct module_map *map, struct module_range *range);
