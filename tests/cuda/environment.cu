// SPDX-License-Identifier: Apache-2.0 OR MIT
// CUDA's environment variables. The program executes itself once per setting, so that each is read at the start of a
// process; `environment NAME` is one of these runs. What is printed holds for any number of devices.
#include "check_driver.h"

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

// Long enough that a launch returns before it ends; `target` is then written to.
__global__ void write_late(const volatile int *zero, int *target) {
    int sum = 0;
    for (int i = 0; i < 100000; i++) {
        sum += zero[sum];
    }
    *target = sum + 1;
}

__global__ void add(int *value, int n) { *value += n; }

static const char PTX[] = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
)";

static std::string uuid_of(CUdevice device) {
    CUuuid uuid;
    char text[64];
    CHECK_DRIVER(cuDeviceGetUuid(&uuid, device));
    size_t at = 0;
    for (int i = 0; i < 16; i++) {
        at += std::snprintf(text + at, sizeof text - at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                            (unsigned char)uuid.bytes[i]);
    }
    return text;
}

// How many devices are seen, and whether the first one has the UUID `first`.
static void devices(const std::string &first) {
    int count = -1;
    const CUresult result = cuInit(0);
    std::printf("cuInit %d", (int)result);
    if (result == CUDA_SUCCESS) {
        CHECK_DRIVER(cuDeviceGetCount(&count));
        std::printf(", devices %d, first is %s", count, uuid_of(0) == first ? "device 0" : "another");
    } else {
        const int error = cudaGetDeviceCount(&count);
        std::printf(", cudaGetDeviceCount %d", error);
    }
    std::printf("\n");
}

// The call that reports a kernel's bad access.
static void fault() {
    int *zero;
    CHECK(cudaMalloc(&zero, sizeof *zero));
    CHECK(cudaMemset(zero, 0, sizeof *zero));
    CHECK(cudaDeviceSynchronize());
    write_late<<<1, 1>>>(zero, reinterpret_cast<int *>(64));
    const int launch = cudaGetLastError();
    std::printf("launch %d, synchronize %d\n", launch, (int)cudaDeviceSynchronize());
}

