// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory, an event, an allocation without addresses and a pool, each shared with another process. That one is started
// by exec before this one has used CUDA. Nobody waits for ever: a side that fails closes its end of the socket.
#include "check_driver.h"
#include "descriptors.h"
#include "other_process.h"

#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

static const size_t BYTES = 1 << 20;
// An allocation that shares no unit of memory with others.
static const size_t LARGE = 4 << 20;
// Longer than anything here takes, s.
static const int LIMIT = 60;

// What one process tells the other.
struct Message {
    int good;
    CUipcMemHandle memory;
    CUipcEventHandle event;
    CUmemPoolPtrExportData pointer;
    size_t bytes;
    int wrong;
};

static int differences(CUdeviceptr at, size_t bytes, unsigned int value) {
    std::vector<unsigned int> back(bytes / 4);
    CHECK_DRIVER(cuMemcpyDtoH(back.data(), at, bytes));
    int wrong = 0;
    for (unsigned int word : back) {
        wrong += word != value;
    }
    return wrong;
}

// Sends a message and, unless it is -1, a file descriptor.
static void send_all(int to, Message message, int descriptor) {
    message.good = 1;
    REQUIRE(send_descriptor(to, &message, sizeof message, descriptor));
}

// The other side's message; `good` is 0 if it sends none within the limit.
static int receive_all(int from, Message &message) {
    message = {};
    int descriptor;
    if (!receive_descriptor(from, &message, sizeof message, &descriptor)) {
        message.good = 0;
    }
    return descriptor;
}

