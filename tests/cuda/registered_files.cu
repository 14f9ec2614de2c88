// SPDX-License-Identifier: Apache-2.0 OR MIT
// Files that are mapped and registered, as programs do with weights: what cudaHostRegister answers, copies, and kernels that
// read and write there. Each try is a process of its own with a time limit, because a driver can hang in one.
#include "check.h"

#include <csignal>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct Kind {
    const char *name;
    int protection, flags;
    enum { FILE_ON_DISK, FILE_IN_MEMORY, PROGRAM } of;
};

static const Kind KINDS[] = {
    {"private, read-only", PROT_READ, MAP_PRIVATE, Kind::FILE_ON_DISK},
    {"private, writable", PROT_READ | PROT_WRITE, MAP_PRIVATE, Kind::FILE_ON_DISK},
    {"shared, read-only", PROT_READ, MAP_SHARED, Kind::FILE_ON_DISK},
    // The descriptor is closed, as loaders do.
    {"shared, read-only, of this program", PROT_READ, MAP_SHARED, Kind::PROGRAM},
    {"shared, read-only, in memory", PROT_READ, MAP_SHARED, Kind::FILE_IN_MEMORY},
    {"shared, writable, in memory", PROT_READ | PROT_WRITE, MAP_SHARED, Kind::FILE_IN_MEMORY},
};

static const size_t PAGE = 4096;
// Not whole pages: the last one is part of the mapping.
static const size_t BYTES = (3u << 20) + 100;
static const unsigned LIMIT_SECONDS = 60;

__global__ void add_up(const unsigned *words, size_t count, unsigned long long *sum) {
    unsigned long long own = 0;
    for (size_t i = threadIdx.x + (size_t)blockIdx.x * blockDim.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        own += (unsigned long long)words[i] * (i % 251 + 1);
    }
    atomicAdd(sum, own);
}

__global__ void put(unsigned *word, unsigned value) { *word = value; }

static unsigned long long sum_of(const unsigned *words, size_t count) {
    unsigned long long sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (unsigned long long)words[i] * (i % 251 + 1);
    }
    return sum;
}

static void copy(const char *mapped, size_t bytes) {
    char *device;
    cudaStream_t stream;
    std::vector<char> back(bytes);
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaStreamCreate(&stream));
    for (const size_t length : {(size_t)100, bytes / 2, bytes - 1}) {
        for (const bool waits : {true, false}) {
            CHECK(cudaMemset(device, 0, bytes));
            if (waits) {
                CHECK(cudaMemcpy(device, mapped + 1, length, cudaMemcpyHostToDevice));
            } else {
                CHECK(cudaMemcpyAsync(device, mapped + 1, length, cudaMemcpyHostToDevice, stream));
                CHECK(cudaStreamSynchronize(stream));
            }
            CHECK(cudaMemcpy(back.data(), device, length, cudaMemcpyDeviceToHost));
            REQUIRE(std::memcmp(back.data(), mapped + 1, length) == 0);
        }
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
}

// A kernel reads all of it.
static void read_all(const unsigned *mapped, const unsigned *on_gpu, size_t bytes) {
    const size_t count = bytes / sizeof(unsigned);
    unsigned long long *sum, found = 0;
    CHECK(cudaMalloc(&sum, sizeof *sum));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    add_up<<<8, 128>>>(on_gpu, count, sum);
    CHECK(cudaMemcpy(&found, sum, sizeof found, cudaMemcpyDeviceToHost));
    REQUIRE(found == sum_of(mapped, count));
    CHECK(cudaFree(sum));
}

static unsigned in_file(int file, size_t word) {
    unsigned value = 0;
    REQUIRE(pread(file, &value, sizeof value, word * sizeof value) == sizeof value);
    return value;
}

// Kernel and program write the same memory; the file has it if the mapping is shared.
static void write_some(const Kind &kind, int file, unsigned *mapped, unsigned *on_gpu) {
    for (const size_t word : {(size_t)0, PAGE / 4 * 3 + 5, BYTES / 4 - 1}) {
        const unsigned before = in_file(file, word);
        put<<<1, 1>>>(on_gpu + word, 77);
        CHECK(cudaDeviceSynchronize());
        REQUIRE(mapped[word] == 77);
        REQUIRE(in_file(file, word) == (kind.flags == MAP_SHARED ? 77 : before));
    }
    if (kind.flags == MAP_SHARED) {
        const unsigned value = 78;
        REQUIRE(pwrite(file, &value, sizeof value, 2 * PAGE) == sizeof value);
        REQUIRE(mapped[2 * PAGE / 4] == 78);
    }
    read_all(mapped, on_gpu, BYTES);
}

