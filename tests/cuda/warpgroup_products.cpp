// SPDX-License-Identifier: Apache-2.0 OR MIT
// Products of matrices by four warps (wgmma): elements of all types, numbers of columns, and orders of the elements in
// shared memory. Each is compared with a loop on the host. The values are small, so that sums are exact in whatever
// order they are taken.
#include "check_driver.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

constexpr int ROWS = 64;
constexpr int THREADS = 128;
// The matrix A is in the first part of shared memory, B in the rest.
constexpr size_t ROOM = 49152;
constexpr size_t PLACE_OF_B = 16384;

enum Order { PLAIN = 16, SWIZZLED_32 = 32, SWIZZLED_64 = 64, SWIZZLED_128 = 128 };

struct Kind {
    const char *name;
    int bits;
};
static const Kind F16 = {"f16", 16}, BF16 = {"bf16", 16}, TF32 = {"tf32", 32}, E4M3 = {"e4m3", 8}, E5M2 = {"e5m2", 8},
                  S8 = {"s8", 8}, U8 = {"u8", 8}, B1 = {"b1", 1};

struct Product {
    const char *d;
    Kind a, b;
    int columns;
    bool held = false; // A is in registers
    Order order_of_a = PLAIN, order_of_b = PLAIN;
    bool a_by_rows = false, b_by_columns = false; // not K, but rows or columns are consecutive
    int sign_of_a = 1, sign_of_b = 1;
    bool accumulates = true, saturates = false;
    int advance = 0; // in units of 32 bytes along K, from the start of a swizzled row
};

// One of the matrices A and B in shared memory.
struct Placed {
    int sides, bits;
    Order order;
    bool by_side;
    int advance;

    int depth() const { return 256 / bits; }
    // Units of 16 bytes change places within a row of the pattern, by the number of the row of 128 bytes.
    int swizzled(int unit, int row) const { return unit ^ (row * order / 128) % (order / 16); }
    size_t leading() const {
        if (order == PLAIN) {
            return by_side ? 128 * (sides / 8) : 144;
        }
        return by_side ? 16 * order : 16;
    }
    size_t stride() const {
        if (order == PLAIN) {
            return by_side ? 128 : 304;
        }
        return 8 * order;
    }
    // The bit at which an element begins.
    size_t bit(int side, int k) const {
        if (by_side) {
            const int span = order / 2;
            if (order == PLAIN) {
                return 8 * (side / 8 * stride() + k / 8 * leading() + k % 8 * 16 + side % 8 * 2);
            }
            const int unit = swizzled(side % span / 8, k % 8);
            return 8 * (side / span * leading() + k / 8 * stride() + k % 8 * order + unit * 16 + side % 8 * 2);
        }
        const int byte = k * bits / 8, inside = k * bits % 128;
        if (order == PLAIN) {
            return 8 * (side / 8 * stride() + byte / 16 * leading() + side % 8 * 16) + inside;
        }
        const int unit = swizzled(2 * advance + byte / 16, side % 8);
        return 8 * ((size_t)side * order + unit * 16) + inside;
    }
    // The descriptor, without the address of the room.
    uint64_t descriptor(size_t place) const {
        const uint64_t swizzle = order == PLAIN ? 0 : order == SWIZZLED_128 ? 1 : order == SWIZZLED_64 ? 2 : 3;
        const uint64_t start = place + 32 * advance;
        return start >> 4 | (uint64_t)leading() >> 4 << 16 | (uint64_t)stride() >> 4 << 32 | swizzle << 62;
    }
};

// The bits of one of the small values that a type has, and the value.
static unsigned encode(const Kind &kind, uint64_t random, double *value) {
    const int small = (int)(random % 9) - 4;
    const std::string name = kind.name;
    if (name == "s8") {
        *value = (int8_t)random;
        return random & 0xff;
    }
    if (name == "u8") {
        *value = (uint8_t)random;
        return random & 0xff;
    }
    if (name == "b1") {
        *value = random & 1;
        return random & 1;
    }
    *value = small;
    float single = (float)small;
    unsigned bits;
    std::memcpy(&bits, &single, 4);
    if (name == "tf32") {
        return bits;
    }
    if (name == "bf16") {
        return bits >> 16;
    }
    // A sign, and exponent and fraction of 0 to 4 in the format.
    const int magnitude = small < 0 ? -small : small;
    const unsigned sign = small < 0 ? 1 : 0;
    const int exponent = magnitude >= 4 ? 2 : magnitude >= 2 ? 1 : 0;
    const unsigned half = magnitude == 3 ? 1 : 0;
    const auto pack = [&](int width, int bias, int fraction) {
        const unsigned body = magnitude == 0 ? 0 : (unsigned)(exponent + bias) << fraction | half << (fraction - 1);
        return sign << (width - 1) | body;
    };
    return name == "f16" ? pack(16, 15, 10) : name == "e4m3" ? pack(8, 7, 3) : pack(8, 15, 2);
}

