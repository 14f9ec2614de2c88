// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The kinds of host memory that copies start from and go to.

#pragma once

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <sys/mman.h>

// The origin of a buffer.
enum class Memory {
    // Pages of 4 KiB that lie scattered for the device, as a virtual machine's do: over virtio-user they come from
    // the library, elsewhere it is memory without huge pages.
    scattered,
    // The same with transparent huge pages; there are none over virtio-user.
    huge,
    // The C library's.
    heap,
};

// The guest library's own allocator for this benchmark (guest-lib/libcuda/src/local/bench.rs).
struct Scattered {
    void *(*alloc)(size_t);
    int (*free)(void *);

    Scattered() : alloc(nullptr), free(nullptr) {
        // The runtime has loaded it, for itself only perhaps.
        void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        if (!libcuda) return;
        alloc = reinterpret_cast<void *(*)(size_t)>(dlsym(libcuda, "virtio_cuda_bench_alloc"));
        free = reinterpret_cast<int (*)(void *)>(dlsym(libcuda, "virtio_cuda_bench_free"));
    }
};

constexpr size_t kHugePage = 2 << 20;

// A buffer whose pages are there.
class Buffer {
  public:
    Buffer(Memory kind, size_t bytes) {
        static const Scattered library;
        // Whole huge pages: else it would depend on the neighbours whether a short buffer has one.
        const size_t unit = kind == Memory::huge ? kHugePage : 4096;
        bytes_ = (bytes + unit - 1) / unit * unit;
        if (kind == Memory::heap) {
            at_ = malloc(bytes_);
            free_ = &free_heap;
        } else if (kind == Memory::scattered && library.alloc && (at_ = library.alloc(bytes_))) {
            free_ = &free_scattered;
            free_scattered_ = library.free;
        } else {
            mapped_ = bytes_ + unit;
            mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (mapping_ == MAP_FAILED) throw std::bad_alloc();
            const size_t begin = reinterpret_cast<size_t>(mapping_);
            at_ = reinterpret_cast<void *>((begin + unit - 1) / unit * unit);
            madvise(at_, bytes_, kind == Memory::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
            free_ = &free_mapping;
        }
        if (!at_) throw std::bad_alloc();
        memset(at_, 1, bytes_);
    }
    ~Buffer() { free_(*this); }
    Buffer(const Buffer &) = delete;

    void *get() const { return at_; }

    // True if huge pages are another kind of memory here.
    static bool has_huge() {
        static const Scattered library;
        void *probe = library.alloc ? library.alloc(4096) : nullptr;
        if (probe) library.free(probe);
        return !probe;
    }

  private:
    static void free_heap(Buffer &b) { free(b.at_); }
    static void free_mapping(Buffer &b) { munmap(b.mapping_, b.mapped_); }
    static void free_scattered(Buffer &b) { b.free_scattered_(b.at_); }

    void *at_ = nullptr;
    size_t bytes_ = 0;
    // The allocation that has `at_`.
    void *mapping_ = nullptr;
    size_t mapped_ = 0;
    void (*free_)(Buffer &) = nullptr;
    int (*free_scattered_)(void *) = nullptr;
};
