// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies of memory that a kernel of another stream is still writing. Nothing orders them but the default stream, with which
// streams synchronise implicitly. A copy must read what the kernel has written, of any length and in each form.
//
// Asynchronous copies from pinned memory to the device are not among them: NVIDIA's driver reads short ones at once.
#include "busy.h"
#include "check.h"

#include <functional>
#include <vector>

constexpr int MOST = 1 << 16;
constexpr int LENGTHS[] = {1, 64, 1024, 8192, MOST};
constexpr int COUNT = sizeof LENGTHS / sizeof *LENGTHS;
constexpr long long NANOSECONDS = 2000000;

__global__ void fill_late(volatile int *memory, int count, int value) {
    stay_busy(NANOSECONDS);
    for (int i = 0; i < count; i++) memory[i] = value;
    __threadfence_system();
}

static int *pinned, *managed[COUNT], *device, *other;
static std::vector<int> page(MOST), result(MOST);
static cudaStream_t blocking;

// Rows of the same length without gaps, two if there are several elements.
struct Rows {
    size_t width, height;
    explicit Rows(int count) : width(count * sizeof(int)), height(count > 1 ? 2 : 1) { width /= height; }
};

// Each length: a kernel in `busy` fills `written(length's index)` late, `copy` follows, and `read` must have the values.
static void each(const char *name, cudaStream_t busy, const std::function<int *(int)> &written,
                 const std::function<void(int *, int)> &copy, int *read) {
    static int value = 1;
    bool right = true;
    for (int index = 0; index < COUNT; index++) {
        const int count = LENGTHS[index];
        int *memory = written(index);
        value++;
        CHECK(cudaMemset(memory, 0, count * sizeof(int)));
        CHECK(cudaDeviceSynchronize());
        fill_late<<<1, 1, 0, busy>>>(memory, count, value);
        CHECK(cudaGetLastError());
        copy(memory, count);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(result.data(), read, count * sizeof(int), cudaMemcpyDefault));
        for (int i = 0; i < count; i++) right = right && result[i] == value;
    }
    std::printf("%s: %s\n", name, right ? "right" : "WRONG");
}

int main() {
    CHECK(cudaMallocHost(&pinned, MOST * sizeof(int)));
    for (int i = 0; i < COUNT; i++) CHECK(cudaMallocManaged(&managed[i], LENGTHS[i] * sizeof(int)));
    CHECK(cudaMalloc(&device, MOST * sizeof(int)));
    CHECK(cudaMalloc(&other, MOST * sizeof(int)));
    CHECK(cudaStreamCreate(&blocking));
    fill_late<<<1, 1, 0, blocking>>>(device, 1, 0);
    CHECK(cudaDeviceSynchronize());

    const auto in_pinned = [](int) { return pinned; };
    const auto in_managed = [](int index) { return managed[index]; };
    const auto on_device = [](int) { return other; };
    const auto wait = [](int *src, int count) { CHECK(cudaMemcpy(device, src, count * sizeof(int), cudaMemcpyDefault)); };
    const auto in = [](cudaStream_t stream) {
        return [stream](int *src, int count) {
            CHECK(cudaMemcpyAsync(device, src, count * sizeof(int), cudaMemcpyDefault, stream));
        };
    };
    const auto rows = [](int *src, int count) {
        const Rows of(count);
        CHECK(cudaMemcpy2D(device, of.width, src, of.width, of.width, of.height, cudaMemcpyDefault));
    };
    const auto rows_in = [](cudaStream_t stream) {
        return [stream](int *src, int count) {
            const Rows of(count);
            CHECK(cudaMemcpy2DAsync(device, of.width, src, of.width, of.width, of.height, cudaMemcpyDefault, stream));
        };
    };
    each("pinned memory, cudaMemcpy", blocking, in_pinned, wait, device);
    each("pinned memory, cudaMemcpy2D", blocking, in_pinned, rows, device);
    each("pinned memory, cudaMemcpyAsync in the kernel's stream", blocking, in_pinned, in(blocking), device);
    each("managed memory, cudaMemcpy", blocking, in_managed, wait, device);
    each("managed memory, cudaMemcpy2D", blocking, in_managed, rows, device);
    each("managed memory, cudaMemcpyAsync in the default stream", blocking, in_managed, in(cudaStreamLegacy), device);
    each("managed memory, cudaMemcpyAsync in a stream", cudaStreamLegacy, in_managed, in(blocking), device);
    each("managed memory, cudaMemcpy2DAsync in the default stream", blocking, in_managed, rows_in(cudaStreamLegacy), device);
    each("managed memory, cudaMemcpy2DAsync in a stream", cudaStreamLegacy, in_managed, rows_in(blocking), device);
    each("device memory, cudaMemcpy", blocking, on_device, wait, device);
    each("device memory, cudaMemcpyAsync in a stream", cudaStreamLegacy, on_device, in(blocking), device);
    each("device memory to pinned memory, cudaMemcpy", blocking, on_device,
         [](int *src, int count) { CHECK(cudaMemcpy(pinned, src, count * sizeof(int), cudaMemcpyDefault)); }, pinned);
    each("pinned memory to pageable memory, cudaMemcpyAsync in the default stream", blocking, in_pinned,
         [](int *src, int count) {
             CHECK(cudaMemcpyAsync(page.data(), src, count * sizeof(int), cudaMemcpyDefault, cudaStreamLegacy));
             CHECK(cudaStreamSynchronize(cudaStreamLegacy));
         },
         page.data());
    each("pinned memory to pageable memory, cudaMemcpyAsync in a stream", cudaStreamLegacy, in_pinned,
         [](int *src, int count) {
             CHECK(cudaMemcpyAsync(page.data(), src, count * sizeof(int), cudaMemcpyDefault, blocking));
             CHECK(cudaStreamSynchronize(blocking));
         },
         page.data());
    each("cudaMemcpy between pageable memory", blocking, in_pinned,
         [](int *src, int count) {
             static std::vector<int> from(1), to(1);
             CHECK(cudaMemcpy(to.data(), from.data(), sizeof(int), cudaMemcpyDefault));
             // The copy has waited for the kernel, so the program may read what that has written.
             std::copy(src, src + count, page.data());
         },
         page.data());
    return 0;
}
