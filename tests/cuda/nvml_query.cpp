// SPDX-License-Identifier: Apache-2.0 OR MIT
// The management library says what CUDA says, refuses what it must, and leaves CUDA to a forked child.
#include "check.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

static void *library;

// A function of the library, called without a declaration of NVIDIA's: every argument is a pointer or an integer.
template <class... A>
static int nvml(const char *name, A... arguments) {
    auto *function = reinterpret_cast<int (*)(A...)>(dlsym(library, name));
    REQUIRE(function != nullptr);
    return function(arguments...);
}

struct Memory {
    unsigned long long total, free, used;
};
struct Pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};

struct Uuid {
    unsigned version, kind;
    char value[41];
};

static void compare_with_cuda(void *device) {
    char name[96] = "", uuid[96] = "";
    REQUIRE(nvml("nvmlDeviceGetName", device, (char *)name, 96u) == 0);
    REQUIRE(nvml("nvmlDeviceGetUUID", device, (char *)uuid, 96u) == 0);
    REQUIRE(nvml("nvmlDeviceGetName", device, (char *)name, 3u) == 7);
    Memory memory = {};
    REQUIRE(nvml("nvmlDeviceGetMemoryInfo", device, &memory) == 0);
    Pci pci = {};
    REQUIRE(nvml("nvmlDeviceGetPciInfo_v3", device, &pci) == 0);

    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    REQUIRE(std::strcmp(name, p.name) == 0);
    const unsigned char *bytes = reinterpret_cast<const unsigned char *>(p.uuid.bytes);
    char spelled[64];
    std::snprintf(spelled, sizeof spelled, "GPU-%02x%02x%02x%02x-%02x%02x-", bytes[0], bytes[1], bytes[2], bytes[3],
                  bytes[4], bytes[5]);
    REQUIRE(std::strncmp(uuid, spelled, std::strlen(spelled)) == 0 && std::strlen(uuid) == 40);
    REQUIRE((int)pci.bus == p.pciBusID && (int)pci.device == p.pciDeviceID && (int)pci.domain == p.pciDomainID);
    REQUIRE(memory.total == p.totalGlobalMem && memory.used + memory.free == memory.total);
    std::printf("%s %s %llu bytes\n", name, uuid, memory.total);

    void *same = nullptr;
    REQUIRE(nvml("nvmlDeviceGetHandleByUUID", (const char *)uuid, &same) == 0 && same == device);
    REQUIRE(nvml("nvmlDeviceGetHandleByPciBusId_v2", (const char *)pci.text, &same) == 0 && same == device);
    Uuid by_text = {sizeof by_text | 1 << 24, 1, {}}, by_bytes = {sizeof by_bytes | 1 << 24, 2, {}};
    std::strcpy(by_text.value, uuid);
    std::memcpy(by_bytes.value, bytes, 16);
    REQUIRE(nvml("nvmlDeviceGetHandleByUUIDV", &by_text, &same) == 0 && same == device);
    REQUIRE(nvml("nvmlDeviceGetHandleByUUIDV", &by_bytes, &same) == 0 && same == device);
    by_bytes.value[0] ^= 1;
    REQUIRE(nvml("nvmlDeviceGetHandleByUUIDV", &by_bytes, &same) == 6);
}

// What nvidia-smi needs to go on: a private table that refuses each of its functions, and a set of events.
static void refuse_private_functions() {
    const unsigned char id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                  0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    const unsigned char other[16] = {};
    void **table = nullptr;
    REQUIRE(nvml("nvmlInternalGetExportTable", &table, (const unsigned char *)other) == 6);
    REQUIRE(nvml("nvmlInternalGetExportTable", &table, (const unsigned char *)id) == 0);
    const size_t words = reinterpret_cast<size_t>(table[0]) / sizeof(void *);
    for (size_t i = 1; i < words; i++) {
        REQUIRE(reinterpret_cast<int (*)()>(table[i])() == 3);
    }
    void *set = nullptr;
    char event[64];
    REQUIRE(nvml("nvmlEventSetCreate", &set) == 0 && set != nullptr);
    REQUIRE(nvml("nvmlEventSetWait_v2", set, (char *)event, 1u) == 10);
    REQUIRE(nvml("nvmlEventSetFree", set) == 0 && nvml("nvmlEventSetFree", set) == 2);
}

// Every processor is near the device, and nothing uses engines that a virtual machine does not have.
static void ask_what_is_near(void *device) {
    unsigned long near[2] = {~0ul, ~0ul}, nodes[2] = {~0ul, ~0ul}, in_scope[2] = {};
    REQUIRE(nvml("nvmlDeviceGetCpuAffinity", device, 2u, near + 0) == 0 && (near[0] & 1) != 0);
    REQUIRE(nvml("nvmlDeviceGetCpuAffinityWithinScope", device, 2u, in_scope + 0, 1u) == 0);
    REQUIRE(std::memcmp(near, in_scope, sizeof near) == 0);
    REQUIRE(nvml("nvmlDeviceGetMemoryAffinity", device, 2u, nodes + 0, 0u) == 0 && (nodes[0] & 1) != 0);
    REQUIRE(nvml("nvmlDeviceGetMemoryAffinity", device, 2u, nodes + 0, 2u) == 2);
    REQUIRE(nvml("nvmlDeviceGetCpuAffinity", device, 0u, near + 0) == 2);
    REQUIRE(nvml("nvmlDeviceSetCpuAffinity", device) == 0 && nvml("nvmlDeviceClearCpuAffinity", device) == 0);
    unsigned used = 1, period = 0, current = 1, pending = 1;
    REQUIRE(nvml("nvmlDeviceGetEncoderUtilization", device, &used, &period) == 0 && used == 0 && period > 0);
    REQUIRE(nvml("nvmlDeviceGetMigMode", device, &current, &pending) == 0 && current == 0 && pending == 0);
}

