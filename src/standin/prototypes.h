/* prototypes.h: the arguments of every function that the stand-in exports. PROTOTYPE(symbol, arguments); twins for programs with
 * a default stream per thread take the same. */

PROTOTYPE(cuArray3DCreate_v2, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray))
PROTOTYPE(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * pArrayDescriptor, CUarray hArray))
PROTOTYPE(cuArrayCreate_v2, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray))
PROTOTYPE(cuArrayDestroy, (CUarray hArray))
PROTOTYPE(cuCtxCreate, (CUcontext * pctx, unsigned int flags, CUdevice dev))
PROTOTYPE(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev))
PROTOTYPE(cuCtxCreate_v3,
          (CUcontext * pctx, void *paramsArray, int numParams, unsigned int flags, CUdevice dev))
PROTOTYPE(cuCtxCreate_v4,
          (CUcontext * pctx, void *ctxCreateParams, unsigned int flags, CUdevice dev))
PROTOTYPE(cuCtxDestroy, (CUcontext ctx))
PROTOTYPE(cuCtxDestroy_v2, (CUcontext ctx))
PROTOTYPE(cuCtxGetApiVersion, (CUcontext ctx, unsigned int *version))
PROTOTYPE(cuCtxGetCurrent, (CUcontext * pctx))
PROTOTYPE(cuCtxGetDevice, (CUdevice * device))
PROTOTYPE(cuCtxGetFlags, (unsigned int *flags))
PROTOTYPE(cuCtxPopCurrent, (CUcontext * pctx))
PROTOTYPE(cuCtxPopCurrent_v2, (CUcontext * pctx))
PROTOTYPE(cuCtxPushCurrent, (CUcontext ctx))
PROTOTYPE(cuCtxPushCurrent_v2, (CUcontext ctx))
PROTOTYPE(cuCtxSetCurrent, (CUcontext ctx))
PROTOTYPE(cuCtxSynchronize, (void))
PROTOTYPE(cuDestroyExternalMemory, (CUexternalMemory extMem))
PROTOTYPE(cuDeviceGet, (CUdevice * device, int ordinal))
PROTOTYPE(cuDeviceGetAttribute, (int *pi, int attrib, CUdevice dev))
PROTOTYPE(cuDeviceGetByPCIBusId, (CUdevice * dev, const char *pciBusId))
PROTOTYPE(cuDeviceGetCount, (int *count))
PROTOTYPE(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool_out, CUdevice dev))
PROTOTYPE(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice dev))
PROTOTYPE(cuDeviceGetName, (char *name, int len, CUdevice dev))
PROTOTYPE(cuDeviceGetPCIBusId, (char *pciBusId, int len, CUdevice dev))
PROTOTYPE(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev))
PROTOTYPE(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice dev))
PROTOTYPE(cuDeviceGraphMemTrim, (CUdevice device))
PROTOTYPE(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int *flags, int *active))
PROTOTYPE(cuDevicePrimaryCtxRelease, (CUdevice dev))
PROTOTYPE(cuDevicePrimaryCtxRelease_v2, (CUdevice dev))
PROTOTYPE(cuDevicePrimaryCtxReset, (CUdevice dev))
PROTOTYPE(cuDevicePrimaryCtxReset_v2, (CUdevice dev))
PROTOTYPE(cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev))
PROTOTYPE(cuDevicePrimaryCtxSetFlags, (CUdevice dev, unsigned int flags))
PROTOTYPE(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned int flags))
PROTOTYPE(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool))
PROTOTYPE(cuDeviceTotalMem, (unsigned int *bytes, CUdevice dev))
PROTOTYPE(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev))
PROTOTYPE(cuDriverGetVersion, (int *driverVersion))
PROTOTYPE(cuEventCreate, (CUevent * phEvent, unsigned int Flags))
PROTOTYPE(cuEventDestroy, (CUevent hEvent))
PROTOTYPE(cuEventDestroy_v2, (CUevent hEvent))
PROTOTYPE(cuEventElapsedTime, (float *pMilliseconds, CUevent hStart, CUevent hEnd))
PROTOTYPE(cuEventQuery, (CUevent hEvent))
PROTOTYPE(cuEventRecord, (CUevent hEvent, CUstream hStream))
PROTOTYPE(cuEventSynchronize, (CUevent hEvent))
PROTOTYPE(cuExternalMemoryGetMappedBuffer, (CUdeviceptr * devPtr, CUexternalMemory extMem,
                                            const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc))
