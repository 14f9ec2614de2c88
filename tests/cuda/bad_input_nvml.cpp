// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The management library. Called without declarations of NVIDIA's: a device is a pointer, enumerations are numbers.
#include "bad_input.h"

#include <dlfcn.h>

struct Device;
struct Events;
BAD_INPUT_HANDLE(Device *)
BAD_INPUT_HANDLE(Events *)

using namespace bad_input;

using Out = unsigned *;
using Text = char *;
using U = unsigned;

template <class F>
static F *find(const char *name) {
    static void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    return library == nullptr ? nullptr : reinterpret_cast<F *>(dlsym(library, name));
}

#define N(name, parameters, ...) probe(#name, find<int parameters>(#name), ##__VA_ARGS__)

static void table() {
    N(nvmlDeviceGetCount_v2, (Out));
    N(nvmlDeviceGetHandleByIndex_v2, (U, Out));
    N(nvmlDeviceGetHandleByUUID, (const char *, Out), "GPU-nothing", _);
    N(nvmlDeviceGetHandleByPciBusId_v2, (const char *, Out), "ffff:ff:ff.f", _);
    N(nvmlDeviceGetIndex, (Device *, Out));
    N(nvmlDeviceGetMinorNumber, (Device *, Out));
    N(nvmlDeviceGetName, (Device *, Text, U), _, _, 96);
    N(nvmlDeviceGetUUID, (Device *, Text, U), _, _, 96);
    N(nvmlDeviceGetBrand, (Device *, Out));
    N(nvmlDeviceGetArchitecture, (Device *, Out));
    N(nvmlDeviceGetCudaComputeCapability, (Device *, int *, int *));
    N(nvmlDeviceGetNumGpuCores, (Device *, Out));
    N(nvmlDeviceGetMemoryBusWidth, (Device *, Out));
    N(nvmlDeviceGetComputeMode, (Device *, Out));
    N(nvmlDeviceGetEccMode, (Device *, Out, Out));
    N(nvmlDeviceGetDisplayMode, (Device *, Out));
    N(nvmlDeviceGetDisplayActive, (Device *, Out));
    N(nvmlDeviceGetPersistenceMode, (Device *, Out));
    N(nvmlDeviceGetMultiGpuBoard, (Device *, Out));
    N(nvmlDeviceGetVirtualizationMode, (Device *, Out));
    N(nvmlDeviceIsMigDeviceHandle, (Device *, Out));
    N(nvmlDeviceGetMaxMigDeviceCount, (Device *, Out));
    N(nvmlDeviceGetMemoryInfo, (Device *, Out));
    N(nvmlDeviceGetMemoryInfo_v2, (Device *, Out));
    N(nvmlDeviceGetPciInfo_v3, (Device *, Out));
    N(nvmlDeviceGetPciInfoExt, (Device *, Out));
    N(nvmlDeviceGetUtilizationRates, (Device *, Out));
    N(nvmlDeviceGetTemperature, (Device *, U, Out));
    N(nvmlDeviceGetPowerUsage, (Device *, Out));
    N(nvmlDeviceGetEnforcedPowerLimit, (Device *, Out));
    N(nvmlDeviceGetPowerManagementLimit, (Device *, Out));
    N(nvmlDeviceGetClockInfo, (Device *, U, Out));
    N(nvmlDeviceGetClock, (Device *, U, U, Out));
    N(nvmlDeviceGetMaxClockInfo, (Device *, U, Out));
    N(nvmlDeviceGetPerformanceState, (Device *, Out));
    N(nvmlDeviceGetPowerState, (Device *, Out));
    N(nvmlDeviceGetCurrPcieLinkGeneration, (Device *, Out));
    N(nvmlDeviceGetCurrPcieLinkWidth, (Device *, Out));
    N(nvmlDeviceGetMaxPcieLinkGeneration, (Device *, Out));
    N(nvmlDeviceGetGpuMaxPcieLinkGeneration, (Device *, Out));
    N(nvmlDeviceGetMaxPcieLinkWidth, (Device *, Out));
    N(nvmlDeviceGetComputeRunningProcesses_v3, (Device *, Out, Text));
    N(nvmlDeviceGetGraphicsRunningProcesses_v3, (Device *, Out, Text));
    N(nvmlDeviceGetMPSComputeRunningProcesses_v3, (Device *, Out, Text));
    N(nvmlDeviceGetSupportedEventTypes, (Device *, unsigned long *));
    N(nvmlDeviceRegisterEvents, (Device *, unsigned long, Events *), _, 8, _);
    N(nvmlEventSetCreate, (Events **));
    N(nvmlEventSetWait_v2, (Events *, Text, U), _, _, keep(1));
    N(nvmlEventSetFree, (Events *));
    N(nvmlSystemGetDriverVersion, (Text, U), _, 80);
    N(nvmlSystemGetNVMLVersion, (Text, U), _, 80);
    N(nvmlSystemGetCudaDriverVersion_v2, (int *));
    N(nvmlSystemGetProcessName, (U, Text, U), getpid(), _, 80);
    N(nvmlUnitGetCount, (Out));
    N(nvmlGetExcludedDeviceCount, (Out));
    N(nvmlInitWithFlags, (U));
}

