// SPDX-License-Identifier: Apache-2.0 OR MIT
// Adds 1 to a number, with ranges and marks of NVTX around it, by NVTX's own header: of two domains, which overlap, with a category,
// a payload and a registered text, and ranges that are started and ended. Prints the number.
#include "check.h"

#include <nvtx3/nvToolsExt.h>

__global__ void add_one(int *value) { *value += 1; }

int main() {
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("training");
    nvtxDomainNameCategoryA(domain, 2, "data");
    nvtxEventAttributes_t inner = {};
    inner.version = NVTX_VERSION;
    inner.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    inner.category = 2;
    inner.payloadType = NVTX_PAYLOAD_TYPE_INT32;
    inner.payload.iValue = -42;
    inner.messageType = NVTX_MESSAGE_TYPE_ASCII;
    inner.message.ascii = "inner\n";
    nvtxEventAttributes_t second = inner;
    second.category = 7;
    second.payloadType = NVTX_PAYLOAD_UNKNOWN;
    second.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    second.message.registered = nvtxDomainRegisterStringA(domain, "second");

    nvtxRangePushA("outer");
    nvtxDomainRangePushEx(domain, &inner);
    const nvtxRangeId_t first = nvtxRangeStartA("first");
    const nvtxRangeId_t other = nvtxDomainRangeStartEx(domain, &second);
    nvtxRangeEnd(first);
    // It has ended: without effect.
    nvtxRangeEnd(first);
    int number = 41, *value;
    CHECK(cudaMalloc(&value, sizeof *value));
    CHECK(cudaMemcpy(value, &number, sizeof number, cudaMemcpyHostToDevice));
    nvtxMarkW(L"launch");
    add_one<<<1, 1>>>(value);
    CHECK(cudaGetLastError());
    // The outer one ends first: domains do not contain each other.
    nvtxRangePop();
    CHECK(cudaMemcpy(&number, value, sizeof number, cudaMemcpyDeviceToHost));
    nvtxDomainRangePop(domain);
    nvtxDomainRangeEnd(domain, other);
    CHECK(cudaFree(value));
    std::printf("%d\n", number);
    return 0;
}