PROTOTYPE(cuGetErrorName, (CUresult error, const char **pStr))
PROTOTYPE(cuGetErrorString, (CUresult error, const char **pStr))
PROTOTYPE(cuGetExportTable, (const void **ppExportTable, const CUuuid *pExportTableId))
PROTOTYPE(cuGetProcAddress,
          (const char *symbol, void **pfn, int cudaVersion, unsigned long long flags))
PROTOTYPE(cuGetProcAddress_v2, (const char *symbol, void **pfn, int cudaVersion,
                                unsigned long long flags, int *symbolStatus))
PROTOTYPE(cuGraphAddMemAllocNode,
          (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
           size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams))
PROTOTYPE(cuGraphAddMemFreeNode,
          (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
           size_t numDependencies, CUdeviceptr dptr))
PROTOTYPE(cuGraphAddMemcpyNode,
          (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
           size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx))
PROTOTYPE(cuGraphAddMemsetNode,
          (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
           size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx))
PROTOTYPE(cuGraphAddNode,
          (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
           size_t numDependencies, CUgraphNodeParams *nodeParams))
PROTOTYPE(cuGraphAddNode_v2,
          (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
           const void *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams))
PROTOTYPE(cuGraphCreate, (CUgraph * phGraph, unsigned int flags))
PROTOTYPE(cuGraphDestroy, (CUgraph hGraph))
PROTOTYPE(cuGraphExecDestroy, (CUgraphExec hGraphExec))
PROTOTYPE(cuGraphExecMemcpyNodeSetParams, (CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_MEMCPY3D *copyParams, CUcontext ctx))
PROTOTYPE(cuGraphExecMemsetNodeSetParams,
          (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
           CUcontext ctx))
PROTOTYPE(cuGraphExecNodeSetParams,
          (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams))
PROTOTYPE(cuGraphInstantiateWithFlags,
          (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags))
PROTOTYPE(cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream))
PROTOTYPE(cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream))
PROTOTYPE(cuImportExternalMemory,
          (CUexternalMemory * extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc))
PROTOTYPE(cuInit, (unsigned int Flags))
PROTOTYPE(cuIpcCloseMemHandle, (CUdeviceptr dptr))
PROTOTYPE(cuIpcGetMemHandle, (CUipcMemHandle * pHandle, CUdeviceptr dptr))
PROTOTYPE(cuIpcOpenMemHandle, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags))
PROTOTYPE(cuIpcOpenMemHandle_v2, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags))
PROTOTYPE(cuLaunchKernel,
          (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
           unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
           unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra))
PROTOTYPE(cuMemAddressFree, (CUdeviceptr ptr, size_t size))
PROTOTYPE(cuMemAddressReserve, (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                unsigned long long flags))
PROTOTYPE(cuMemAdvise, (CUdeviceptr devPtr, size_t count, int advice, CUdevice device))
PROTOTYPE(cuMemAdvise_v2, (CUdeviceptr devPtr, size_t count, int advice, CUmemLocation location))
PROTOTYPE(cuMemAlloc, (CUdeviceptr_v1 * dptr, unsigned int bytesize))
PROTOTYPE(cuMemAllocAsync, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream))
PROTOTYPE(cuMemAllocFromPoolAsync,
          (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream))
PROTOTYPE(cuMemAllocHost, (void **pp, unsigned int bytesize))
PROTOTYPE(cuMemAllocHost_v2, (void **pp, size_t bytesize))
PROTOTYPE(cuMemAllocManaged, (CUdeviceptr * dptr, size_t bytesize, unsigned int flags))
PROTOTYPE(cuMemAllocPitch, (CUdeviceptr_v1 * dptr, unsigned int *pPitch, unsigned int WidthInBytes,
                            unsigned int Height, unsigned int ElementSizeBytes))
PROTOTYPE(cuMemAllocPitch_v2, (CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes,
                               size_t Height, unsigned int ElementSizeBytes))
PROTOTYPE(cuMemAlloc_v2, (CUdeviceptr * dptr, size_t bytesize))
PROTOTYPE(cuMemBatchDecompressAsync, (CUmemDecompressParams * paramsArray, size_t count,
                                      unsigned int flags, size_t *errorIndex, CUstream stream))
