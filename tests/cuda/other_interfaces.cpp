// SPDX-License-Identifier: Apache-2.0 OR MIT
// OpenGL, EGL, VDPAU, NvSci and the first functions of texture references in a process without any of these: what each call
// answers. By name, since the headers need those of the interfaces.
#include "check_driver.h"

#include <dlfcn.h>
#include <string>

typedef unsigned long Word;
typedef int (*Function)(Word, Word, Word, Word, Word, Word);

static Word room_[1024], zeros_[1024];

// A VdpGetProcAddress that knows nothing.
static int knows_nothing(int, int, void *) {
    return 1;
}

// Arguments: room for a result, zeros, and the function.
static const Word ROOM = (Word)room_, MORE = (Word)(room_ + 8), ZEROS = (Word)zeros_, VDPAU = (Word)&knows_nothing;

struct Call {
    const char *name;
    const char *what;
    Word arguments[5];
};

// Of CUeglFrame and cudaEglFrame, which are passed by value, only that they are large and in memory matters.
struct Frame {
    Word words[35];
};

static int call(void *library, const Call &call) {
    void *function = dlsym(library, call.name);
    REQUIRE(function != nullptr);
    const Word *a = call.arguments;
    if (std::string(call.name).find("PresentFrame") != std::string::npos) {
        return ((int (*)(Word, Frame, Word))function)(a[0], Frame{}, a[1]);
    }
    return ((Function)function)(a[0], a[1], a[2], a[3], a[4], 0);
}

