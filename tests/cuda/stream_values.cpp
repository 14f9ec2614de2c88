// SPDX-License-Identifier: Apache-2.0 OR MIT
// Streams wait for values in memory and write them; attributes of streams.
#include "check_driver.h"

#include <unistd.h>

int main() {
    use_primary_context();
    CUstream stream, other;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));

    // The stream waits for the program's CPU, then writes for it.
    uint32_t *flags;
    CHECK_DRIVER(cuMemHostAlloc((void **)&flags, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    flags[0] = flags[1] = flags[2] = 0;
    CUdeviceptr at;
    CHECK_DRIVER(cuMemHostGetDevicePointer(&at, flags, 0));
    CHECK_DRIVER(cuStreamWaitValue32(stream, at, 5, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK_DRIVER(cuStreamWriteValue32(stream, at + 4, 77, 0));
    usleep(20000);
    std::printf("waiting: query %d, written %u\n", (int)cuStreamQuery(stream), flags[1]);
    *(volatile uint32_t *)flags = 6;
    CHECK_DRIVER(cuStreamSynchronize(stream));
    std::printf("released: written %u\n", *(volatile uint32_t *)(flags + 1));

    // Two streams by one value in device memory, 64 bits wide.
    CUdeviceptr memory;
    CHECK_DRIVER(cuMemAlloc(&memory, 64));
    CHECK_DRIVER(cuMemsetD8(memory, 0, 64));
    // Streams that do not block do not wait for the fill, which would take the value back.
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuStreamWaitValue64(other, memory, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_DRIVER(cuStreamWriteValue32(other, at + 8, 99, 0));
    CHECK_DRIVER(cuStreamWriteValue64(stream, memory, 1ull << 40, 0));
    CHECK_DRIVER(cuStreamSynchronize(other));
    uint64_t value = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&value, memory, 8));
    std::printf("64 bits: %llx, then %u\n", (unsigned long long)value, *(volatile uint32_t *)(flags + 2));

    // Several at once.
    CUstreamBatchMemOpParams batch[2] = {};
    batch[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    batch[0].writeValue.address = memory + 16;
    batch[0].writeValue.value = 11;
    batch[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    batch[1].waitValue.address = memory + 16;
    batch[1].waitValue.value = 11;
    batch[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    CHECK_DRIVER(cuStreamBatchMemOp(stream, 2, batch, 0));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    uint32_t small = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&small, memory + 16, 4));
    std::printf("batch: %u\n", small);

    CUstreamAttrValue attribute = {};
    attribute.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
    CHECK_DRIVER(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
    attribute = {};
    CHECK_DRIVER(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
    std::printf("policy %d", (int)attribute.syncPolicy);
    CHECK_DRIVER(cuStreamCopyAttributes(other, stream));
    attribute = {};
    CHECK_DRIVER(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
    std::printf(", copied %d\n", (int)attribute.syncPolicy);
    CHECK_DRIVER(cuMemFree(memory));
    CHECK_DRIVER(cuMemFreeHost(flags));
    std::printf("done\n");
    return 0;
}