PROTOTYPE(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t size,
                        const CUmemAllocationProp *prop, unsigned long long flags))
PROTOTYPE(cuMemDiscardAndPrefetchBatchAsync,
          (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
           size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
           CUstream hStream))
PROTOTYPE(cuMemDiscardBatchAsync, (CUdeviceptr * dptrs, size_t *sizes, size_t count,
                                   unsigned long long flags, CUstream hStream))
PROTOTYPE(cuMemExportToShareableHandle, (void *shareableHandle, CUmemGenericAllocationHandle handle,
                                         int handleType, unsigned long long flags))
PROTOTYPE(cuMemFree, (CUdeviceptr_v1 dptr))
PROTOTYPE(cuMemFreeAsync, (CUdeviceptr dptr, CUstream hStream))
PROTOTYPE(cuMemFreeHost, (void *p))
PROTOTYPE(cuMemFree_v2, (CUdeviceptr dptr))
PROTOTYPE(cuMemGetAccess,
          (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr))
PROTOTYPE(cuMemGetAddressRange_v2, (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr))
PROTOTYPE(cuMemGetAllocationGranularity,
          (size_t * granularity_out, const CUmemAllocationProp *prop, int option))
PROTOTYPE(cuMemGetAllocationPropertiesFromHandle,
          (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle))
PROTOTYPE(cuMemGetDefaultMemPool, (CUmemoryPool * pool_out, CUmemLocation *location, int type))
PROTOTYPE(cuMemGetInfo, (unsigned int *free, unsigned int *total))
PROTOTYPE(cuMemGetInfo_v2, (size_t * free, size_t *total))
PROTOTYPE(cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation *location, int type))
PROTOTYPE(cuMemHostAlloc, (void **pp, size_t bytesize, unsigned int Flags))
PROTOTYPE(cuMemHostGetDevicePointer_v2, (CUdeviceptr * pdptr, void *p, unsigned int Flags))
PROTOTYPE(cuMemHostGetFlags, (unsigned int *pFlags, void *p))
PROTOTYPE(cuMemHostRegister, (void *p, size_t bytesize, unsigned int Flags))
PROTOTYPE(cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned int Flags))
PROTOTYPE(cuMemHostUnregister, (void *p))
PROTOTYPE(cuMemImportFromShareableHandle,
          (CUmemGenericAllocationHandle * handle, void *osHandle, int shHandleType))
PROTOTYPE(cuMemMap, (CUdeviceptr ptr, size_t size, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags))
PROTOTYPE(cuMemMapArrayAsync, (void *mapInfoList, unsigned int count, CUstream hStream))
PROTOTYPE(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *poolProps))
PROTOTYPE(cuMemPoolDestroy, (CUmemoryPool pool))
PROTOTYPE(cuMemPoolExportPointer, (CUmemPoolPtrExportData * shareData_out, CUdeviceptr ptr))
PROTOTYPE(cuMemPoolExportToShareableHandle,
          (void *handle_out, CUmemoryPool pool, int handleType, unsigned long long flags))
PROTOTYPE(cuMemPoolGetAttribute, (CUmemoryPool pool, int attr, void *value))
PROTOTYPE(cuMemPoolImportFromShareableHandle,
          (CUmemoryPool * pool_out, void *handle, int handleType, unsigned long long flags))
PROTOTYPE(cuMemPoolImportPointer,
          (CUdeviceptr * ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData))
PROTOTYPE(cuMemPoolSetAttribute, (CUmemoryPool pool, int attr, void *value))
PROTOTYPE(cuMemPoolTrimTo, (CUmemoryPool pool, size_t minBytesToKeep))
PROTOTYPE(cuMemPrefetchAsync,
          (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream))
PROTOTYPE(cuMemPrefetchAsync_v2, (CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                  unsigned int flags, CUstream hStream))
PROTOTYPE(cuMemPrefetchBatchAsync,
          (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
           size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
           CUstream hStream))