static double half_value(unsigned bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 0 ? fraction / 1024.0 : 1 + fraction / 1024.0;
    for (int i = 15; i < exponent; i++) {
        value *= 2;
    }
    for (int i = exponent == 0 ? 1 : exponent; i < 15; i++) {
        value /= 2;
    }
    return bits >> 15 ? -value : value;
}

static std::string list(const char *letter, int count) {
    std::string text = "{";
    for (int i = 0; i < count; i++) {
        text += std::string(i ? ", %" : "%") + letter + std::to_string(i);
    }
    return text + "}";
}

static int registers(const Product &p) { return p.columns / (std::strcmp(p.d, "f16") == 0 ? 4 : 2); }

static bool is_integer(const Product &p) { return std::strcmp(p.d, "s32") == 0; }

static std::string opcode(const Product &p) {
    std::string name = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(p.columns) + "k" + std::to_string(256 / p.a.bits);
    name += p.saturates ? ".satfinite." : ".";
    name += std::string(p.d) + "." + p.a.name + "." + p.b.name;
    return name + (p.a.bits == 1 ? ".and.popc" : "");
}

static std::string source(const Product &p) {
    const int count = registers(p);
    std::string text = ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry product(.param .u64 image, .param .u64 held, "
                       ".param .u64 sums, .param .u64 first, .param .u64 second, .param .u32 adds)\n{\n"
                       ".reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %x<12>; .reg .b32 %a<4>; .reg .b32 %d<" +
                       std::to_string(count) + ">;\n.shared .align 1024 .b8 room[" + std::to_string(ROOM) + "];\n";
    text += "ld.param.u64 %x0, [image]; ld.param.u64 %x1, [held]; ld.param.u64 %x2, [sums]; ld.param.u64 %x3, [first];\n"
            "ld.param.u64 %x4, [second]; ld.param.u32 %r0, [adds]; setp.ne.u32 %p0, %r0, 0;\n"
            "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; mov.u32 %r3, room;\nCOPY:\n"
            "cvt.u64.u32 %x5, %r2; add.u64 %x5, %x5, %x0; add.u32 %r4, %r3, %r2;\n"
            "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%x5]; st.shared.v4.u32 [%r4], {%r5, %r6, %r7, %r8};\n"
            "add.u32 %r2, %r2, 2048; setp.lt.u32 %p1, %r2, " +
            std::to_string(ROOM) + "; @%p1 bra COPY;\nfence.proxy.async; bar.sync 0;\n";
    // The address of the room, in both descriptors.
    text += "shr.u32 %r3, %r3, 4; cvt.u64.u32 %x6, %r3; add.u64 %x3, %x3, %x6; add.u64 %x4, %x4, %x6;\n";
    text += "mul.wide.u32 %x7, %r1, 16; add.u64 %x1, %x1, %x7; ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%x1];\n";
    text += "mul.wide.u32 %x8, %r1, " + std::to_string(4 * count) + "; add.u64 %x2, %x2, %x8;\n";
    for (int i = 0; i < count; i++) {
        text += "ld.global.u32 %d" + std::to_string(i) + ", [%x2+" + std::to_string(4 * i) + "];\n";
    }
    text += "wgmma.fence.sync.aligned;\n" + opcode(p) + " " + list("d", count) + ", " + (p.held ? list("a", 4) : "%x3") + ", %x4, %p0";
    if (!is_integer(p)) {
        text += ", " + std::to_string(p.sign_of_a) + ", " + std::to_string(p.sign_of_b);
    }
    if (p.a.bits == 16) {
        text += p.held ? "" : ", " + std::to_string((int)p.a_by_rows);
        text += ", " + std::to_string((int)p.b_by_columns);
    }
    text += ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
    for (int i = 0; i < count; i++) {
        text += "st.global.u32 [%x2+" + std::to_string(4 * i) + "], %d" + std::to_string(i) + ";\n";
    }
    return text + "ret;\n}\n";
}

static std::string describe(const Product &p) {
    const auto order = [](Order order, bool by_side) {
        return (order == PLAIN ? std::string("plain") : "in " + std::to_string((int)order) + " bytes") + (by_side ? ", turned" : "");
    };
    std::string text = opcode(p).substr(29) + (p.held ? ": A in registers" : ": A " + order(p.order_of_a, p.a_by_rows));
    text += ", B " + order(p.order_of_b, p.b_by_columns);
    text += p.advance ? ", from byte " + std::to_string(32 * p.advance) : "";
    text += p.sign_of_a * p.sign_of_b < 0 ? ", negated" : "";
    return text + (p.accumulates ? "" : ", alone");
}

static void set_bits(unsigned char *memory, size_t at, int bits, unsigned value) {
    for (int i = 0; i < bits; i++) {
        const size_t bit = at + i;
        memory[bit / 8] = (unsigned char)((memory[bit / 8] & ~(1u << bit % 8)) | (value >> i & 1) << bit % 8);
    }
}

static void test(const Product &p, Random &random) {
    const int depth = 256 / p.a.bits, count = registers(p), per = 32 / p.a.bits;
    const Placed in_a = {ROWS, p.a.bits, p.order_of_a, p.a_by_rows, p.advance};
    const Placed in_b = {p.columns, p.b.bits, p.order_of_b, p.b_by_columns, p.advance};
    std::vector<unsigned char> image(ROOM);
    random.fill(image.data(), ROOM);
    std::vector<unsigned> held(THREADS * 4), sums(THREADS * count);
    std::vector<double> a(ROWS * depth), b(p.columns * depth);
    for (int row = 0; row < ROWS; row++) {
        for (int k = 0; k < depth; k++) {
            const unsigned bits = encode(p.a, random.next() >> 20, &a[row * depth + k]);
            if (!p.held) {
                set_bits(image.data(), in_a.bit(row, k), p.a.bits, bits);
                continue;
            }
            // Eight rows and four words of a row are a matrix of a register.
            const int lane = row % 8 * 4 + k / per % 4, index = row % 16 / 8 + 2 * (k / per / 4);
            set_bits((unsigned char *)&held[(row / 16 * 32 + lane) * 4 + index], k % per * p.a.bits, p.a.bits, bits);
        }
    }
    for (int column = 0; column < p.columns; column++) {
        for (int k = 0; k < depth; k++) {
            const unsigned bits = encode(p.b, random.next() >> 20, &b[column * depth + k]);
            set_bits(image.data(), 8 * PLACE_OF_B + in_b.bit(column, k), p.b.bits, bits);
        }
    }
    const bool halves = std::strcmp(p.d, "f16") == 0;
    for (unsigned &word : sums) {
        double unused;
        const uint64_t bits = random.next() >> 20;
        const float single = (float)(bits % 17) - 8;
        if (halves) {
            word = encode(F16, bits, &unused) | encode(F16, bits >> 20, &unused) << 16;
        } else if (is_integer(p)) {
            word = p.saturates ? 0x7ffffff0 : (unsigned)bits;
        } else {
            std::memcpy(&word, &single, 4);
        }
    }
    CUmodule module;
    CUfunction function;
    CHECK_DRIVER(cuModuleLoadData(&module, source(p).c_str()));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "product"));
    CUdeviceptr on_image, on_held, on_sums;
    CHECK_DRIVER(cuMemAlloc(&on_image, ROOM));
    CHECK_DRIVER(cuMemAlloc(&on_held, 4 * held.size()));
    CHECK_DRIVER(cuMemAlloc(&on_sums, 4 * sums.size()));
    CHECK_DRIVER(cuMemcpyHtoD(on_image, image.data(), ROOM));
    CHECK_DRIVER(cuMemcpyHtoD(on_held, held.data(), 4 * held.size()));
    CHECK_DRIVER(cuMemcpyHtoD(on_sums, sums.data(), 4 * sums.size()));
    uint64_t first = p.held ? 0 : in_a.descriptor(0), second = in_b.descriptor(PLACE_OF_B);
    unsigned adds = p.accumulates;
    void *arguments[] = {&on_image, &on_held, &on_sums, &first, &second, &adds};
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, nullptr, arguments, nullptr));
    std::vector<unsigned> results(sums.size());
    CHECK_DRIVER(cuMemcpyDtoH(results.data(), on_sums, 4 * results.size()));
    for (CUdeviceptr memory : {on_image, on_held, on_sums}) {
        CHECK_DRIVER(cuMemFree(memory));
    }
    CHECK_DRIVER(cuModuleUnload(module));
    for (int thread = 0; thread < THREADS; thread++) {
        for (int index = 0; index < (halves ? 2 : 1) * count; index++) {
            const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (index / 2 % 2);
            const int column = index / 4 * 8 + thread % 4 * 2 + index % 2;
            double expected = 0;
            for (int k = 0; k < depth; k++) {
                expected += a[row * depth + k] * b[column * depth + k];
            }
            expected *= p.sign_of_a * p.sign_of_b;
            const size_t word = thread * count + (halves ? index / 2 : index);
            const auto value = [&](unsigned bits) {
                float single;
                std::memcpy(&single, &bits, 4);
                return halves ? half_value(bits >> 16 * (index % 2) & 0xffff) : is_integer(p) ? (double)(int)bits : (double)single;
            };
            expected += p.accumulates ? value(sums[word]) : 0;
            if (p.saturates && expected > 2147483647.0) {
                expected = 2147483647.0;
            }
            const double found = value(results[word]);
            const bool same = is_integer(p) ? (uint32_t)(int64_t)expected == results[word] : found == expected;
            if (!same) {
                std::printf("%s: row %d, column %d: %g, expected %g\n", describe(p).c_str(), row, column, found, expected);
                std::exit(1);
            }
        }
    }
}

