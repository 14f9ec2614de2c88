// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies of parts of tensors by tensor maps (cp.async.bulk.tensor): one to five dimensions, swizzled, partly outside,
// as columns of an image, stored, reduced, to several blocks of a cluster, and in a pipeline. Each is compared with a
// loop on the host.
#include "check.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include <cuda.h>

constexpr int MAX_RANK = 5;
constexpr size_t ROOM = 32768;
constexpr size_t TENSOR = 131072;
constexpr unsigned THREADS = 128;
constexpr unsigned char EMPTY = 0xee;

struct Coordinates {
    int at[MAX_RANK];
    unsigned short offsets[3];
};

enum Operation { LOAD, LOAD_COLUMNS, STORE, ADD, MIN, MAX, INC, AND, XOR };

#define LOAD_BOX(DIM, LIST, ...)                                                                                \
    asm volatile("cp.async.bulk.tensor." DIM ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], " \
                 "[%1, " LIST "], [%2];" ::"r"(room),                                                           \
                 "l"(map), "r"(barrier), __VA_ARGS__                                                            \
                 : "memory")
#define STORE_BOX(PREFIX, FORM, DIM, LIST, ...)                                               \
    asm volatile(PREFIX ".bulk.tensor." DIM ".global.shared::cta" FORM ".bulk_group [%0, " LIST "], [%1];" ::"l"(map), \
                 "r"(room), __VA_ARGS__                                                       \
                 : "memory")
#define AT1 "r"(c.at[0])
#define AT2 AT1, "r"(c.at[1])
#define AT3 AT2, "r"(c.at[2])
#define AT4 AT3, "r"(c.at[3])
#define AT5 AT4, "r"(c.at[4])
#define STORE_BOX_OF(PREFIX, FORM)                                                             \
    switch (rank) {                                                                            \
    case 1: STORE_BOX(PREFIX, FORM, "1d", "{%2}", AT1); break;                                 \
    case 2: STORE_BOX(PREFIX, FORM, "2d", "{%2, %3}", AT2); break;                             \
    case 3: STORE_BOX(PREFIX, FORM, "3d", "{%2, %3, %4}", AT3); break;                         \
    case 4: STORE_BOX(PREFIX, FORM, "4d", "{%2, %3, %4, %5}", AT4); break;                     \
    default: STORE_BOX(PREFIX, FORM, "5d", "{%2, %3, %4, %5, %6}", AT5); break;                \
    }

static __device__ unsigned shared_address(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

static __device__ void start_barrier(unsigned barrier) {
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
}

static __device__ void expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ void wait(unsigned barrier, unsigned parity) {
    unsigned done = 0;
    while (!done) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    }
}

static __device__ void load(int rank, unsigned room, const void *map, unsigned barrier, const Coordinates &c) {
    switch (rank) {
    case 1: LOAD_BOX("1d", "{%3}", AT1); break;
    case 2: LOAD_BOX("2d", "{%3, %4}", AT2); break;
    case 3: LOAD_BOX("3d", "{%3, %4, %5}", AT3); break;
    case 4: LOAD_BOX("4d", "{%3, %4, %5, %6}", AT4); break;
    default: LOAD_BOX("5d", "{%3, %4, %5, %6, %7}", AT5); break;
    }
}

static __device__ void load_columns(unsigned room, const void *map, unsigned barrier, const Coordinates &c) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(room),
                 "l"(map), "r"(barrier), AT4, "h"(c.offsets[0]), "h"(c.offsets[1])
                 : "memory");
}

static __device__ void store(Operation operation, int rank, unsigned room, const void *map, const Coordinates &c) {
    switch (operation) {
    case STORE: STORE_BOX_OF("cp.async", ".tile") break;
    case ADD: STORE_BOX_OF("cp.reduce.async", ".add.tile") break;
    case MIN: STORE_BOX_OF("cp.reduce.async", ".min.tile") break;
    case MAX: STORE_BOX_OF("cp.reduce.async", ".max.tile") break;
    case INC: STORE_BOX_OF("cp.reduce.async", ".inc.tile") break;
    case AND: STORE_BOX_OF("cp.reduce.async", ".and.tile") break;
    default: STORE_BOX_OF("cp.reduce.async", ".xor.tile") break;
    }
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}