static const Call DRIVER[] = {
    {"cuGLInit", "", {}},
    {"cuGLCtxCreate", "device 0", {ROOM, 0, 0}},
    {"cuGLCtxCreate", "no room", {0, 0, 0}},
    {"cuGLCtxCreate", "device 99", {ROOM, 0, 99}},
    {"cuGLCtxCreate_v2", "device 0", {ROOM, 0, 0}},
    {"cuGLCtxCreate_v2", "device -1", {ROOM, 0, (Word)-1}},
    {"cuGLCtxCreate_v2", "flags", {ROOM, 0x7fffffff, 0}},
    {"cuGLGetDevices", "all", {ROOM, MORE, 4, 1}},
    {"cuGLGetDevices_v2", "all", {ROOM, MORE, 4, 1}},
    {"cuGLGetDevices_v2", "no list", {ROOM, MORE, 4, 0}},
    {"cuGLGetDevices_v2", "no room", {0, MORE, 4, 1}},
    {"cuGLRegisterBufferObject", "5", {5}},
    {"cuGLUnregisterBufferObject", "5", {5}},
    {"cuGLSetBufferObjectMapFlags", "5", {5, 0}},
    {"cuGLMapBufferObject", "5", {ROOM, MORE, 5}},
    {"cuGLMapBufferObject_v2", "5", {ROOM, MORE, 5}},
    {"cuGLMapBufferObject_v2_ptds", "5", {ROOM, MORE, 5}},
    {"cuGLMapBufferObjectAsync", "5", {ROOM, MORE, 5, 0}},
    {"cuGLMapBufferObjectAsync_v2", "5", {ROOM, MORE, 5, 0}},
    {"cuGLMapBufferObjectAsync_v2_ptsz", "5", {ROOM, MORE, 5, 0}},
    {"cuGLUnmapBufferObject", "5", {5}},
    {"cuGLUnmapBufferObjectAsync", "5", {5, 0}},
    {"cuGraphicsGLRegisterBuffer", "5", {ROOM, 5, 0}},
    {"cuGraphicsGLRegisterBuffer", "flags 2", {ROOM, 5, 2}},
    {"cuGraphicsGLRegisterBuffer", "flags 4", {ROOM, 5, 4}},
    {"cuGraphicsGLRegisterBuffer", "no room", {0, 5, 0}},
    {"cuGraphicsGLRegisterBuffer", "no buffer", {ROOM, 0, 0}},
    {"cuGraphicsGLRegisterImage", "5", {ROOM, 5, 0xde1, 0}},
    {"cuGraphicsGLRegisterImage", "flags 8", {ROOM, 5, 0xde1, 8}},
    {"cuGraphicsGLRegisterImage", "flags 99", {ROOM, 5, 0xde1, 99}},
    {"cuGraphicsGLRegisterImage", "no room", {0, 5, 0xde1, 0}},
    {"cuGraphicsGLRegisterImage", "no image", {ROOM, 0, 0xde1, 0}},
    {"cuGraphicsGLRegisterImage", "no target", {ROOM, 5, 0, 0}},
    {"cuGraphicsEGLRegisterImage", "an image", {ROOM, ZEROS, 0}},
    {"cuGraphicsEGLRegisterImage", "no image", {ROOM, 0, 0}},
    {"cuGraphicsEGLRegisterImage", "flags 4", {ROOM, ZEROS, 4}},
    {"cuGraphicsEGLRegisterImage", "no room", {0, ZEROS, 0}},
    {"cuEGLStreamConsumerConnect", "a stream", {ROOM, ZEROS}},
    {"cuEGLStreamConsumerConnect", "no stream", {ROOM, 0}},
    {"cuEGLStreamConsumerConnect", "no room", {0, ZEROS}},
    {"cuEGLStreamConsumerConnectWithFlags", "a stream", {ROOM, ZEROS, 1}},
    {"cuEGLStreamConsumerConnectWithFlags", "flags 2", {ROOM, ZEROS, 2}},
    {"cuEGLStreamConsumerConnectWithFlags", "no stream", {ROOM, 0, 0}},
    {"cuEGLStreamConsumerDisconnect", "none", {0}},
    {"cuEGLStreamConsumerDisconnect", "zeros", {ZEROS}},
    {"cuEGLStreamConsumerAcquireFrame", "none", {0, ROOM, MORE, 0}},
    {"cuEGLStreamConsumerAcquireFrame", "zeros", {ZEROS, ROOM, MORE, 0}},
    {"cuEGLStreamConsumerReleaseFrame", "zeros", {ZEROS, 0, ROOM}},
    {"cuEGLStreamProducerConnect", "a stream", {ROOM, ZEROS, 16, 16}},
    {"cuEGLStreamProducerConnect", "no stream", {ROOM, 0, 16, 16}},
    {"cuEGLStreamProducerConnect", "no room", {0, ZEROS, 16, 16}},
    {"cuEGLStreamProducerDisconnect", "zeros", {ZEROS}},
    {"cuEGLStreamProducerPresentFrame", "zeros", {ZEROS, ROOM}},
    {"cuEGLStreamProducerReturnFrame", "zeros", {ZEROS, ROOM, MORE}},
    {"cuGraphicsResourceGetMappedEglFrame", "none", {ROOM, 0, 0, 0}},
    {"cuGraphicsResourceGetMappedEglFrame", "zeros", {ROOM, ZEROS, 0, 0}},
    {"cuVDPAUGetDevice", "knows nothing", {ROOM, 5, VDPAU}},
    {"cuVDPAUGetDevice", "no function", {ROOM, 5, 0}},
    {"cuVDPAUGetDevice", "no room", {0, 5, 0}},
    {"cuVDPAUCtxCreate", "knows nothing", {ROOM, 0, 0, 5, VDPAU}},
    {"cuVDPAUCtxCreate", "device -1", {ROOM, 0, (Word)-1, 5, VDPAU}},
    {"cuVDPAUCtxCreate_v2", "knows nothing", {ROOM, 0, 0, 5, VDPAU}},
    {"cuVDPAUCtxCreate_v2", "flags", {ROOM, 0x7fffffff, 0, 5, VDPAU}},
    {"cuVDPAUCtxCreate_v2", "no room", {0, 0, 0, 5, VDPAU}},
    {"cuGraphicsVDPAURegisterVideoSurface", "5", {ROOM, 5, 0}},
    {"cuGraphicsVDPAURegisterOutputSurface", "5", {ROOM, 5, 0}},
    {"cuGraphicsUnregisterResource", "none", {0}},
    {"cuGraphicsUnregisterResource", "zeros", {ZEROS}},
    {"cuGraphicsResourceSetMapFlags", "zeros", {ZEROS, 0}},
    {"cuGraphicsResourceSetMapFlags_v2", "zeros", {ZEROS, 0}},
    {"cuGraphicsResourceGetMappedPointer", "zeros", {ROOM, MORE, ZEROS}},
    {"cuGraphicsResourceGetMappedPointer_v2", "zeros", {ROOM, MORE, ZEROS}},
    {"cuGraphicsResourceGetMappedMipmappedArray", "zeros", {ROOM, ZEROS}},
    {"cuGraphicsSubResourceGetMappedArray", "zeros", {ROOM, ZEROS, 0, 0}},
    {"cuGraphicsMapResources", "none", {0, ZEROS, 0}},
    {"cuGraphicsMapResources", "no list", {1, 0, 0}},
    {"cuGraphicsMapResources", "zeros", {2, ZEROS, 0}},
    {"cuGraphicsUnmapResources", "none", {0, ZEROS, 0}},
    {"cuGraphicsUnmapResources", "zeros", {2, ZEROS, 0}},
    {"cuDeviceGetNvSciSyncAttributes", "signal", {ROOM, 0, 1}},
    {"cuDeviceGetNvSciSyncAttributes", "flags 4", {ROOM, 0, 4}},
    {"cuDeviceGetNvSciSyncAttributes", "no list", {0, 0, 1}},
    {"cuDeviceGetNvSciSyncAttributes", "device 99", {ROOM, 99, 1}},
    {"cuTexRefSetAddress", "none", {ROOM, 0, 0, 0}},
    {"cuTexRefGetAddress", "none", {ROOM, 0}},
    {"cuTexRefSetAddress2D", "none", {0, 0, 0, 0}},
};