static CUmemLocation device() {
    return {CU_MEM_LOCATION_TYPE_DEVICE, 0};
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr at;
    CHECK_DRIVER(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(at, bytes, 0, handle, 0));
    CUmemAccessDesc access = {};
    access.location = device();
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_DRIVER(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

// Looks whether all of the memory has the other side's value, and writes the second half.
static void look_and_write(int socket, CUdeviceptr at, size_t bytes) {
    Message answer = {};
    answer.wrong = differences(at, bytes, 0x11111111);
    CHECK_DRIVER(cuMemsetD32(at + bytes / 2, 0x22222222, bytes / 8));
    CHECK_DRIVER(cuCtxSynchronize());
    send_all(socket, answer, -1);
}

// Lets the other side do that, and looks what it has written.
static void offer(int socket, const char *name, const Message &message, int descriptor, CUdeviceptr at) {
    send_all(socket, message, descriptor);
    Message answer;
    receive_all(socket, answer);
    if (!answer.good) {
        std::printf("%s: the other process has failed\n", name);
        std::exit(1);
    }
    const size_t half = message.bytes / 2;
    std::printf("%s: there %d wrong, here %d wrong\n", name, answer.wrong,
                differences(at, half, 0x11111111) + differences(at + half, half, 0x22222222));
}

static void offer_by_handle(int socket) {
    Message message = {};
    message.bytes = LARGE;
    CUdeviceptr memory, before;
    CUipcMemHandle handle;
    CUevent event;
    // Another one of the same size is exported, too.
    CHECK_DRIVER(cuMemAlloc(&before, LARGE));
    CHECK_DRIVER(cuMemsetD32(before, 0x33333333, LARGE / 4));
    CHECK_DRIVER(cuIpcGetMemHandle(&handle, before));
    CHECK_DRIVER(cuMemAlloc(&memory, LARGE));
    CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHECK_DRIVER(cuMemsetD32(memory, 0x11111111, LARGE / 4));
    CHECK_DRIVER(cuEventRecord(event, CU_STREAM_LEGACY));
    // Any address of an allocation stands for all of it.
    CHECK_DRIVER(cuIpcGetMemHandle(&message.memory, memory + LARGE / 2 + 4));
    CHECK_DRIVER(cuIpcGetEventHandle(&message.event, event));
    offer(socket, "by handle", message, -1, memory);
    REQUIRE(differences(before, LARGE, 0x33333333) == 0);
}

static void take_by_handle(int socket, const Message &message) {
    CUdeviceptr memory;
    CUevent event;
    CHECK_DRIVER(cuIpcOpenMemHandle(&memory, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK_DRIVER(cuIpcOpenEventHandle(&event, message.event));
    CHECK_DRIVER(cuStreamWaitEvent(CU_STREAM_LEGACY, event, 0));
    look_and_write(socket, memory, message.bytes);
    CHECK_DRIVER(cuEventDestroy(event));
    CHECK_DRIVER(cuIpcCloseMemHandle(memory));
}

static void offer_by_file(int socket) {
    Message message = {};
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = device();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle allocation;
    int descriptor = -1;
    CHECK_DRIVER(cuMemGetAllocationGranularity(&message.bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_DRIVER(cuMemCreate(&allocation, message.bytes, &prop, 0));
    CHECK_DRIVER(cuMemExportToShareableHandle(&descriptor, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const CUdeviceptr at = map(allocation, message.bytes);
    CHECK_DRIVER(cuMemsetD32(at, 0x11111111, message.bytes / 4));
    CHECK_DRIVER(cuCtxSynchronize());
    offer(socket, "by file descriptor", message, descriptor, at);
    close(descriptor);
}

static void take_by_file(int socket, const Message &message, int descriptor) {
    CUmemGenericAllocationHandle handle;
    CHECK_DRIVER(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    const CUdeviceptr at = map(handle, message.bytes);
    look_and_write(socket, at, message.bytes);
    CHECK_DRIVER(cuMemUnmap(at, message.bytes));
    CHECK_DRIVER(cuMemRelease(handle));
}

static void offer_pool(int socket) {
    Message message = {};
    message.bytes = BYTES;
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    props.location = device();
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr first, at;
    int descriptor = -1;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
    CHECK_DRIVER(cuMemAllocFromPoolAsync(&first, 300, pool, stream));
    CHECK_DRIVER(cuMemAllocFromPoolAsync(&at, BYTES, pool, stream));
    CHECK_DRIVER(cuMemsetD32Async(first, 0x33333333, 75, stream));
    CHECK_DRIVER(cuMemsetD32Async(at, 0x11111111, BYTES / 4, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK_DRIVER(cuMemPoolExportPointer(&message.pointer, at));
    offer(socket, "pool", message, descriptor, at);
    close(descriptor);
    std::printf("pool: %d wrong beside it\n", differences(first, 300, 0x33333333));
    CHECK_DRIVER(cuMemFreeAsync(at, stream));
    CHECK_DRIVER(cuMemFreeAsync(first, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
}

static void take_pool(int socket, const Message &message, int descriptor) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr at, other;
    CUmemLocation here = device();
    CUmemAccess_flags access;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)descriptor,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(descriptor);
    CHECK_DRIVER(cuMemPoolGetAccess(&access, pool, &here));
    REQUIRE(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemPoolPtrExportData data = message.pointer;
    CHECK_DRIVER(cuMemPoolImportPointer(&at, pool, &data));
    // Nothing is allocated from a pool that another process has made.
    REQUIRE(cuMemAllocFromPoolAsync(&other, 16, pool, stream) != CUDA_SUCCESS);
    look_and_write(socket, at, message.bytes);
    CHECK_DRIVER(cuMemFreeAsync(at, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
}

static int take(const char *mode, int socket) {
    Message message;
    const int descriptor = receive_all(socket, message);
    REQUIRE(message.good);
    use_primary_context();
    switch (mode[0]) {
    case 'h': take_by_handle(socket, message); break;
    case 'f': take_by_file(socket, message, descriptor); break;
    default: take_pool(socket, message, descriptor); break;
    }
    return 0;
}

static Other start(const char *mode) { return start_other("sharing", mode, LIMIT); }

static void finish(const char *name, const Other &other) {
    std::printf("%s: the other process ends with %d\n", name, wait_for(other));
}

int main(int count, char **arguments) {
    alarm(2 * LIMIT);
    if (count == 3) {
        return take(arguments[1], std::atoi(arguments[2]));
    }
    const auto wanted = [&](const char *mode) { return count == 1 || std::strcmp(arguments[1], mode) == 0; };
    // Before this process uses CUDA, all of them.
    const Other nobody = {-1, -1};
    const Other by_handle = wanted("handle") ? start("handle") : nobody;
    const Other by_file = wanted("file") ? start("file") : nobody;
    const Other with_pool = wanted("pool") ? start("pool") : nobody;
    use_primary_context();
    int handles = 0, files = 0, pools = 0;
    CHECK_DRIVER(cuDeviceGetAttribute(&handles, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
    CHECK_DRIVER(cuDeviceGetAttribute(&files, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    CHECK_DRIVER(cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
    std::printf("by handle: %d, by file descriptor: %d, pools: %d\n", handles, files,
                pools & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (wanted("handle") && handles) {
        offer_by_handle(by_handle.socket);
        finish("by handle", by_handle);
    }
    if (wanted("file") && files) {
        offer_by_file(by_file.socket);
        finish("by file descriptor", by_file);
    }
    if (wanted("pool") && pools) {
        offer_pool(with_pool.socket);
        finish("pool", with_pool);
    }
    return 0;
}
