// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernel parameters of every awkward shape: padding, arrays, odd sizes, alignment, many of them, 4 KiB of them.
#include "check.h"

#include <cstring>

struct Padded {
    char tag;
    double weight;
    short small;
    int table[5];
    float3 vector;
};

struct __align__(16) Aligned {
    float4 row[2];
    unsigned char last;
};

struct Odd {
    unsigned char bytes[13];
};

struct Large {
    int words[1000];
};

__global__ void take_padded(Padded p, char between, double *out) {
    double total = p.tag + p.weight + p.small + between;
    for (int word : p.table) {
        total += word;
    }
    *out = total + p.vector.x + p.vector.y + p.vector.z;
}

__global__ void take_mixed(char a, Odd odd, short b, Aligned aligned, unsigned char c, long long d, double *out) {
    double total = a + b + c + (double)d + aligned.last;
    for (unsigned char byte : odd.bytes) {
        total += byte;
    }
    for (const float4 &row : aligned.row) {
        total += row.x + row.y + row.z + row.w;
    }
    *out = total;
}

__global__ void take_large(Large large, double *out) {
    double total = 0;
    for (int word : large.words) {
        total += word;
    }
    *out = total;
}

__global__ void take_nothing() {}

__global__ void take_many(int a, int b, int c, int d, int e, int f, int g, int h, char i, char j, double k, double *out) {
    *out = a + 2.0 * b + 3.0 * c + 4.0 * d + 5.0 * e + 6.0 * f + 7.0 * g + 8.0 * h + 9.0 * i + 10.0 * j + 11.0 * k;
}

static double *device;

static void print(const char *label, double expected) {
    double host = 0;
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    std::printf("%s: %.17g\n", label, host);
    REQUIRE(host == expected);
}

int main() {
    CHECK(cudaMalloc(&device, sizeof(double)));

    Padded padded{'x', 0.5, -3, {1, 2, 3, 4, 5}, make_float3(0.25f, 0.5f, 1.0f)};
    take_padded<<<1, 1>>>(padded, 'y', device);
    padded.weight = 1e9;  // a launch has captured its parameters
    print("padded", 'x' + 0.5 - 3 + 15 + 1.75 + 'y');

    Odd odd;
    for (int i = 0; i < 13; i++) {
        odd.bytes[i] = (unsigned char)(200 + i);
    }
    Aligned aligned{{make_float4(1, 2, 3, 4), make_float4(5, 6, 7, 8)}, 255};
    take_mixed<<<1, 1>>>(-1, odd, -300, aligned, 254, 1ll << 40, device);
    print("mixed", -1 - 300 + 254 + (double)(1ll << 40) + 255 + (200 * 13 + 78) + 36);

    static Large large;
    double expected = 0;
    for (int i = 0; i < 1000; i++) {
        large.words[i] = i * i;
        expected += i * i;
    }
    take_large<<<1, 1>>>(large, device);
    print("large", expected);

    take_nothing<<<1, 1>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    take_many<<<1, 1>>>(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11.5, device);
    print("many", 1 + 4 + 9 + 16 + 25 + 36 + 49 + 64 + 81 + 100 + 126.5);
    CHECK(cudaFree(device));
    return 0;
}