static void try_to_register(const Kind &kind, unsigned flags, int file) {
    size_t bytes = BYTES;
    if (kind.of == Kind::PROGRAM) {
        struct stat about;
        REQUIRE(fstat(file, &about) == 0);
        bytes = about.st_size;
    }
    void *const mapped = mmap(nullptr, bytes, kind.protection, kind.flags, file, 0);
    REQUIRE(mapped != MAP_FAILED);
    if (kind.of == Kind::PROGRAM) {
        close(file);
    }
    const std::vector<char> contents(static_cast<char *>(mapped), static_cast<char *>(mapped) + bytes);
    CHECK(cudaFree(nullptr));
    const cudaError_t error = cudaHostRegister(mapped, bytes, flags);
    std::printf("%s, flags %u: %d\n", kind.name, flags, (int)error);
    std::fflush(stdout);
    if (error != cudaSuccess) {
        return;
    }
    unsigned *const words = static_cast<unsigned *>(mapped), *on_gpu;
    CHECK(cudaHostGetDevicePointer(reinterpret_cast<void **>(&on_gpu), mapped, 0));
    copy(static_cast<char *>(mapped), bytes);
    read_all(words, on_gpu, bytes);
    const bool is_writable = kind.protection & PROT_WRITE;
    if (is_writable && flags == cudaHostRegisterDefault) {
        write_some(kind, file, words, on_gpu);
    } else {
        REQUIRE(std::memcmp(mapped, contents.data(), bytes) == 0);
    }
    const std::vector<char> last(static_cast<char *>(mapped), static_cast<char *>(mapped) + bytes);
    CHECK(cudaHostUnregister(mapped));
    REQUIRE(std::memcmp(mapped, last.data(), bytes) == 0);
    copy(static_cast<char *>(mapped), bytes);
    REQUIRE(munmap(mapped, bytes) == 0);
}

// Ends with this process's time.
static void in_a_process(const Kind &kind, unsigned flags, int file) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        try_to_register(kind, flags, file);
        std::exit(0);
    }
    for (unsigned tenths = 0; tenths < 10 * LIMIT_SECONDS; tenths++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) {
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                std::printf("%s, flags %u: status %#x\n", kind.name, flags, status);
            }
            return;
        }
        usleep(100000);
    }
    // It may be in the kernel for ever: nobody waits for it.
    kill(child, SIGKILL);
    std::printf("%s, flags %u: not done within %u s\n", kind.name, flags, LIMIT_SECONDS);
}

// With an argument also what NVIDIA's driver 580 does not return from: private mappings that are only to be read.
int main(int argc, char **) {
    const bool all = argc > 1;
    std::vector<char> contents(BYTES);
    Random(7).fill(contents.data(), BYTES);
    for (const Kind &kind : KINDS) {
        for (const unsigned flags : {cudaHostRegisterDefault, cudaHostRegisterReadOnly}) {
            if (!all && kind.flags == MAP_PRIVATE && flags == cudaHostRegisterReadOnly) continue;
            char path[] = "/tmp/registered_files.XXXXXX";
            const int file = kind.of == Kind::PROGRAM          ? open("/proc/self/exe", O_RDONLY)
                             : kind.of == Kind::FILE_IN_MEMORY ? memfd_create("registered_files", 0)
                                                               : mkstemp(path);
            REQUIRE(file >= 0);
            if (kind.of != Kind::PROGRAM) {
                REQUIRE(write(file, contents.data(), BYTES) == (ssize_t)BYTES);
            }
            if (kind.of == Kind::FILE_ON_DISK) {
                REQUIRE(unlink(path) == 0);
            }
            in_a_process(kind, flags, file);
            if (kind.of == Kind::FILE_ON_DISK) {
                std::vector<char> now(BYTES);
                REQUIRE(pread(file, now.data(), BYTES, 0) == (ssize_t)BYTES);
                REQUIRE(std::memcmp(now.data(), contents.data(), BYTES) == 0);
            }
            close(file);
            std::fflush(stdout);
        }
    }
    return 0;
}
