// SPDX-License-Identifier: Apache-2.0 OR MIT
// What nvcc would make of a small program, by hand: registration in a constructor, kernel stubs, unregistration at exit.
// The argument chooses the case; each prints what the runtime answered.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaUnregisterFatBinary(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
extern void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
extern void __cudaRegisterManagedVar(void **, void **, char *, const char *, int, size_t, int, int);
extern char __cudaInitModule(void **);
extern unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
extern int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
extern int __cudaGetKernel(void **, const void *);
extern int __cudaLaunchKernel(void *, dim3, dim3, void **, size_t, void *);
extern int __cudaLaunchKernel_ptsz(void *, dim3, dim3, void **, size_t, void *);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern int cudaMalloc(void **, size_t), cudaFree(void *), cudaDeviceSynchronize(void), cudaDeviceReset(void), cudaSetDevice(int);
extern int cudaGetDevice(int *), cudaGetDeviceCount(int *), cudaGetLastError(void), cudaPeekAtLastError(void);
extern int cudaDriverGetVersion(int *), cudaRuntimeGetVersion(int *), cudaStreamQuery(void *), cudaEventQuery(void *);
extern int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpy_ptds(void *, const void *, size_t, int);
extern int cudaMemset_ptds(void *, int, size_t), cudaStreamQuery_ptsz(void *), __cudaGetProcAddress(void);
// Names of CUDA 13.1 to 13.5.
extern int cudaGraphGetId(void *, unsigned *), cudaFuncGetParamCount(const void *, size_t *), cudaSubgridCreate(void);
extern int cudaMemcpyWithAttributesAsync(void *, const void *, size_t, void *, void *), cudaGraphNodeGetParams(void *, void *);
extern int cudaLaunchHostFunc_v2_ptsz(void *, void *, void *, unsigned), cudaDevSmResourceSplit(void *, unsigned, void *, void *, unsigned, void *);
extern int cudaDeviceGetExecutionCtx(void **, int), cudaExecutionCtxGetDevice(int *, void *), cudaExecutionCtxDestroy(void *);
extern int cudaExecutionCtxStreamCreate(void **, void *, unsigned, int), cudaDeviceGetDevResource(int, void *, unsigned);
extern int cudaDevResourceGenerateDesc(void **, void *, unsigned), cudaGreenCtxCreate(void **, void *, int, unsigned);
extern int cudaExecutionCtxSynchronize(void *);
extern int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int), cudaDeviceGetAttribute(int *, unsigned, int);

static const struct { unsigned magic, version; const void *data; void *more; } wrapper = {0x466243b1, 1, "", 0};
static void **handle;
static char variable;
static int *managed_variable;
static int has_driver_been_called;

static void one_stub(void);
static void two_stub(void);

static void unregister(void) { __cudaUnregisterFatBinary(handle); }

__attribute__((constructor)) static void register_all(void) {
    handle = __cudaRegisterFatBinary((void *)&wrapper);
    __cudaRegisterFunction(handle, (const char *)one_stub, "one", "one", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, (const char *)two_stub, "three", "three", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(handle, &variable, "variable", "variable", 0, 16, 0, 0);
    if (!getenv("NO_MANAGED")) __cudaRegisterManagedVar(handle, (void **)&managed_variable, "shared", "shared", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
    atexit(unregister);
}

static void stub(const void *function, void **kernel, int *asked) {
    dim3 grid, block;
    size_t shared;
    void *stream;
    if (!*asked) __cudaGetKernel(kernel, function);
    *asked = 1;
    if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream)) return;
    __cudaLaunchKernel(*kernel, grid, block, 0, shared, stream);
}
static void one_stub(void) { static void *kernel; static int asked; stub((const void *)one_stub, &kernel, &asked); }
static void two_stub(void) { static void *kernel; static int asked; stub((const void *)two_stub, &kernel, &asked); }
static void launch(void (*f)(void)) {
    dim3 grid = {1, 2, 3}, block = {4, 5, 6};
    if (!__cudaPushCallConfiguration(grid, block, 7, (void *)8)) f();
    printf("launch %d\n", cudaGetLastError());
}

#define P(call) printf("%s %d\n", #call, call)
static void last(void) {
    int peek = cudaPeekAtLastError(), get = cudaGetLastError(), again = cudaGetLastError();
    printf("last %d %d %d\n", peek, get, again);
}
static void *other_thread(void *unused) { last(); void *p; P(cudaMalloc(&p, 8)); return 0; }
static void in_thread(void *(*f)(void *)) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); }
static void *reset_thread(void *unused) { P(cudaDeviceReset()); P(cudaSetDevice(0)); P(cudaDeviceReset()); return 0; }
static void handler(void) { void *p; P(cudaMalloc(&p, 1)); launch(one_stub); }
__attribute__((destructor)) static void destructor(void) { if (has_driver_been_called) { void *p; printf("destructor %d\n", cudaMalloc(&p, 1)); } }

