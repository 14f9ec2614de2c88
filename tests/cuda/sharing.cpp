// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory, an event and an allocation without addresses, shared with another process where the device can.
#include "check_driver.h"

#include <cstring>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

static const size_t BYTES = 1 << 20;

static int differences(CUdeviceptr at, size_t bytes, unsigned int value) {
    std::vector<unsigned int> back(bytes / 4);
    CHECK_DRIVER(cuMemcpyDtoH(back.data(), at, bytes));
    int wrong = 0;
    for (unsigned int word : back) {
        wrong += word != value;
    }
    return wrong;
}

// Sends bytes and, unless it is -1, a file descriptor.
static void send_all(int to, void *bytes, size_t count, int descriptor) {
    iovec vector = {bytes, count};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    REQUIRE(sendmsg(to, &message, 0) == (ssize_t)count);
}

static int receive_all(int from, void *bytes, size_t count) {
    iovec vector = {bytes, count};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    REQUIRE(recvmsg(from, &message, MSG_WAITALL) == (ssize_t)count);
    int descriptor = -1;
    if (const cmsghdr *header = CMSG_FIRSTHDR(&message)) {
        std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    }
    return descriptor;
}

struct Handles {
    int ipc, files;
    CUipcMemHandle memory;
    CUipcEventHandle event;
    size_t unit;
};

static CUmemAllocationProp shareable() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr at;
    CHECK_DRIVER(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(at, bytes, 0, handle, 0));
    CUmemAccessDesc access = {};
    access.location = shareable().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_DRIVER(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

static int child(int socket) {
    Handles handles;
    const int descriptor = receive_all(socket, &handles, sizeof handles);
    use_primary_context();
    int wrong[2] = {};
    if (handles.ipc) {
        CUdeviceptr memory;
        CUevent event;
        CHECK_DRIVER(cuIpcOpenMemHandle(&memory, handles.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        CHECK_DRIVER(cuIpcOpenEventHandle(&event, handles.event));
        CHECK_DRIVER(cuStreamWaitEvent(CU_STREAM_LEGACY, event, 0));
        wrong[0] = differences(memory, BYTES, 0x11111111);
        CHECK_DRIVER(cuMemsetD32(memory + BYTES / 2, 0x22222222, BYTES / 8));
        CHECK_DRIVER(cuCtxSynchronize());
        CHECK_DRIVER(cuEventDestroy(event));
        CHECK_DRIVER(cuIpcCloseMemHandle(memory));
        REQUIRE(cuIpcCloseMemHandle(memory) != CUDA_SUCCESS);
        Handles forged = handles;
        forged.memory.reserved[9] ^= 1;
        REQUIRE(cuIpcOpenMemHandle(&memory, forged.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS);
    }
    if (handles.files) {
        CUmemGenericAllocationHandle handle;
        CHECK_DRIVER(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        const CUdeviceptr at = map(handle, handles.unit);
        wrong[1] = differences(at, handles.unit, 0x33333333);
        CHECK_DRIVER(cuMemsetD32(at, 0x44444444, handles.unit / 8));
        CHECK_DRIVER(cuCtxSynchronize());
        CHECK_DRIVER(cuMemUnmap(at, handles.unit));
        CHECK_DRIVER(cuMemRelease(handle));
    }
    send_all(socket, wrong, sizeof wrong, -1);
    return 0;
}

int main() {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    // Before either process uses CUDA.
    const pid_t other = fork();
    REQUIRE(other >= 0);
    if (other == 0) {
        return child(sockets[1]);
    }
    use_primary_context();
    Handles handles = {};
    CHECK_DRIVER(cuDeviceGetAttribute(&handles.ipc, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
    CHECK_DRIVER(
        cuDeviceGetAttribute(&handles.files, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    std::printf("by handle: %d, by file descriptor: %d\n", handles.ipc, handles.files);
    CUdeviceptr memory = 0, at = 0;
    CUmemGenericAllocationHandle allocation;
    int descriptor = -1;
    if (handles.ipc) {
        CUevent event;
        CHECK_DRIVER(cuMemAlloc(&memory, BYTES));
        CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        CHECK_DRIVER(cuMemsetD32(memory, 0x11111111, BYTES / 4));
        CHECK_DRIVER(cuEventRecord(event, CU_STREAM_LEGACY));
        CHECK_DRIVER(cuIpcGetMemHandle(&handles.memory, memory));
        CHECK_DRIVER(cuIpcGetEventHandle(&handles.event, event));
    }
    if (handles.files) {
        const CUmemAllocationProp prop = shareable();
        CHECK_DRIVER(cuMemGetAllocationGranularity(&handles.unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        CHECK_DRIVER(cuMemCreate(&allocation, handles.unit, &prop, 0));
        CHECK_DRIVER(cuMemExportToShareableHandle(&descriptor, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        at = map(allocation, handles.unit);
        CHECK_DRIVER(cuMemsetD32(at, 0x33333333, handles.unit / 4));
        CHECK_DRIVER(cuCtxSynchronize());
    }
    send_all(sockets[0], &handles, sizeof handles, descriptor);
    int wrong[2], status = 0;
    receive_all(sockets[0], wrong, sizeof wrong);
    REQUIRE(waitpid(other, &status, 0) == other && status == 0);
    if (handles.ipc) {
        std::printf("there: %d wrong; here: %d wrong\n", wrong[0],
                    differences(memory, BYTES / 2, 0x11111111) + differences(memory + BYTES / 2, BYTES / 2, 0x22222222));
    }
    if (handles.files) {
        const size_t half = handles.unit / 2;
        std::printf("there: %d wrong; here: %d wrong\n", wrong[1],
                    differences(at, half, 0x44444444) + differences(at + half, half, 0x33333333));
    }
    return 0;
}