static const Call RUNTIME[] = {
    {"cudaGLGetDevices", "all", {ROOM, MORE, 4, 1}},
    {"cudaGLGetDevices", "no list", {ROOM, MORE, 4, 0}},
    {"cudaGLGetDevices", "no room", {0, MORE, 4, 1}},
    {"cudaGLSetGLDevice", "0", {0}},
    {"cudaGLSetGLDevice", "-1", {(Word)-1}},
    {"cudaGLRegisterBufferObject", "5", {5}},
    {"cudaGLUnregisterBufferObject", "5", {5}},
    {"cudaGLMapBufferObject", "5", {ROOM, 5}},
    {"cudaGLMapBufferObject", "no room", {0, 5}},
    {"cudaGLMapBufferObjectAsync", "5", {ROOM, 5, 0}},
    {"cudaGLUnmapBufferObject", "5", {5}},
    {"cudaGLUnmapBufferObjectAsync", "5", {5, 0}},
    {"cudaGLSetBufferObjectMapFlags", "5", {5, 0}},
    {"cudaGraphicsGLRegisterBuffer", "5", {ROOM, 5, 0}},
    {"cudaGraphicsGLRegisterBuffer", "no room", {0, 5, 0}},
    {"cudaGraphicsGLRegisterBuffer", "flags 99", {ROOM, 5, 99}},
    {"cudaGraphicsGLRegisterImage", "5", {ROOM, 5, 0xde1, 0}},
    {"cudaGraphicsGLRegisterImage", "no room", {0, 5, 0xde1, 0}},
    {"cudaGraphicsGLRegisterImage", "flags 99", {ROOM, 5, 0xde1, 99}},
    {"cudaGraphicsEGLRegisterImage", "an image", {ROOM, ZEROS, 0}},
    {"cudaGraphicsEGLRegisterImage", "no image", {ROOM, 0, 0}},
    {"cudaGraphicsEGLRegisterImage", "no room", {0, ZEROS, 0}},
    {"cudaEGLStreamConsumerConnect", "a stream", {ROOM, ZEROS}},
    {"cudaEGLStreamConsumerConnect", "no room", {0, ZEROS}},
    {"cudaEGLStreamConsumerConnectWithFlags", "a stream", {ROOM, ZEROS, 0}},
    {"cudaEGLStreamConsumerConnectWithFlags", "flags 99", {ROOM, ZEROS, 99}},
    {"cudaEGLStreamConsumerDisconnect", "zeros", {ZEROS}},
    {"cudaEGLStreamConsumerAcquireFrame", "zeros", {ZEROS, ROOM, MORE, 0}},
    {"cudaEGLStreamConsumerReleaseFrame", "none", {0, 0, ROOM}},
    {"cudaEGLStreamProducerConnect", "a stream", {ROOM, ZEROS, 16, 16}},
    {"cudaEGLStreamProducerDisconnect", "zeros", {ZEROS}},
    {"cudaEGLStreamProducerPresentFrame", "zeros", {ZEROS, ROOM}},
    {"cudaEGLStreamProducerReturnFrame", "zeros", {ZEROS, ROOM, MORE}},
    {"cudaGraphicsResourceGetMappedEglFrame", "zeros", {ROOM, ZEROS, 0, 0}},
    {"cudaVDPAUGetDevice", "knows nothing", {ROOM, 5, VDPAU}},
    {"cudaVDPAUGetDevice", "no function", {ROOM, 5, 0}},
    {"cudaVDPAUSetVDPAUDevice", "0", {0, 5, VDPAU}},
    {"cudaVDPAUSetVDPAUDevice", "99", {99, 5, VDPAU}},
    {"cudaGraphicsVDPAURegisterVideoSurface", "5", {ROOM, 5, 0}},
    {"cudaGraphicsVDPAURegisterOutputSurface", "5", {ROOM, 5, 0}},
    {"cudaGraphicsMapResources", "none", {0, ZEROS, 0}},
    {"cudaGraphicsMapResources", "zeros", {1, ZEROS, 0}},
    {"cudaGraphicsMapResources", "-1", {(Word)-1, ZEROS, 0}},
    {"cudaGraphicsUnmapResources", "none", {0, ZEROS, 0}},
    {"cudaDeviceGetNvSciSyncAttributes", "signal", {ROOM, 0, 1}},
    {"cudaDeviceGetNvSciSyncAttributes", "flags 4", {ROOM, 0, 4}},
};

