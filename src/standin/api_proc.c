/* api_proc.c: cuGetProcAddress(), from which the CUDA runtime takes all its functions. */
#include <string.h>

#include "standin/entry_table.h"
#include "standin/state.h"

/* The newest form that `version` has. With a default stream per thread, that is the twin if there is one. */
static int find(const char *name, int version, bool per_thread, CUresult (**ret)(void))
{
    int status = CU_PROC_SYMBOL_NOT_FOUND;

    for (size_t i = 0; i < entry_count; i++) {
        const struct entry *e = &entry_table[i];
        if (strcmp(e->name, name) != 0)
            continue;
        if (status == CU_PROC_SYMBOL_NOT_FOUND)
            status = CU_PROC_VERSION_NOT_SUFFICIENT;
        bool twin = per_thread && e->twin;
        if ((twin ? e->twin_version : e->version) > version)
            continue;
        *ret = twin ? e->twin : e->function;
        status = CU_PROC_FOUND;
    }
    return status;
}

static CUresult get(const char *name, void **ret, int version, uint64_t flags, int *ret_status)
{
    CUresult (*function)(void) = NULL;

    if (!name || !ret || version > STANDIN_VERSION || flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_status = find(name, version, flags & CU_PROC_PER_THREAD_STREAM, &function);
    memcpy(ret, &function, sizeof(function));
    return CUDA_SUCCESS;
}

/* The first form has no status to tell that there is none. */
static CUresult get_or_fail(const char *name, void **ret, int version, uint64_t flags)
{
    int status;
    CUresult r = get(name, ret, version, flags, &status);

    return r == CUDA_SUCCESS && status != CU_PROC_FOUND ? CUDA_ERROR_NOT_FOUND : r;
}
API_EARLY(cuGetProcAddress, get_or_fail,
          (const char *symbol, void **pfn, int cudaVersion, unsigned long long flags),
          (symbol, pfn, cudaVersion, flags))

static CUresult get_status(const char *name, void **ret, int version, uint64_t flags,
                           int *ret_status)
{
    int status;

    return get(name, ret, version, flags, ret_status ? ret_status : &status);
}
API_EARLY(cuGetProcAddress_v2, get_status,
          (const char *symbol, void **pfn, int cudaVersion, unsigned long long flags,
           int *symbolStatus),
          (symbol, pfn, cudaVersion, flags, symbolStatus))

/* The private tables of a driver are not public: there is none. */
static CUresult export_table(const void **ret, const CUuuid *id)
{
    if (!ret || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
API_EARLY(cuGetExportTable, export_table,
          (const void **ppExportTable, const CUuuid *pExportTableId),
          (ppExportTable, pExportTableId))