// The room is filled from `image`; after a load it is copied back there. `other` is a map in memory, or null.
static __global__ void copy(const __grid_constant__ CUtensorMap parameter, const CUtensorMap *other, Operation operation, int rank,
                            unsigned bytes, Coordinates c, unsigned char *image) {
    __shared__ __align__(1024) unsigned char room[ROOM];
    __shared__ __align__(8) unsigned long long word;
    const CUtensorMap *map = other ? other : &parameter;
    const unsigned barrier = shared_address(&word);
    for (size_t i = threadIdx.x; i < ROOM; i += THREADS) {
        room[i] = image[i];
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    start_barrier(barrier);
    if (operation == LOAD || operation == LOAD_COLUMNS) {
        if (threadIdx.x == 0) {
            expect(barrier, bytes);
            if (operation == LOAD) {
                load(rank, shared_address(room), map, barrier, c);
            } else {
                load_columns(shared_address(room), map, barrier, c);
            }
        }
        wait(barrier, 0);
        for (size_t i = threadIdx.x; i < ROOM; i += THREADS) {
            image[i] = room[i];
        }
    } else if (threadIdx.x == 0) {
        store(operation, rank, shared_address(room), map, c);
    }
}

// One block's load comes to both blocks of the cluster.
static __global__ void __cluster_dims__(2) copy_to_both(const __grid_constant__ CUtensorMap map, unsigned bytes, Coordinates c,
                                                         unsigned char *images) {
    __shared__ __align__(1024) unsigned char room[ROOM];
    __shared__ __align__(8) unsigned long long word;
    const unsigned barrier = shared_address(&word);
    for (size_t i = threadIdx.x; i < ROOM; i += THREADS) {
        room[i] = EMPTY;
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    start_barrier(barrier);
    if (threadIdx.x == 0) {
        expect(barrier, bytes);
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                     "[%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(room)),
                     "l"(&map), "r"(barrier), AT2, "h"((unsigned short)3)
                     : "memory");
    }
    wait(barrier, 0);
    for (size_t i = threadIdx.x; i < ROOM; i += THREADS) {
        images[blockIdx.x * ROOM + i] = room[i];
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// Sums a matrix in tiles of 32 by 8 floats, each loaded while the one before it is added.
static __global__ void add_up(const __grid_constant__ CUtensorMap map, int columns, int rows, float *sums) {
    constexpr int WIDTH = 32, HEIGHT = 8;
    __shared__ __align__(128) float tiles[2][HEIGHT][WIDTH];
    __shared__ __align__(8) unsigned long long words[2];
    start_barrier(shared_address(&words[0]));
    start_barrier(shared_address(&words[1]));
    const int across = columns / WIDTH, count = across * (rows / HEIGHT);
    const auto begin = [&](int tile) {
        if (threadIdx.x == 0 && tile < count) {
            const Coordinates c = {{tile % across * WIDTH, tile / across * HEIGHT}, {}};
            const unsigned barrier = shared_address(&words[tile % 2]);
            expect(barrier, sizeof tiles[0]);
            load(2, shared_address(tiles[tile % 2]), &map, barrier, c);
        }
    };
    float sum = 0;
    begin(0);
    for (int tile = 0; tile < count; tile++) {
        begin(tile + 1);
        wait(shared_address(&words[tile % 2]), tile / 2 % 2);
        sum += tiles[tile % 2][threadIdx.x / WIDTH][threadIdx.x % WIDTH];
        __syncthreads();
    }
    sums[threadIdx.x] = sum;
}

static __constant__ CUtensorMap constant_map;

// The arguments of cuTensorMapEncodeTiled.
struct Tensor {
    const char *name;
    CUtensorMapDataType type;
    int rank;
    cuuint64_t sizes[MAX_RANK];
    cuuint64_t strides[MAX_RANK - 1];
    cuuint32_t box[MAX_RANK];
    Coordinates start;
    CUtensorMapSwizzle swizzle;
    cuuint32_t steps[MAX_RANK];
    CUtensorMapFloatOOBfill fill;
};

static decltype(&cuTensorMapEncodeTiled) encode_tiled;
static decltype(&cuTensorMapEncodeIm2col) encode_columns;
static unsigned char *tensor, *image;
static std::vector<unsigned char> tensor_bytes(TENSOR), image_bytes(ROOM), found(TENSOR);

template <typename Function> static void find(const char *name, Function &function) {
    void *pointer = nullptr;
    cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion(name, &pointer, 12000, cudaEnableDefault, &result));
    REQUIRE(result == cudaDriverEntryPointSuccess);
    function = (Function)pointer;
}

static unsigned bytes_of(CUtensorMapDataType type) {
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
    default: return 4;
    }
}

static CUtensorMap encode(const Tensor &t) {
    CUtensorMap map;
    cuuint32_t steps[MAX_RANK];
    for (int side = 0; side < MAX_RANK; side++) {
        steps[side] = t.steps[side] ? t.steps[side] : 1;
    }
    const CUresult result = encode_tiled(&map, t.type, t.rank, tensor, t.sizes, t.strides, t.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                         t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, t.fill);
    if (result != CUDA_SUCCESS) {
        std::printf("%s: cannot be encoded: %d\n", t.name, (int)result);
        std::exit(1);
    }
    return map;
}

// Calls `visit` with each element's place in the box, in shared memory and in the tensor (-1: outside), in bytes. Returns the
// number of elements.
static size_t visit_box(const Tensor &t, const std::function<void(size_t, size_t, ptrdiff_t)> &visit) {
    const size_t element = bytes_of(t.type);
    size_t counts[MAX_RANK], count = 1;
    for (int side = 0; side < t.rank; side++) {
        const size_t step = side > 0 && t.steps[side] ? t.steps[side] : 1;
        counts[side] = (t.box[side] + step - 1) / step;
        count *= counts[side];
    }
    const size_t pattern = t.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 1 : (size_t)1 << (int)t.swizzle;
    for (size_t index = 0; index < count; index++) {
        ptrdiff_t place = 0;
        size_t rest = index;
        for (int side = 0; side < t.rank; side++) {
            const long long step = side > 0 && t.steps[side] ? t.steps[side] : 1;
            const long long at = t.start.at[side] + (long long)(rest % counts[side]) * step;
            rest /= counts[side];
            if (at < 0 || at >= (long long)t.sizes[side]) {
                place = -1;
            } else if (place >= 0) {
                place += at * (side == 0 ? element : t.strides[side - 1]);
            }
        }
        const size_t inside = index * element;
        visit(index, inside ^ (inside / 128 % pattern) * 16, place);
    }
    return count;
}

static void fill_all() {
    for (size_t i = 0; i < TENSOR; i++) {
        tensor_bytes[i] = (unsigned char)(i * 7 + i / 256 * 13 + 1);
    }
    CHECK(cudaMemcpy(tensor, tensor_bytes.data(), TENSOR, cudaMemcpyHostToDevice));
}

static void run(const CUtensorMap &map, const CUtensorMap *other, Operation operation, int rank, size_t bytes, const Coordinates &start) {
    CHECK(cudaMemcpy(image, image_bytes.data(), ROOM, cudaMemcpyHostToDevice));
    copy<<<1, THREADS>>>(map, other, operation, rank, (unsigned)bytes, start, image);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

static bool is_nan(const unsigned char *bytes, CUtensorMapDataType type) {
    if (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32) {
        float value;
        std::memcpy(&value, bytes, sizeof value);
        return std::isnan(value);
    }
    uint16_t half;
    std::memcpy(&half, bytes, sizeof half);
    return (half & 0x7fff) > (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ? 0x7c00 : 0x7f80);
}

// Compares the room after a load with the tensor.
static void report_load(const Tensor &t, const char *how, const unsigned char *loaded) {
    const size_t element = bytes_of(t.type);
    std::vector<unsigned char> expected(ROOM, EMPTY);
    size_t outside = 0, wrong = 0;
    const size_t count = visit_box(t, [&](size_t, size_t place, ptrdiff_t from) {
        if (from >= 0) {
            std::memcpy(&expected[place], &tensor_bytes[from], element);
            return;
        }
        outside++;
        std::memset(&expected[place], 0, element);
        if (t.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
            wrong += !is_nan(loaded + place, t.type);
            std::memcpy(&expected[place], loaded + place, element);
        }
    });
    for (size_t i = 0; i < ROOM; i++) {
        wrong += expected[i] != loaded[i];
    }
    std::printf("%s%s: %zu elements loaded, %zu outside, %zu wrong\n", t.name, how, count, outside, wrong);
}

static void test_load(const Tensor &t, const char *how = "", const CUtensorMap *other = nullptr) {
    const CUtensorMap map = encode(t);
    const size_t count = visit_box(t, [](size_t, size_t, ptrdiff_t) {});
    std::fill(image_bytes.begin(), image_bytes.end(), EMPTY);
    run(map, other, LOAD, t.rank, count * bytes_of(t.type), t.start);
    CHECK(cudaMemcpy(found.data(), image, ROOM, cudaMemcpyDeviceToHost));
    report_load(t, how, found.data());
}

// Stores or reduces numbers; `combine` makes an element of the one in the tensor and the one in the room.
template <typename T>
static void test_store(const Tensor &t, const char *how, Operation operation, const std::function<T(T, T)> &combine) {
    const CUtensorMap map = encode(t);
    fill_all();
    std::vector<unsigned char> expected = tensor_bytes;
    size_t outside = 0;
    const size_t count = visit_box(t, [&](size_t index, size_t place, ptrdiff_t to) {
        const T value = (T)(3 + 5 * index);
        std::memcpy(&image_bytes[place], &value, sizeof value);
        if (to < 0) {
            outside++;
            return;
        }
        T old = (T)(1000 - (long)index);
        std::memcpy(&tensor_bytes[to], &old, sizeof old);
        old = combine(old, value);
        std::memcpy(&expected[to], &old, sizeof old);
    });
    CHECK(cudaMemcpy(tensor, tensor_bytes.data(), TENSOR, cudaMemcpyHostToDevice));
    run(map, nullptr, operation, t.rank, 0, t.start);
    CHECK(cudaMemcpy(found.data(), tensor, TENSOR, cudaMemcpyDeviceToHost));
    size_t wrong = 0;
    for (size_t i = 0; i < TENSOR; i++) {
        wrong += found[i] != expected[i];
    }
    std::printf("%s: %zu elements %s, %zu outside, %zu wrong\n", t.name, count, how, outside, wrong);
    fill_all();
}

// The pixels under one place of a filter of 3 by 3, with a border of one pixel around the image.
static void test_columns() {
    const int channels = 8, pixels = 64;
    const cuuint64_t sizes[] = {16, 7, 6, 5}, strides[] = {32, 224, 1344};
    const int lower[] = {-1, -1}, upper[] = {-1, -1};
    const cuuint32_t steps[] = {1, 1, 1, 1};
    const Coordinates start = {{8, 3, 4, 1}, {2, 1}};
    CUtensorMap map;
    REQUIRE(encode_columns(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, tensor, sizes, strides, lower, upper, channels, pixels, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    std::fill(image_bytes.begin(), image_bytes.end(), EMPTY);
    run(map, nullptr, LOAD_COLUMNS, 4, channels * pixels * 2, start);
    CHECK(cudaMemcpy(found.data(), image, ROOM, cudaMemcpyDeviceToHost));
    int x = start.at[1], y = start.at[2], n = start.at[3];
    size_t outside = 0, wrong = 0;
    for (int pixel = 0; pixel < pixels; pixel++) {
        const int at_x = x + start.offsets[0], at_y = y + start.offsets[1];
        const bool inside = at_x >= 0 && at_x < 7 && at_y >= 0 && at_y < 6 && n < 5;
        outside += !inside;
        const size_t place = start.at[0] * 2 + at_x * strides[0] + at_y * strides[1] + n * strides[2];
        for (int byte = 0; byte < channels * 2; byte++) {
            wrong += found[pixel * channels * 2 + byte] != (inside ? tensor_bytes[place + byte] : 0);
        }
        if (++x == 6) {
            x = -1;
            if (++y == 5) {
                y = -1;
                n++;
            }
        }
    }
    std::printf("columns: %d pixels loaded, %zu outside, %zu wrong\n", pixels, outside, wrong);
}

static void test_both(const Tensor &t) {
    const CUtensorMap map = encode(t);
    unsigned char *images;
    CHECK(cudaMalloc(&images, 2 * ROOM));
    copy_to_both<<<2, THREADS>>>(map, t.box[0] * t.box[1] * bytes_of(t.type), t.start, images);
    CHECK(cudaGetLastError());
    for (int block = 0; block < 2; block++) {
        CHECK(cudaMemcpy(found.data(), images + block * ROOM, ROOM, cudaMemcpyDeviceToHost));
        report_load(t, block ? ", second block" : ", first block", found.data());
    }
    CHECK(cudaFree(images));
}

static void test_pipeline() {
    const int columns = 128, rows = 96;
    const Tensor t = {"pipeline", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, {columns, rows}, {columns * 4}, {32, 8}};
    std::vector<float> values(columns * rows), sums(THREADS * 2), expected(THREADS * 2);
    for (int i = 0; i < columns * rows; i++) {
        values[i] = (float)(i % 97);
        expected[i / columns % 8 * 32 + i % 32] += values[i];
    }
    CHECK(cudaMemcpy(tensor, values.data(), columns * rows * 4, cudaMemcpyHostToDevice));
    add_up<<<1, 256>>>(encode(t), columns, rows, (float *)image);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(sums.data(), image, sums.size() * 4, cudaMemcpyDeviceToHost));
    std::printf("pipeline: sums are %s\n", sums == expected ? "right" : "wrong");
    fill_all();
}

int main() {
    find("cuTensorMapEncodeTiled", encode_tiled);
    find("cuTensorMapEncodeIm2col", encode_columns);
    CHECK(cudaMalloc(&tensor, TENSOR));
    CHECK(cudaMalloc(&image, ROOM));
    fill_all();

    const auto u8 = CU_TENSOR_MAP_DATA_TYPE_UINT8, u16 = CU_TENSOR_MAP_DATA_TYPE_UINT16, u32 = CU_TENSOR_MAP_DATA_TYPE_UINT32,
               s32 = CU_TENSOR_MAP_DATA_TYPE_INT32, u64 = CU_TENSOR_MAP_DATA_TYPE_UINT64, s64 = CU_TENSOR_MAP_DATA_TYPE_INT64,
               f16 = CU_TENSOR_MAP_DATA_TYPE_FLOAT16, bf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, f32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    const auto flat = CU_TENSOR_MAP_SWIZZLE_NONE;
    const auto nan = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    const Tensor inside = {"2d", u16, 2, {40, 30}, {96}, {16, 8}, {{8, 5}}};
    const Tensor tensors[] = {
        {"1d", u16, 1, {100}, {}, {64}, {{8}}},
        {"1d before its start", u16, 1, {100}, {}, {64}, {{-8}}},
        {"1d beyond its end", u16, 1, {100}, {}, {64}, {{72}}},
        {"1d far beyond", u16, 1, {100}, {}, {64}, {{100000}}},
        inside,
        {"2d in a corner", u16, 2, {40, 30}, {96}, {16, 8}, {{24, -3}}},
        {"2d of bytes", u8, 2, {50, 30}, {96}, {16, 8}, {{48, 5}}},
        {"2d of words", s32, 2, {20, 30}, {96}, {8, 8}, {{12, -1}}},
        {"2d of double words", s64, 2, {10, 30}, {96}, {4, 8}, {{-2, 5}}},
        {"3d", u16, 3, {40, 30, 10}, {96, 2944}, {16, 8, 3}, {{-8, 25, 8}}},
        {"4d", u16, 4, {24, 10, 10, 6}, {48, 496, 4960}, {8, 4, 3, 2}, {{16, -1, 8, 5}}},
        {"5d", u16, 5, {24, 10, 10, 6, 3}, {48, 496, 4960, 29760}, {8, 2, 3, 2, 2}, {{16, 9, -1, 4, 2}}},
        {"every third row", u16, 2, {40, 30}, {96}, {16, 8}, {{8, 25}}, flat, {1, 3}},
        {"every second row, every fourth plane", u16, 3, {40, 30, 10}, {96, 2944}, {16, 8, 6}, {{8, 5, 4}}, flat, {1, 2, 4}},
        {"swizzled in 32 bytes", u16, 2, {64, 60}, {128}, {16, 32}, {{8, 2}}, CU_TENSOR_MAP_SWIZZLE_32B},
        {"swizzled in 64 bytes", u16, 2, {64, 60}, {128}, {32, 32}, {{40, 2}}, CU_TENSOR_MAP_SWIZZLE_64B},
        {"swizzled in 128 bytes", u16, 2, {80, 60}, {160}, {64, 32}, {{8, 40}}, CU_TENSOR_MAP_SWIZZLE_128B},
        {"swizzled, 3d", u16, 3, {80, 20, 6}, {160, 3200}, {64, 5, 3}, {{72, 2, -1}}, CU_TENSOR_MAP_SWIZZLE_128B},
        {"f32 with NaN", f32, 2, {20, 30}, {96}, {8, 8}, {{12, 25}}, flat, {}, nan},
        {"f16 with NaN", f16, 2, {40, 30}, {96}, {16, 8}, {{24, 25}}, flat, {}, nan},
        {"bf16 with NaN", bf16, 2, {40, 30}, {96}, {16, 8}, {{24, -2}}, flat, {}, nan},
    };
    for (const Tensor &t : tensors) {
        // A number in every format, so that only what is outside is NaN.
        if (t.fill == nan) {
            std::fill(tensor_bytes.begin(), tensor_bytes.end(), 0x3c);
            CHECK(cudaMemcpy(tensor, tensor_bytes.data(), TENSOR, cudaMemcpyHostToDevice));
        }
        test_load(t);
    }
    fill_all();

    const CUtensorMap map = encode(inside);
    CUtensorMap *in_global, *in_constant;
    CHECK(cudaMalloc(&in_global, sizeof map));
    CHECK(cudaMemcpy(in_global, &map, sizeof map, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(constant_map, &map, sizeof map));
    CHECK(cudaGetSymbolAddress((void **)&in_constant, constant_map));
    test_load(inside, ", map in global memory", in_global);
    test_load(inside, ", map in constant memory", in_constant);
    CHECK(cudaFree(in_global));
    // As compilers of array programs encode the maps of each step again. Other maps come in between.
    for (int step = 0; step < 100; step++) {
        const CUtensorMap again = encode(inside), other = encode(tensors[6]);
        REQUIRE(std::memcmp(&map, &again, sizeof map) == 0 && std::memcmp(&map, &other, sizeof map) != 0);
    }

    test_columns();
    test_both({"swizzled for a cluster", u16, 2, {80, 60}, {160}, {64, 32}, {{40, 40}}, CU_TENSOR_MAP_SWIZZLE_128B});
    test_pipeline();

    const auto replace16 = [](uint16_t, uint16_t value) { return value; };
    // Stores have no negative coordinates.
    const auto behind = [](Tensor t) {
        for (int &at : t.start.at) {
            at = at < 0 ? 0 : at;
        }
        return t;
    };
    // Rows of whole units of 16 bytes: an H200 stores all of the last one.
    test_store<uint16_t>({"1d beyond its end", u16, 1, {96}, {}, {64}, {{72}}}, "stored", STORE, replace16);
    test_store<uint16_t>(behind(tensors[5]), "stored", STORE, replace16);
    test_store<uint16_t>(behind(tensors[9]), "stored", STORE, replace16);
    test_store<uint16_t>(behind(tensors[10]), "stored", STORE, replace16);
    test_store<uint16_t>(behind(tensors[11]), "stored", STORE, replace16);
    test_store<uint16_t>(behind(tensors[14]), "stored", STORE, replace16);
    test_store<uint16_t>(behind(tensors[15]), "stored", STORE, replace16);
    test_store<uint16_t>(behind(tensors[16]), "stored", STORE, replace16);
    const Tensor words = {"u32", u32, 2, {20, 30}, {96}, {8, 8}, {{12, 5}}};
    test_store<uint32_t>(words, "added", ADD, [](uint32_t a, uint32_t b) { return a + b; });
    test_store<uint32_t>(words, "counted up", INC, [](uint32_t a, uint32_t b) { return a >= b ? 0 : a + 1; });
    test_store<uint32_t>(words, "joined by and", AND, [](uint32_t a, uint32_t b) { return a & b; });
    const Tensor integers = {"s32", s32, 2, {20, 30}, {96}, {8, 8}, {{4, 25}}};
    test_store<int32_t>(integers, "reduced to the least", MIN, [](int32_t a, int32_t b) { return a < b ? a : b; });
    const Tensor wide = {"u64", u64, 2, {10, 30}, {96}, {4, 8}, {{6, 5}}};
    test_store<uint64_t>(wide, "joined by xor", XOR, [](uint64_t a, uint64_t b) { return a ^ b; });
    test_store<uint64_t>(wide, "reduced to the greatest", MAX, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
    const Tensor floats = {"f32", f32, 2, {20, 30}, {96}, {8, 8}, {{12, 28}}};
    test_store<float>(floats, "added", ADD, [](float a, float b) { return a + b; });
    return 0;
}