PROTOTYPE(cuMemRelease, (CUmemGenericAllocationHandle handle))
PROTOTYPE(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *addr))
PROTOTYPE(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count))
PROTOTYPE(cuMemSetMemPool, (CUmemLocation * location, int type, CUmemoryPool pool))
PROTOTYPE(cuMemUnmap, (CUdeviceptr ptr, size_t size))
PROTOTYPE(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount))
PROTOTYPE(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *pCopy, CUstream hStream))
PROTOTYPE(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *pCopy))
PROTOTYPE(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *pCopy))
PROTOTYPE(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *pCopy, CUstream hStream))
PROTOTYPE(cuMemcpy3DBatchAsync, (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                                 unsigned long long flags, CUstream hStream))
PROTOTYPE(cuMemcpy3DBatchAsync_v2, (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                    unsigned long long flags, CUstream hStream))
PROTOTYPE(cuMemcpy3DPeer, (const CUDA_MEMCPY3D *pCopy))
PROTOTYPE(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D *pCopy, CUstream hStream))
PROTOTYPE(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *pCopy))
PROTOTYPE(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream))
PROTOTYPE(cuMemcpyAtoA_v2, (CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                            size_t ByteCount))
PROTOTYPE(cuMemcpyAtoD_v2,
          (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount))
PROTOTYPE(cuMemcpyAtoHAsync_v2,
          (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream))
PROTOTYPE(cuMemcpyAtoH_v2, (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount))
PROTOTYPE(cuMemcpyBatchAsync, (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                               size_t *failIdx, CUstream hStream))
PROTOTYPE(cuMemcpyBatchAsync_v2,
          (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
           CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream))
PROTOTYPE(cuMemcpyDtoA_v2,
          (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount))
PROTOTYPE(cuMemcpyDtoD,
          (CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount))
PROTOTYPE(cuMemcpyDtoDAsync_v2,
          (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream))
PROTOTYPE(cuMemcpyDtoD_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount))
PROTOTYPE(cuMemcpyDtoH, (void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount))
PROTOTYPE(cuMemcpyDtoHAsync_v2,
          (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream))
PROTOTYPE(cuMemcpyDtoH_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount))
PROTOTYPE(cuMemcpyHtoAAsync_v2, (CUarray dstArray, size_t dstOffset, const void *srcHost,
                                 size_t ByteCount, CUstream hStream))
PROTOTYPE(cuMemcpyHtoA_v2,
          (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount))
PROTOTYPE(cuMemcpyHtoD, (CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount))
PROTOTYPE(cuMemcpyHtoDAsync_v2,
          (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream))
PROTOTYPE(cuMemcpyHtoD_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount))
PROTOTYPE(cuMemcpyPeer, (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                         CUcontext srcContext, size_t ByteCount))
PROTOTYPE(cuMemcpyPeerAsync, (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                              CUcontext srcContext, size_t ByteCount, CUstream hStream))
PROTOTYPE(cuMemsetD16Async,
          (CUdeviceptr dstDevice, unsigned short value, size_t N, CUstream hStream))
PROTOTYPE(cuMemsetD16_v2, (CUdeviceptr dstDevice, unsigned short value, size_t N))
PROTOTYPE(cuMemsetD2D16Async, (CUdeviceptr dstDevice, size_t dstPitch, unsigned short value,
                               size_t Width, size_t Height, CUstream hStream))
PROTOTYPE(cuMemsetD2D16_v2, (CUdeviceptr dstDevice, size_t dstPitch, unsigned short value,
                             size_t Width, size_t Height))
PROTOTYPE(cuMemsetD2D32Async, (CUdeviceptr dstDevice, size_t dstPitch, unsigned int value,
                               size_t Width, size_t Height, CUstream hStream))
PROTOTYPE(cuMemsetD2D32_v2,
          (CUdeviceptr dstDevice, size_t dstPitch, unsigned int value, size_t Width, size_t Height))
PROTOTYPE(cuMemsetD2D8Async, (CUdeviceptr dstDevice, size_t dstPitch, unsigned char value,
                              size_t Width, size_t Height, CUstream hStream))
PROTOTYPE(cuMemsetD2D8_v2, (CUdeviceptr dstDevice, size_t dstPitch, unsigned char value,
                            size_t Width, size_t Height))
PROTOTYPE(cuMemsetD32Async, (CUdeviceptr dstDevice, unsigned int value, size_t N, CUstream hStream))
PROTOTYPE(cuMemsetD32_v2, (CUdeviceptr dstDevice, unsigned int value, size_t N))
PROTOTYPE(cuMemsetD8Async, (CUdeviceptr dstDevice, unsigned char value, size_t N, CUstream hStream))
PROTOTYPE(cuMemsetD8_v2, (CUdeviceptr dstDevice, unsigned char value, size_t N))
PROTOTYPE(cuMipmappedArrayCreate,
          (CUmipmappedArray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
           unsigned int numMipmapLevels))