// Launches, copies and graphs that wait still do what they do.
static void work() {
    int *device, host = 0;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMalloc(&device, sizeof *device));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemsetAsync(device, 0, sizeof *device, stream));
    add<<<1, 1, 0, stream>>>(device, 1);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add<<<1, 1, 0, stream>>>(device, 10);
    CHECK(cudaMemcpyAsync(&host, device, sizeof host, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CHECK(cudaGraphLaunch(exec, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    std::printf("value %d\n", host);
}

// A launch that has returned is done.
static void query() {
    int *zero;
    cudaStream_t stream;
    CHECK(cudaMalloc(&zero, 2 * sizeof *zero));
    CHECK(cudaMemset(zero, 0, 2 * sizeof *zero));
    CHECK(cudaStreamCreate(&stream));
    write_late<<<1, 1, 0, stream>>>(zero, zero + 1);
    std::printf("query %d\n", (int)cudaStreamQuery(stream));
}

static void loading() {
    CUmoduleLoadingMode mode;
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(cuModuleGetLoadingMode(&mode));
    std::printf("loading mode %d, ", (int)mode);
    work();
}

static void load_ptx() {
    CUmodule module;
    use_primary_context();
    std::printf("PTX %d\n", (int)cuModuleLoadData(&module, PTX));
}

// Prints the flags of an executable graph.
static void graph_flags() {
    CUgraph graph;
    CUgraphExec exec;
    cuuint64_t flags;
    use_primary_context();
    CHECK_DRIVER(cuGraphCreate(&graph, 0));
    CHECK_DRIVER(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_DRIVER(cuGraphExecGetFlags(exec, &flags));
    std::printf("graph flags %llu\n", (unsigned long long)flags);
}

// The management library counts all devices.
static void management() {
    void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    REQUIRE(library);
    const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    const auto count_devices = reinterpret_cast<int (*)(unsigned *)>(dlsym(library, "nvmlDeviceGetCount_v2"));
    unsigned count = 0;
    REQUIRE(init && count_devices && init() == 0 && count_devices(&count) == 0);
    std::printf("NVML devices %u\n", count);
}

static int run_one(int argc, char **argv) {
    const std::string what = argv[1];
    if (what == "devices") {
        REQUIRE(argc > 2);
        devices(argv[2]);
    } else if (what == "fault") {
        fault();
    } else if (what == "work") {
        work();
    } else if (what == "query") {
        query();
    } else if (what == "loading") {
        loading();
    } else if (what == "ptx") {
        load_ptx();
    } else if (what == "flags") {
        graph_flags();
    } else if (what == "management") {
        management();
    } else {
        CHECK_DRIVER(cuInit(0));
        int count = 0;
        CHECK_DRIVER(cuDeviceGetCount(&count));
        for (int device = 0; device < count; device++) {
            std::printf("%s\n", uuid_of(device).c_str());
        }
    }
    return 0;
}

using Variables = std::initializer_list<std::pair<const char *, std::string>>;

// Executes this program with `variables` and `arguments`, its output going to `output`.
static void execute(const char *self, Variables variables, std::vector<std::string> arguments, int output) {
    std::fflush(stdout);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        for (const auto &[name, value] : variables) {
            setenv(name, value.c_str(), 1);
        }
        std::vector<char *> argv{const_cast<char *>(self)};
        for (std::string &argument : arguments) {
            argv.push_back(argument.data());
        }
        argv.push_back(nullptr);
        dup2(output, 1);
        execv("/proc/self/exe", argv.data());
        _exit(127);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (status != 0) {
        std::printf("status %d\n", status);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) {
        return run_one(argc, argv);
    }
    for (const char *name :
         {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_FORCE_PTX_JIT",
          "CUDA_FORCE_JIT", "CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_JIT"}) {
        unsetenv(name);
    }
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    execute(argv[0], {}, {"list"}, pipes[1]);
    close(pipes[1]);
    std::vector<std::string> uuids;
    FILE *const list = fdopen(pipes[0], "r");
    char line[128];
    while (std::fgets(line, sizeof line, list)) {
        uuids.emplace_back(line, std::strcspn(line, "\n"));
    }
    REQUIRE(!uuids.empty());

    const std::string &first = uuids[0];
    const auto visible = [&](const char *label, const std::string &value) {
        std::printf("visible devices %s: ", label);
        execute(argv[0], {{"CUDA_VISIBLE_DEVICES", value}}, {"devices", first}, 1);
    };
    visible("\"0\"", "0");
    visible("\"\"", "");
    visible("\"-1\"", "-1");
    visible("\"99\"", "99");
    visible("\"0,99,0\"", "0,99,0");
    visible("\"0,0\"", "0,0");
    visible("\"none\"", "none");
    visible("GPU-UUID", "GPU-" + first);
    visible("GPU-UUID less its end", "GPU-" + first.substr(0, first.size() - (uuids.size() == 1 ? 12 : 0)));
    visible("GPU-UUID too long", "GPU-" + first + "0");
    visible("another GPU-UUID", "GPU-00000000-0000-0000-0000-000000000000");
    std::printf("in order of bus: ");
    execute(argv[0], {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES", "GPU-" + first}}, {"devices", first}, 1);

    const auto with = [&](const char *name, const char *value, const char *what) {
        std::printf("%s=%s: ", name, value);
        execute(argv[0], {{name, value}}, {what}, 1);
    };
    with("CUDA_LAUNCH_BLOCKING", "0", "fault");
    with("CUDA_LAUNCH_BLOCKING", "1", "fault");
    with("CUDA_LAUNCH_BLOCKING", "1", "query");
    with("CUDA_LAUNCH_BLOCKING", "1", "work");
    with("CUDA_MODULE_LOADING", "LAZY", "loading");
    with("CUDA_MODULE_LOADING", "EAGER", "loading");
    with("CUDA_FORCE_PTX_JIT", "1", "work");
    with("CUDA_FORCE_PTX_JIT", "1", "ptx");
    with("CUDA_DISABLE_PTX_JIT", "0", "ptx");
    with("CUDA_DISABLE_PTX_JIT", "1", "ptx");
    return 0;
}
