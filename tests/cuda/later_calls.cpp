// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls that CUDA 13.4 has first: a program finds them by cuGetProcAddress. The argument selects one of them.
#include "check_driver.h"

#include <cstring>
#include <vector>

static const int kVersion = 13040;

template <typename Function> static Function find(const char *name) {
    void *address = nullptr;
    CUdriverProcAddressQueryResult status;
    CHECK_DRIVER(cuGetProcAddress(name, &address, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    if (!address) {
        std::printf("%s is not there\n", name);
        std::exit(1);
    }
    CHECK_DRIVER(cuGetProcAddress(name, &address, kVersion - 1, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    std::printf("%s before 13.4: %s\n", name, address ? "another function" : "not there");
    CHECK_DRIVER(cuGetProcAddress(name, &address, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    return reinterpret_cast<Function>(address);
}

static void cliques() {
    const auto count_of = find<CUresult (*)(size_t *, CUdevice)>("cuDeviceGetCliqueCount");
    size_t count = 77;
    int result = count_of(&count, 0);
    std::printf("cliques: %d, %zu\n", result, count);
    count = 77;
    result = count_of(&count, 99);
    std::printf("of no device: %d, %zu\n", result, count);
    std::printf("into nothing: %d\n", count_of(nullptr, 0));
}

using Locations = CUresult (*)(CUdeviceptr, size_t, size_t, size_t, CUmemLocation *);

static void locations() {
    const Locations info = find<Locations>("cuMemGetLocationInfo");
    const size_t kRegion = 1 << 20, kBytes = 8 * kRegion + 5;
    CUdeviceptr memory, device;
    CHECK_DRIVER(cuMemAllocManaged(&memory, kBytes, CU_MEM_ATTACH_GLOBAL));
    CHECK_DRIVER(cuMemAlloc(&device, kRegion));
    std::memset(reinterpret_cast<void *>(memory), 1, kBytes);
    std::vector<CUmemLocation> found(11);
    const auto fill = [&] { std::memset(found.data(), 0xa5, found.size() * sizeof(found[0])); };
    const auto written = [&] {
        size_t count = 0;
        while (count < found.size() && static_cast<unsigned>(found[count].type) != 0xa5a5a5a5u) {
            count++;
        }
        return count;
    };
    // The program has written all of it.
    fill();
    int result = info(memory, kBytes, kRegion, 0, found.data());
    std::printf("regions of 1 MiB: %d, %zu\n", result, written());
    for (size_t index = 0; index < written(); index++) {
        std::printf("  %d of %d\n", found[index].type, found[index].id);
    }
    fill();
    result = info(memory + 4096, kRegion, kRegion, 4096, found.data());
    std::printf("one region: %d, %zu, %d\n", result, written(), found[0].type);
    fill();
    result = info(memory, 3 * kRegion, 2 * kRegion, kRegion, found.data());
    std::printf("regions of 2 MiB: %d, %zu\n", result, written());
    // A device may have it then, or reach it where it is.
    CHECK_DRIVER(cuMemPrefetchAsync(memory, kBytes, {CU_MEM_LOCATION_TYPE_DEVICE, {0}}, 0, nullptr));
    CHECK_DRIVER(cuCtxSynchronize());
    fill();
    result = info(memory, kBytes, kBytes, 0, found.data());
    const bool is_known = found[0].type == CU_MEM_LOCATION_TYPE_DEVICE || found[0].type == CU_MEM_LOCATION_TYPE_HOST;
    std::printf("on the device or reached by it: %d, %zu, %d\n", result, written(), is_known && found[0].id == 0);
    fill();
    std::printf("no regions: %d\n", info(memory, kBytes, 0, 0, found.data()));
    std::printf("a region longer than the range: %d\n", info(memory, kRegion, kRegion + 1, 0, found.data()));
    std::printf("samples farther than regions: %d\n", info(memory, kBytes, kRegion, kRegion + 1, found.data()));
    std::printf("more than the allocation: %d\n", info(memory, kBytes + (64 << 20), kRegion, 0, found.data()));
    std::printf("nothing: %d\n", info(memory, 0, 0, 0, found.data()));
    std::printf("device memory: %d\n", info(device, kRegion, kRegion, 0, found.data()));
    std::printf("into nothing: %d\n", info(memory, kBytes, kRegion, 0, nullptr));
    std::printf("written: %zu\n", written());
    CHECK_DRIVER(cuMemFree(device));
    CHECK_DRIVER(cuMemFree(memory));
}

using AddNode = CUresult (*)(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t, CUgraphNodeParams *);

static void nodes() {
    const AddNode add = find<AddNode>("cuGraphAddNode");
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphExec exec;
    CUevent event;
    CHECK_DRIVER(cuMemAlloc(&memory, 64));
    CHECK_DRIVER(cuGraphCreate(&graph, 0));
    CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CUgraphNode filled, recorded, other;
    CUgraphNodeParams fill = {};
    fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
    fill.memset.dst = memory;
    fill.memset.value = 0x01020304;
    fill.memset.elementSize = 4;
    fill.memset.width = 16;
    fill.memset.height = 1;
    std::printf("a fill: %d\n", add(&filled, graph, nullptr, nullptr, 0, &fill));
    CUgraphNodeParams record = {};
    record.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    record.eventRecord.event = event;
    std::printf("a record: %d\n", add(&recorded, graph, &filled, nullptr, 1, &record));
    record.eventRecord.event = nullptr;
    std::printf("a record of no event: %d\n", add(&other, graph, nullptr, nullptr, 0, &record));
    size_t edges = 0, count = 0;
    CHECK_DRIVER(cuGraphGetNodes(graph, nullptr, &count));
    CHECK_DRIVER(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    std::printf("%zu nodes, %zu edges\n", count, edges);
    CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
    CHECK_DRIVER(cuGraphLaunch(exec, nullptr));
    CHECK_DRIVER(cuCtxSynchronize());
    unsigned words[16];
    CHECK_DRIVER(cuMemcpyDtoH(words, memory, sizeof(words)));
    std::printf("%#x, %#x, %d\n", words[0], words[15], cuEventQuery(event));
}

int main(int, char **arguments) {
    use_primary_context();
    switch (arguments[1][0]) {
    case 'c':
        cliques();
        break;
    case 'l':
        locations();
        break;
    default:
        nodes();
    }
    return 0;
}