int main() {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(driver != nullptr);
    CHECK(cudaFree(nullptr));
    for (const Call &one : DRIVER) {
        std::printf("%s %s: %d\n", one.name, one.what, call(driver, one));
    }
    for (const Call &one : RUNTIME) {
        const int result = call(RTLD_DEFAULT, one);
        REQUIRE(cudaGetLastError() == result);
        std::printf("%s %s: %d\n", one.name, one.what, result);
    }
    // This one NVIDIA's runtime does not remember as an error.
    const Call event = {"cudaEventCreateFromEGLSync", "", {ROOM, ZEROS, 0}};
    std::printf("%s: %d\n", event.name, call(RTLD_DEFAULT, event));
    REQUIRE(cudaGetLastError() == cudaSuccess);
    CHECK(cudaDeviceSynchronize());

    // The first versions, whose addresses have 32 bits.
    CUtexref reference;
    CHECK_DRIVER(cuTexRefCreate(&reference));
    unsigned int offset;
    const Call texture[] = {
        {"cuTexRefSetAddress", "an address", {(Word)&offset, (Word)reference, 4096, 4096}},
        {"cuTexRefGetAddress", "room", {(Word)&offset, (Word)reference}},
        {"cuTexRefSetAddress2D", "rows", {(Word)reference, ZEROS, 4096, 256}},
    };
    for (const Call &one : texture) {
        std::printf("%s %s: %d\n", one.name, one.what, call(driver, one));
    }
    CHECK_DRIVER(cuTexRefDestroy(reference));
    return 0;
}