int main(int argc, char **argv) {
    const char *test = argv[1];
    void *p, *context, *description;
    int n = -7;
    size_t bytes;
    char resource[144];
    setvbuf(stdout, 0, _IONBF, 0);
    if (!strcmp(test, "nothing")) return 0;
    if (!strcmp(test, "versions")) {
        P(cudaRuntimeGetVersion(&n)); printf("%d\n", n);
        P(cudaDriverGetVersion(&n)); printf("%d\n", n);
    } else if (!strcmp(test, "latched")) {
        last();
        P(cudaGetDeviceCount(&n)); printf("%d\n", n);
        P(cudaMalloc(&p, 1));
        launch(one_stub);
        last();
        P(cudaDriverGetVersion(&n));
    } else if (!strcmp(test, "last")) {
        P(cudaMalloc(0, 1));
        P(cudaMalloc(&p, 1));
        in_thread(other_thread);
        last();
        P(cudaStreamQuery(0));
        last();
    } else if (!strcmp(test, "launch")) {
        launch(one_stub);
        launch(one_stub);
        launch(two_stub);
        dim3 d = {1, 1, 1};
        P(cudaLaunchKernel((const void *)one_stub, d, d, 0, 0, 0));
        P(cudaMemcpyToSymbol(&variable, "abcd", 4, 0, 1));
        P(cudaMemcpyToSymbol(&variable, "abcd", 4, 13, 1));
        P(cudaMemcpyToSymbol(&n, "abcd", 4, 0, 1));
    } else if (!strcmp(test, "managed")) {
        P(cudaGetDeviceCount(&n));
        printf("%d\n", managed_variable != 0);
        P(cudaMalloc(&p, 1));
        printf("%d\n", managed_variable != 0);
        P(cudaMemcpyToSymbol(managed_variable, "abcd", 4, 0, 1));
    } else if (!strcmp(test, "init_module")) {
        int ready = __cudaInitModule(handle);
        printf("%d %d\n", ready, managed_variable != 0);
    } else if (!strcmp(test, "devices")) {
        P(cudaDeviceGetAttribute(&n, 10, 1));
        P(cudaGetDevice(&n)); printf("%d\n", n);
        P(cudaSetDevice(1));
        P(cudaSetDevice(1));
        P(cudaGetDevice(&n)); printf("%d\n", n);
        P(cudaSetDevice(2));
        P(cudaMalloc(&p, 1));
    } else if (!strcmp(test, "reset_own")) {
        int (*set_current)(void *), (*retain)(void **, int);
        P(cudaGetDeviceCount(&n));
        *(void **)&set_current = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent");
        *(void **)&retain = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDevicePrimaryCtxRetain");
        retain(&context, 0);
        set_current((char *)context + 6);
        P(cudaDeviceReset());
        set_current(context);
        P(cudaDeviceReset());
    } else if (!strcmp(test, "reset")) {
        launch(one_stub);
        P(cudaDeviceReset());
        launch(one_stub);
        in_thread(reset_thread);
        P(cudaDeviceSynchronize());
    } else if (!strcmp(test, "per_thread")) {
        dim3 d = {1, 1, 1};
        void *kernel;
        P(cudaMalloc(&p, 16));
        P(__cudaGetKernel(&kernel, (const void *)one_stub));
        P(__cudaLaunchKernel_ptsz(kernel, d, d, 0, 0, 0));
        P(__cudaLaunchKernel_ptsz(kernel, d, d, 0, 0, (void *)5));
        P(cudaMemcpy_ptds(p, "abcd", 4, 1));
        P(cudaMemset_ptds(p, 0x1ff, 4));
        P(cudaStreamQuery_ptsz(0));
    } else if (!strcmp(test, "missing")) {
        P(cudaEventQuery(0));
        P(__cudaGetProcAddress());
        last();
    } else if (!strcmp(test, "newer")) {
        // A driver of 13.0 lacks what these need.
        P(cudaGraphGetId(0, 0));
        P(cudaFuncGetParamCount((const void *)one_stub, &bytes));
        P(cudaMemcpyWithAttributesAsync(0, 0, 0, 0, 0));
        P(cudaLaunchHostFunc_v2_ptsz(0, 0, 0, 0));
        P(cudaDevSmResourceSplit(0, 0, 0, 0, 0, 0));
        P(cudaGraphNodeGetParams(0, 0));
        P(cudaSubgridCreate());
        last();
    } else if (!strcmp(test, "execution")) {
        P(cudaDeviceGetExecutionCtx(&context, 1));
        P(cudaExecutionCtxGetDevice(&n, context));
        printf("%d\n", n);
        P(cudaExecutionCtxStreamCreate(&p, context, 0, -1));
        P(cudaExecutionCtxDestroy(context));
        P(cudaDeviceGetDevResource(1, resource, 1));
        P(cudaDevResourceGenerateDesc(&description, resource, 1));
        P(cudaGreenCtxCreate(&context, description, 1, 2));
        P(cudaGreenCtxCreate(&context, description, 1, 0));
        P(cudaExecutionCtxStreamCreate(&p, context, 0, -1));
        P(cudaExecutionCtxStreamCreate(&p, context, 2, -1));
        P(cudaExecutionCtxSynchronize(context));
        P(cudaExecutionCtxSynchronize(0));
        P(cudaExecutionCtxDestroy(context));
        P(cudaExecutionCtxDestroy(context));
    } else if (!strcmp(test, "exit")) {
        has_driver_been_called = 1;
        P(cudaMalloc(&p, 1));
        launch(one_stub);
        atexit(handler);
    } else {
        return 1;
    }
    return 0;
}
