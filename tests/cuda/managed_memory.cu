// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory that the host and kernels both use by the same address.
#include "check.h"

struct Node {
    int value;
    Node *next;
};

__global__ void walk(Node *head, int *sum) {
    for (Node *node = head; node != nullptr; node = node->next) {
        *sum += node->value;
        node->value = -node->value;
    }
}

int main() {
    const int n = 1000;
    Node *nodes;
    int *sum;
    CHECK(cudaMallocManaged(&nodes, n * sizeof(Node)));
    CHECK(cudaMallocManaged(&sum, sizeof *sum));
    *sum = 0;
    for (int i = 0; i < n; i++) {
        nodes[i].value = i;
        nodes[i].next = i + 1 < n ? &nodes[i + 1] : nullptr;
    }
    walk<<<1, 1>>>(nodes, sum);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("sum of the list: %d\n", *sum);
    REQUIRE(*sum == n * (n - 1) / 2);
    for (int i = 0; i < n; i++) {
        REQUIRE(nodes[i].value == -i);
    }

    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, nodes));
    std::printf("managed memory: type %d\n", (int)attributes.type);
    Node first;
    CHECK(cudaMemset(nodes, 0, sizeof(Node)));
    CHECK(cudaMemcpy(&first, nodes, sizeof first, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    REQUIRE(first.value == 0 && nodes[0].next == nullptr && nodes[1].value == -1);
    CHECK(cudaFree(nodes));
    CHECK(cudaFree(sum));
    return 0;
}