// What the card says of itself, number by number.
static void values() {
    N(nvmlDeviceGetModuleId, (Device *, Out));
    N(nvmlDeviceGetBoardId, (Device *, Out));
    N(nvmlDeviceGetDefaultEccMode, (Device *, Out));
    N(nvmlDeviceGetPowerSource, (Device *, Out));
    N(nvmlDeviceGetBusType, (Device *, Out));
    N(nvmlDeviceGetPcieLinkMaxSpeed, (Device *, Out));
    N(nvmlDeviceGetPcieSpeed, (Device *, Out));
    N(nvmlDeviceGetAdaptiveClockInfoStatus, (Device *, Out));
    N(nvmlDeviceGetInforomConfigurationChecksum, (Device *, Out));
    N(nvmlDeviceGetAccountingMode, (Device *, Out));
    N(nvmlDeviceGetAccountingBufferSize, (Device *, Out));
    N(nvmlDeviceGetC2cModeInfoV, (Device *, Out));
    N(nvmlDeviceGetGpcClkVfOffset, (Device *, Out));
    N(nvmlDeviceGetMemClkVfOffset, (Device *, Out));
    N(nvmlDeviceGetRetiredPagesPendingStatus, (Device *, Out));
    N(nvmlDeviceGetGpuInstanceId, (Device *, Out));
    N(nvmlDeviceGetComputeInstanceId, (Device *, Out));
    N(nvmlDeviceGetGspFirmwareMode, (Device *, Out, Out));
    N(nvmlDeviceGetAutoBoostedClocksEnabled, (Device *, Out, Out));
    N(nvmlDeviceGetGpuOperationMode, (Device *, Out, Out));
    N(nvmlDeviceGetMinMaxFanSpeed, (Device *, Out, Out));
    N(nvmlDeviceGetGpcClkMinMaxVfOffset, (Device *, Out, Out));
    N(nvmlDeviceGetMemClkMinMaxVfOffset, (Device *, Out, Out));
    N(nvmlDeviceGetFanSpeed_v2, (Device *, U, Out));
    N(nvmlDeviceGetTargetFanSpeed, (Device *, U, Out));
    N(nvmlDeviceGetFanControlPolicy_v2, (Device *, U, Out));
    N(nvmlDeviceGetEncoderCapacity, (Device *, U, Out));
    N(nvmlDeviceGetAPIRestriction, (Device *, U, Out), _, 1, _);
    N(nvmlDeviceGetMinMaxClockOfPState, (Device *, U, U, Out, Out));
    N(nvmlDeviceGetTotalEccErrors, (Device *, U, U, Out));
    N(nvmlDeviceGetDetailedEccErrors, (Device *, U, U, Out));
    N(nvmlDeviceGetMemoryErrorCounter, (Device *, U, U, U, Out), _, 0, 0, 2, _);
    N(nvmlDeviceGetViolationStatus, (Device *, U, Out));
    N(nvmlDeviceGetGpuInstanceRemainingCapacity, (Device *, U, Out));
    N(nvmlDeviceGetMigDeviceHandleByIndex, (Device *, U, Out));
    N(nvmlDeviceGetGpuInstanceById, (Device *, U, Out));
    N(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (Device *, Out));
    N(nvmlDeviceOnSameBoard, (Device *, Device *, Out));
    N(nvmlDeviceGetTopologyCommonAncestor, (Device *, Device *, Out));
    N(nvmlDeviceGetP2PStatus, (Device *, Device *, U, Out));
    N(nvmlSystemGetNvlinkBwMode, (Out));
    N(nvmlSystemGetConfComputeGpusReadyState, (Out));
}