int main() {
    use_primary_context();
    std::vector<Product> products;
    const auto add = [&](Product p, auto change) {
        change(p);
        products.push_back(p);
    };
    // Each type with some numbers of columns, from memory and from registers.
    const Product kinds[] = {{"f32", F16, F16, 64},    {"f16", F16, F16, 8},     {"f32", BF16, BF16, 128}, {"f32", TF32, TF32, 40},
                             {"f32", E4M3, E4M3, 256}, {"f32", E5M2, E4M3, 16},  {"f16", E4M3, E5M2, 96},  {"s32", S8, S8, 32},
                             {"s32", U8, S8, 8},       {"s32", S8, U8, 112},     {"s32", U8, U8, 256},     {"s32", B1, B1, 48}};
    for (const Product &kind : kinds) {
        for (const Order order : {PLAIN, SWIZZLED_32, SWIZZLED_64, SWIZZLED_128}) {
            add(kind, [&](Product &p) { p.order_of_a = p.order_of_b = order; });
        }
        add(kind, [](Product &p) { p.held = true, p.order_of_b = SWIZZLED_128; });
        add(kind, [](Product &p) { p.accumulates = false, p.order_of_a = SWIZZLED_64, p.order_of_b = SWIZZLED_128; });
        for (int advance = 1; advance < 4; advance++) {
            add(kind, [&](Product &p) { p.order_of_a = p.order_of_b = SWIZZLED_128, p.advance = advance; });
        }
        add(kind, [](Product &p) { p.order_of_a = p.order_of_b = SWIZZLED_64, p.advance = 1; });
        if (is_integer(kind)) {
            if (kind.a.bits == 8) {
                add(kind, [](Product &p) { p.saturates = true; });
            }
            continue;
        }
        add(kind, [](Product &p) { p.sign_of_a = -1; });
        add(kind, [](Product &p) { p.sign_of_a = p.sign_of_b = -1; });
    }
    // Elements of 16 bits, rows or columns consecutive.
    for (const Kind &kind : {F16, BF16}) {
        for (const Order order : {PLAIN, SWIZZLED_32, SWIZZLED_64, SWIZZLED_128}) {
            for (const int columns : {8, 64, 104, 256}) {
                const Product p = {"f32", kind, kind, columns, false, order, order};
                add(p, [](Product &p) { p.a_by_rows = true; });
                add(p, [](Product &p) { p.b_by_columns = true; });
                add(p, [](Product &p) { p.a_by_rows = p.b_by_columns = true, p.sign_of_b = -1; });
                add(p, [](Product &p) { p.held = p.b_by_columns = true; });
            }
        }
    }
    Random random(51);
    std::map<std::string, int> right;
    for (const Product &p : products) {
        test(p, random);
        right[opcode(p)]++;
    }
    for (const auto &[name, count] : right) {
        std::printf("%s: %d right\n", name.c_str(), count);
    }
    return 0;
}
