// SPDX-License-Identifier: Apache-2.0 OR MIT
// A libcuda.so.1 that does nothing but write down what it was asked: one line per call on the file FAKE_LOG.
// FAKE_FAIL makes calls fail: "cuInit=100,cuLibraryLoadData=209". FAKE_VERSION is the driver's version.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *current[1];
static __thread void *thread_context;

static int called(const char *name, const char *format, ...) {
    static FILE *log;
    if (!log && getenv("FAKE_LOG")) log = fopen(getenv("FAKE_LOG"), "a");
    if (log) {
        char line[256];
        va_list args;
        va_start(args, format);
        vsnprintf(line, sizeof line, format, args);
        va_end(args);
        fprintf(log, "%s%s%s\n", name, *line ? " " : "", line);
        fflush(log);
    }
    const char *failures = getenv("FAKE_FAIL");
    size_t length = strlen(name);
    for (const char *f = failures; f && *f; f = strchr(f, ',') ? strchr(f, ',') + 1 : "")
        if (!strncmp(f, name, length) && f[length] == '=') return atoi(f + length + 1);
    return 0;
}

#define CALLED(...) \
    do { \
        int error = called(__func__, __VA_ARGS__); \
        if (error) return error; \
    } while (0)

typedef unsigned long long ptr;
static char memory[4096], kernels[16], managed[64];

int cuDriverGetVersion(int *v) { *v = getenv("FAKE_VERSION") ? atoi(getenv("FAKE_VERSION")) : 13000; return 0; }
int cuInit(unsigned f) { CALLED("%u", f); return 0; }
int cuDeviceGetCount(int *n) { CALLED(""); *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetAttribute(int *v, unsigned a, int d) { CALLED("%u %d", a, d); *v = (int)a; return 0; }
int cuModuleGetLoadingMode(unsigned *m) { *m = getenv("FAKE_EAGER") ? 1 : 2; return 0; }
int cuCtxGetCurrent(void **c) { *c = thread_context; return called("cuCtxGetCurrent", ""); }
int cuCtxSetCurrent(void *c) { CALLED("%ld", c ? (char *)c - (char *)current : -1); thread_context = c; return 0; }
int cuCtxGetDevice(int *d) { CALLED(""); *d = (int)((char *)thread_context - (char *)current) % 2; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { CALLED("%d", d); *c = (char *)current + d; return 0; }
int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) { CALLED("%d", d); *f = 0; *a = 1; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { CALLED("%d", d); return 0; }
int cuDevicePrimaryCtxReset_v2(int d) { CALLED("%d", d); return 0; }
int cuCtxGetDevice_v2(int *d, void *c) { CALLED(""); *d = (int)((char *)c - (char *)current); return 0; }
int cuCtxPushCurrent_v2(void *c) { CALLED("%ld", (char *)c - (char *)current); return 0; }
int cuCtxPopCurrent_v2(void **c) { CALLED(""); *c = 0; return 0; }
int cuCtxSynchronize_v2(void *c) { CALLED("%ld", (char *)c - (char *)current); return 0; }
int cuStreamCreateWithPriority(void **s, unsigned f, int p) { CALLED("%u %d", f, p); *s = memory; return 0; }
int cuDeviceGetDevResource(int d, void *r, unsigned t) { CALLED("%d %u", d, t); return 0; }
int cuDevResourceGenerateDesc(void **d, void *r, unsigned n) { CALLED("%u", n); *d = memory; return 0; }
int cuGreenCtxCreate(void **g, void *desc, int d, unsigned f) { CALLED("%d %u", d, f); *g = memory + 1; return 0; }
int cuCtxFromGreenCtx(void **c, void *g) { CALLED("%ld", (char *)g - memory); *c = (char *)current + 5; return 0; }
int cuGreenCtxStreamCreate(void **s, void *g, unsigned f, int p) { CALLED("%ld %u %d", (char *)g - memory, f, p); *s = memory; return 0; }
int cuGreenCtxDestroy(void *g) { CALLED("%ld", (char *)g - memory); return 0; }
int cuCtxSynchronize(void) { CALLED(""); return 0; }
int cuMemAlloc_v2(ptr *p, size_t n) { CALLED("%zu", n); *p = (ptr)memory; return 0; }
int cuMemFree_v2(ptr p) { CALLED("%d", p != 0); return 0; }
int cuMemcpyHtoD_v2(ptr d, const void *s, size_t n) { CALLED("%zu", n); memcpy((void *)d, s, n); return 0; }
int cuMemcpyDtoH_v2(void *d, ptr s, size_t n) { CALLED("%zu", n); memcpy(d, (void *)s, n); return 0; }
int cuMemcpyHtoDAsync_v2(ptr d, const void *s, size_t n, void *st) { CALLED("%zu stream %ld", n, (long)st); return 0; }
int cuMemsetD8_v2(ptr d, unsigned char c, size_t n) { CALLED("%02x %zu", c, n); return 0; }
int cuMemsetD8Async(ptr d, unsigned char c, size_t n, void *st) { CALLED("%02x %zu stream %ld", c, n, (long)st); return 0; }
int cuStreamQuery(void *s) { CALLED("%ld", (long)s); return 0; }
int cuStreamSynchronize(void *s) { CALLED("%ld", (long)s); return 0; }
int cuLibraryLoadData(void **l, const void *code, unsigned *jo, void **jv, unsigned nj, unsigned *lo, void **lv, unsigned nl) {
    CALLED("jit %u options %u %u=%ld", nj, nl, nl ? *lo : 99, nl ? (long)*lv : 99);
    *l = (void *)code;
    return 0;
}
int cuLibraryUnload(void *l) { CALLED(""); return 0; }
int cuLibraryGetKernel(void **k, void *l, const char *name) { CALLED("%s", name); *k = kernels + strlen(name); return 0; }
int cuLibraryGetGlobal(ptr *p, size_t *n, void *l, const char *name) { CALLED("%s", name); *p = (ptr)memory; *n = 16; return 0; }
int cuLibraryGetManaged(ptr *p, size_t *n, void *l, const char *name) {
    CALLED("%s", name);
    if (getenv("FAKE_MANAGED_NEEDS_CONTEXT") && !thread_context) return 500;
    *p = (ptr)managed;
    *n = 4;
    return 0;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **params, void **extra) {
    CALLED("%ld grid %u %u %u block %u %u %u shared %u stream %ld", (long)((char *)f - kernels), gx, gy, gz, bx, by, bz, shared,
           (long)stream);
    return 0;
}
