/* export.h: memory of one process in another. The importer opens the exporter's memory file by way of /proc. */
#pragma once

#include "standin/memory.h"

/* What a handle of 64 bytes says. */
struct export
{
    uint32_t magic;
    int32_t pid, fd; /* of the memory file in the exporter */
    int32_t index;   /* the machine's number of the device */
    uint64_t offset; /* in the memory file */
    uint64_t size;
};
static_assert(sizeof(struct export) <= 64, "fits into a handle");

/* Describe the block in which `address` lies, from its beginning if `whole`. Needs the lock. */
CUresult export_make(uint64_t address, bool whole, void *ret_handle);

/* Map what a handle says, or count one user more of a mapping that is there. Needs the lock. */
CUresult export_open(const void *handle, struct context *c, CUdeviceptr *ret);