// What NVIDIA's library says of a card is asked of the host; where it has none, "not supported" is right, too. Wrong
// arguments and other versions of structures are refused before.
static void ask_the_card(void *device) {
    const auto told = [](int result) { return result == 0 || result == 3; };
    unsigned first = 0, second = 0;
    REQUIRE(told(nvml("nvmlDeviceGetBoardId", device, &first)) && told(nvml("nvmlDeviceGetBoardId", device, &second)));
    REQUIRE(first == second);
    char text[80];
    REQUIRE(nvml("nvmlDeviceGetVbiosVersion", device, (char *)nullptr, 80u) == 2);
    const int version = nvml("nvmlDeviceGetVbiosVersion", device, text + 0, 80u);
    REQUIRE(told(version) && (version == 3 || std::strlen(text) > 0));
    REQUIRE(version == 3 || nvml("nvmlDeviceGetVbiosVersion", device, text + 0, 1u) == 7);
    REQUIRE(nvml("nvmlDeviceGetBoardId", (void *)nullptr, &first) == 2);
    REQUIRE(nvml("nvmlDeviceGetViolationStatus", device, 12u, text + 0) == 2);
    unsigned clocks[64], clock_count = 0;
    const int counted = nvml("nvmlDeviceGetSupportedMemoryClocks", device, &clock_count, clocks + 0);
    REQUIRE(counted == 3 || (counted == 7 && clock_count > 0));
    REQUIRE(counted == 3 || nvml("nvmlDeviceGetSupportedMemoryClocks", device, &clock_count, clocks + 0) == 0);
    REQUIRE(counted == 3 || clocks[0] > 0);

    unsigned status[26] = {104 | 2 << 24};
    REQUIRE(nvml("nvmlDeviceGetSramEccErrorStatus", device, status + 0) == 25);
    status[0] = 104 | 1 << 24;
    REQUIRE(told(nvml("nvmlDeviceGetSramEccErrorStatus", device, status + 0)));
    REQUIRE(nvml("nvmlDeviceGetSerial", device, text + 0, 80u) == 3);
}

// What a virtual machine does not have, and what it may not change.
static void ask_what_is_absent(void *device) {
    unsigned count = 1, list[9] = {36 | 2 << 24, 1, 1, 1, 1, 1, 1, 1, 1};
    REQUIRE(nvml("nvmlDeviceGetAccountingMode", device, &count) == 0 && count == 0);
    count = 1;
    REQUIRE(nvml("nvmlDeviceGetAccountingPids", device, &count, list + 1) == 0 && count == 0);
    count = 1;
    REQUIRE(nvml("nvmlDeviceGetEncoderSessions", device, &count, list + 1) == 0 && count == 0);
    REQUIRE(nvml("nvmlDeviceGetGpuFabricInfoV", device, list + 0) == 0 && list[0] == (36 | 2 << 24) && list[7] == 0);
    REQUIRE(nvml("nvmlDeviceGetGpuInstanceId", device, &count) == 2);
    REQUIRE(nvml("nvmlDeviceSetPersistenceMode", device, 1u) == 4);
    REQUIRE(nvml("nvmlDeviceSetPersistenceMode", (void *)nullptr, 1u) == 2);
    void *devices[16];
    count = 16;
    REQUIRE(nvml("nvmlSystemGetTopologyGpuSet", 0u, &count, devices + 0) == 0 && count >= 1 && devices[0] == device);
}

int main() {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    REQUIRE(library != nullptr);
    unsigned count = 0;
    void *device = nullptr;
    REQUIRE(nvml("nvmlDeviceGetCount_v2", &count) == 1);
    REQUIRE(nvml("nvmlDeviceGetBoardId", (void *)8, &count) == 1 && nvml("nvmlDeviceGetSerial") == 1);
    REQUIRE(nvml("nvmlInit_v2") == 0);
    REQUIRE(nvml("nvmlDeviceGetCount_v2", &count) == 0 && count >= 1);

    // As PyTorch does: count devices here, use them in children.
    const pid_t child = fork();
    if (child == 0) {
        int devices = 0;
        _exit(cudaGetDeviceCount(&devices) == cudaSuccess && devices == (int)count ? 0 : 1);
    }
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);

    REQUIRE(nvml("nvmlDeviceGetHandleByIndex_v2", 0u, &device) == 0);
    REQUIRE(nvml("nvmlDeviceGetHandleByIndex_v2", count, &device) == 2);
    REQUIRE(nvml("nvmlDeviceGetName", (void *)0x1234, (char *)nullptr, 0u) == 2);
    REQUIRE(nvml("nvmlDeviceGetMemoryInfo", device, (Memory *)nullptr) == 2);
    compare_with_cuda(device);
    refuse_private_functions();
    ask_what_is_near(device);
    ask_the_card(device);
    ask_what_is_absent(device);
    int version = 0, cuda = 0;
    REQUIRE(nvml("nvmlSystemGetCudaDriverVersion_v2", &version) == 0);
    CHECK(cudaDriverGetVersion(&cuda));
    REQUIRE(version / 1000 == cuda / 1000);
    REQUIRE(nvml("nvmlShutdown") == 0);
    REQUIRE(nvml("nvmlDeviceGetCount_v2", &count) == 1);
    std::printf("done\n");
}
