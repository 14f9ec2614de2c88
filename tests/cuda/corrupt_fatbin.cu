// SPDX-License-Identifier: Apache-2.0 OR MIT
// Damages the program's own registered fat binary before the first launch, in the way the argument names. The launch
// must fail with a code, again and again, and must not harm the rest of the process.
#include "check.h"

#include <cstring>
#include <string>

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

__global__ void store(int *out) { *out = 1; }

// Address and size of a section of this program; the load bias comes from the first loaded object.
static unsigned char *find_section(const char *name, size_t *bytes) {
    const int file = open("/proc/self/exe", O_RDONLY);
    struct stat info;
    REQUIRE(file >= 0 && fstat(file, &info) == 0);
    const char *image = (const char *)mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    REQUIRE(image != MAP_FAILED);
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + elf->e_shoff);
    const char *names = image + sections[elf->e_shstrndx].sh_offset;
    uintptr_t bias = 0;
    dl_iterate_phdr(
        [](struct dl_phdr_info *object, size_t, void *out) {
            *(uintptr_t *)out = object->dlpi_addr;
            return 1;
        },
        &bias);
    for (int i = 0; i < elf->e_shnum; i++) {
        if (std::strcmp(names + sections[i].sh_name, name) == 0) {
            *bytes = sections[i].sh_size;
            return (unsigned char *)(bias + sections[i].sh_addr);
        }
    }
    return nullptr;
}

static void spoil(const std::string &damage, unsigned char *container, size_t follow) {
    if (damage == "payload") {
        // Leaves the first entry's header (64 to 112 bytes) whole.
        if (follow > 128) {
            std::memset(container + 16 + 128, 0xff, follow - 128);
        }
    } else if (damage == "entries") {
        std::memset(container + 16, 0xff, follow);
    } else if (damage == "magic") {
        std::memset(container, 0, 4);
    } else {
        REQUIRE(!"an argument this program knows");
    }
}

int main(int argc, char **argv) {
    const std::string damage = argc > 1 ? argv[1] : "payload";
    size_t bytes = 0;
    unsigned char *fatbin = find_section(".nv_fatbin", &bytes);
    REQUIRE(fatbin != nullptr);
    const uintptr_t page = (uintptr_t)fatbin & ~(uintptr_t)4095;
    REQUIRE(mprotect((void *)page, (uintptr_t)fatbin + bytes - page, PROT_READ | PROT_WRITE) == 0);
    // The section holds one container after another (the device linker adds an empty one).
    // Container: u32 magic, u16 version, u16 header bytes, u64 bytes that follow. First entry at 16.
    for (size_t at = 0; at + 16 <= bytes;) {
        uint32_t magic;
        uint64_t follow;
        std::memcpy(&magic, fatbin + at, 4);
        std::memcpy(&follow, fatbin + at + 8, 8);
        if (magic != 0xba55ed50) {
            at += 8;
            continue;
        }
        REQUIRE(follow <= bytes - at - 16);
        spoil(damage, fatbin + at, follow);
        at += 16 + follow;
    }

    int *device = nullptr, host = 5, back = 0;
    CHECK(cudaMalloc(&device, sizeof(int)));
    for (int i = 0; i < 2; i++) {
        store<<<1, 1>>>(device);
        const cudaError_t error = cudaGetLastError();
        std::printf("%s, launch: %s\n", damage.c_str(), error == cudaSuccess ? "no error" : "refused");
        std::fprintf(stderr, "%s, launch: %d (%s)\n", damage.c_str(), (int)error, cudaGetErrorName(error));
    }
    CHECK(cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(&back, device, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    std::printf("afterwards: %d\n", back);
    return 0;
}
