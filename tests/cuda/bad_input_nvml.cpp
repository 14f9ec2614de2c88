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

static void set_up() {
    const auto init = find<int()>("nvmlInit_v2");
    if (init == nullptr || init() != 0) {
        _exit(3);
    }
    find<int(U, Device **)>("nvmlDeviceGetHandleByIndex_v2")(0, &Handle<Device *>::good);
    find<int(Events **)>("nvmlEventSetCreate")(&Handle<Events *>::good);
    table();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, set_up, [] { return true; });
}