PROTOTYPE(cuMipmappedArrayDestroy, (CUmipmappedArray hMipmappedArray))
PROTOTYPE(cuMipmappedArrayGetLevel,
          (CUarray * pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level))
PROTOTYPE(cuMulticastAddDevice, (CUmemGenericAllocationHandle mcHandle, CUdevice dev))
PROTOTYPE(cuMulticastBindAddr, (CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                CUdeviceptr memptr, size_t size, unsigned long long flags))
PROTOTYPE(cuMulticastBindMem, (CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                               CUmemGenericAllocationHandle memHandle, size_t memOffset,
                               size_t size, unsigned long long flags))
PROTOTYPE(cuMulticastCreate,
          (CUmemGenericAllocationHandle * mcHandle, const CUmulticastObjectProp *prop))
PROTOTYPE(cuMulticastGetGranularity,
          (size_t * granularity_out, const CUmulticastObjectProp *prop, int option))
PROTOTYPE(cuMulticastUnbind,
          (CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size))
PROTOTYPE(cuPointerGetAttribute, (void *data, int which, CUdeviceptr ptr))
PROTOTYPE(cuPointerGetAttributes,
          (unsigned int numAttributes, int *which, void **data, CUdeviceptr ptr))
PROTOTYPE(cuStreamAttachMemAsync,
          (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags))
PROTOTYPE(cuStreamBeginCapture, (CUstream hStream))
PROTOTYPE(cuStreamBeginCapture_v2, (CUstream hStream, int mode))
PROTOTYPE(cuStreamCreate, (CUstream * phStream, unsigned int Flags))
PROTOTYPE(cuStreamCreateWithPriority, (CUstream * phStream, unsigned int flags, int priority))
PROTOTYPE(cuStreamDestroy, (CUstream hStream))
PROTOTYPE(cuStreamDestroy_v2, (CUstream hStream))
PROTOTYPE(cuStreamEndCapture, (CUstream hStream, CUgraph *phGraph))
PROTOTYPE(cuStreamGetCtx, (CUstream hStream, CUcontext *pctx))
PROTOTYPE(cuStreamIsCapturing, (CUstream hStream, int *captureStatus))
PROTOTYPE(cuStreamQuery, (CUstream hStream))
PROTOTYPE(cuStreamSynchronize, (CUstream hStream))
PROTOTYPE(cuThreadExchangeStreamCaptureMode, (int *mode))
PROTOTYPE(cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags))
PROTOTYPE(cuGraphInstantiate_v2, (CUgraphExec * phGraphExec, CUgraph hGraph,
                                  CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize))
PROTOTYPE(cuGraphInstantiateWithParams, (CUgraphExec * phGraphExec, CUgraph hGraph,
                                         CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams))
PROTOTYPE(cuDeviceGetGraphMemAttribute, (CUdevice device, int attr, void *value))
PROTOTYPE(cuDeviceSetGraphMemAttribute, (CUdevice device, int attr, void *value))
PROTOTYPE(cuStreamBeginCaptureToGraph,
          (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
           const void *dependencyData, size_t numDependencies, int mode))
PROTOTYPE(cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource, int type))
PROTOTYPE(cuDevSmResourceSplitByCount,
          (CUdevResource * result, unsigned int *nbGroups, const CUdevResource *input,
           CUdevResource *remaining, unsigned int useFlags, unsigned int minCount))
PROTOTYPE(cuDevResourceGenerateDesc,
          (CUdevResourceDesc * phDesc, CUdevResource *resources, unsigned int nbResources))
PROTOTYPE(cuGreenCtxCreate,
          (CUgreenCtx * phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags))
PROTOTYPE(cuGreenCtxDestroy, (CUgreenCtx hCtx))
PROTOTYPE(cuGreenCtxGetDevResource, (CUgreenCtx hCtx, CUdevResource *resource, int type))
PROTOTYPE(cuGreenCtxStreamCreate,
          (CUstream * phStream, CUgreenCtx greenCtx, unsigned int flags, int priority))
PROTOTYPE(cuCtxFromGreenCtx, (CUcontext * pContext, CUgreenCtx hCtx))