// Texts, structures and lists.
static void compounds() {
    N(nvmlDeviceGetVbiosVersion, (Device *, Text, U), _, _, 32);
    N(nvmlDeviceGetBoardPartNumber, (Device *, Text, U), _, _, 80);
    N(nvmlDeviceGetInforomImageVersion, (Device *, Text, U), _, _, 16);
    N(nvmlDeviceGetInforomVersion, (Device *, U, Text, U), _, 1, _, 16);
    N(nvmlDeviceGetGspFirmwareVersion, (Device *, Text));
    N(nvmlSystemGetDriverBranch, (Text, U), _, 80);
    N(nvmlDeviceGetBAR1MemoryInfo, (Device *, Out));
    N(nvmlDeviceGetConfComputeProtectedMemoryUsage, (Device *, Out));
    N(nvmlDeviceGetConfComputeMemSizeInfo, (Device *, Out));
    N(nvmlSystemGetConfComputeState, (Out));
    N(nvmlSystemGetConfComputeCapabilities, (Out));
    N(nvmlSystemGetConfComputeKeyRotationThresholdInfo, (Out));
    N(nvmlDeviceGetRowRemapperHistogram, (Device *, Out));
    N(nvmlDeviceGetSramEccErrorStatus, (Device *, Out));
    N(nvmlDeviceGetDynamicPstatesInfo, (Device *, Out));
    N(nvmlDeviceGetPerformanceModes, (Device *, Out));
    N(nvmlDeviceGetCurrentClockFreqs, (Device *, Out));
    N(nvmlDeviceGetClockOffsets, (Device *, Out));
    N(nvmlDeviceGetCapabilities, (Device *, Out));
    N(nvmlDeviceGetAddressingMode, (Device *, Out));
    N(nvmlDeviceGetRepairStatus, (Device *, Out));
    N(nvmlDeviceGetCoolerInfo, (Device *, Out));
    N(nvmlDeviceGetFanSpeedRPM, (Device *, Out));
    N(nvmlDeviceGetDramEncryptionMode, (Device *, Out, Out));
    N(nvmlDeviceGetGpuFabricInfo, (Device *, Out));
    N(nvmlDeviceGetGpuFabricInfoV, (Device *, Out));
    N(nvmlDeviceGetGridLicensableFeatures_v4, (Device *, Out));
    N(nvmlGpmQueryDeviceSupport, (Device *, Out));
    N(nvmlDeviceGetGpuInstanceProfileInfo, (Device *, U, Out));
    N(nvmlDeviceGetGpuInstanceProfileInfoV, (Device *, U, Out));
    N(nvmlDeviceGetAccountingStats, (Device *, U, Out));
    N(nvmlDeviceGetAccountingPids, (Device *, Out, Out));
    N(nvmlDeviceGetSupportedPerformanceStates, (Device *, Out, U), _, _, 64);
    N(nvmlDeviceGetSupportedMemoryClocks, (Device *, Out, Out));
    N(nvmlDeviceGetSupportedGraphicsClocks, (Device *, U, Out, Out), _, 3201, _, _);
    N(nvmlDeviceGetRetiredPages, (Device *, U, Out, Out));
    N(nvmlDeviceGetRetiredPages_v2, (Device *, U, Out, Out, Out));
    N(nvmlDeviceGetEncoderSessions, (Device *, Out, Out));
    N(nvmlDeviceGetFBCSessions, (Device *, Out, Out));
    N(nvmlDeviceGetTopologyNearestGpus, (Device *, U, Out, Out), _, 10, _, _);
    N(nvmlSystemGetTopologyGpuSet, (U, Out, Out));
    N(nvmlSystemGetHicVersion, (Out, Out));
    N(nvmlDeviceGetRunningProcessDetailList, (Device *, Out));
    N(nvmlDeviceGetGpuInstances, (Device *, U, Out, Out));
    N(nvmlDeviceGetGpuInstancePossiblePlacements_v2, (Device *, U, Out, Out));
    N(nvmlDeviceGetSamples, (Device *, U, unsigned long, Out, Out, Text));
    N(nvmlDeviceGetPciInfo, (Device *, Out));
    N(nvmlDeviceGetPciInfo_v2, (Device *, Out));
    N(nvmlDeviceGetTemperatureThreshold, (Device *, U, Out));
    N(nvmlDeviceGetFieldValues, (Device *, int, Text), _, 1, _);
}

// What only an administrator of the host may do.
static void setters() {
    N(nvmlDeviceSetPersistenceMode, (Device *, U), _, keep(1));
    N(nvmlDeviceSetPowerManagementLimit, (Device *, U), _, keep(700000));
    N(nvmlDeviceSetAccountingMode, (Device *, U), _, keep(0));
    N(nvmlDeviceResetApplicationsClocks, (Device *));
    N(nvmlDeviceResetGpuLockedClocks, (Device *));
    N(nvmlDeviceClearAccountingPids, (Device *));
}

static void set_up() {
    const auto init = find<int()>("nvmlInit_v2");
    if (init == nullptr || init() != 0) {
        _exit(3);
    }
    find<int(U, Device **)>("nvmlDeviceGetHandleByIndex_v2")(0, &Handle<Device *>::good);
    find<int(Events **)>("nvmlEventSetCreate")(&Handle<Events *>::good);
    table();
    values();
    compounds();
    setters();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, set_up, [] { return true; });
}
