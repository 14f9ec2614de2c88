// SPDX-License-Identifier: Apache-2.0 OR MIT
// Every entry point of the driver API with good arguments: textures, tensor maps, objects of other APIs, green contexts.
#pragma once

#include "bad_input_driver.h"

namespace bad_input {

inline void textures_table() {
    P(cuImportExternalMemory);
    P(cuExternalMemoryGetMappedBuffer);
    P(cuExternalMemoryGetMappedMipmappedArray);
    P(cuDestroyExternalMemory);
    P(cuImportExternalSemaphore);
    P(cuSignalExternalSemaphoresAsync, _, _, keep(1), _);
    P(cuWaitExternalSemaphoresAsync, _, _, keep(1), _);
    P(cuDestroyExternalSemaphore);
    P(cuTexRefSetArray);
    P(cuTexRefSetMipmappedArray);
    P(cuTexRefSetAddress, _, _, memory, 16);
    P(cuTexRefSetAddress2D, _, _, memory, 64);
    P(cuTexRefSetFormat);
    P(cuTexRefSetAddressMode);
    P(cuTexRefSetFilterMode);
    P(cuTexRefSetMipmapFilterMode);
    P(cuTexRefSetMipmapLevelBias);
    P(cuTexRefSetMipmapLevelClamp);
    P(cuTexRefSetMaxAnisotropy);
    P(cuTexRefSetBorderColor);
    P(cuTexRefSetFlags);
    P(cuTexRefGetAddress);
    P(cuTexRefGetArray);
    P(cuTexRefGetMipmappedArray);
    P(cuTexRefGetAddressMode);
    P(cuTexRefGetFilterMode);
    P(cuTexRefGetFormat);
    P(cuTexRefGetMipmapFilterMode);
    P(cuTexRefGetMipmapLevelBias);
    P(cuTexRefGetMipmapLevelClamp);
    P(cuTexRefGetMaxAnisotropy);
    P(cuTexRefGetBorderColor);
    P(cuTexRefGetFlags);
    P(cuTexRefCreate);
    P(cuTexRefDestroy);
    P(cuSurfRefSetArray);
    P(cuSurfRefGetArray);
    P(cuTexObjectCreate);
    P(cuTexObjectDestroy);
    P(cuTexObjectGetResourceDesc);
    P(cuTexObjectGetTextureDesc);
    P(cuTexObjectGetResourceViewDesc);
    P(cuSurfObjectCreate);
    P(cuSurfObjectDestroy);
    P(cuSurfObjectGetResourceDesc);
    P(cuTensorMapEncodeTiled, _, _, keep(1), memory, _, _, _, _, _, _, _, _);
    P(cuTensorMapEncodeIm2col, _, _, keep(3), memory, _, _, _, _, _, _, _, _, _, _, _);
    P(cuTensorMapEncodeIm2colWide, _, _, keep(3), memory, _, _, _, _, _, _, _, _, _, _, _, _);
    P(cuTensorMapReplaceAddress);
    P(cuGraphicsUnregisterResource);
    P(cuGraphicsSubResourceGetMappedArray);
    P(cuGraphicsResourceGetMappedMipmappedArray);
    P(cuGraphicsResourceGetMappedPointer);
    P(cuGraphicsResourceSetMapFlags);
    P(cuGraphicsMapResources, keep(1), _, _);
    P(cuGraphicsUnmapResources, keep(1), _, _);
    P(cuGreenCtxCreate);
    P(cuGreenCtxDestroy);
    P(cuCtxFromGreenCtx);
    P(cuDeviceGetDevResource);
    P(cuCtxGetDevResource);
    P(cuGreenCtxGetDevResource);
    P(cuDevSmResourceSplitByCount, _, _, _, _, keep(0), keep(1));
    P(cuDevResourceGenerateDesc, _, _, keep(1));
    P(cuGreenCtxRecordEvent);
    P(cuGreenCtxWaitEvent);
    P(cuStreamGetGreenCtx);
    P(cuGreenCtxStreamCreate);
    P(cuGreenCtxGetId);
}

}  // namespace bad_input
