// SPDX-License-Identifier: Apache-2.0 OR MIT
// NCCL by its public API, with a process or a thread for each rank: `nccl_ranks processes N`, `nccl_ranks all N` (one process
// with N devices, ncclCommInitAll), `nccl_ranks one`. Collectives, also in a graph, an operator with a scalar, point to point in
// a group, splits, memory of NCCL. `nccl_ranks lost`: one of two processes ends, which only the emulator's NCCL reports by
// itself. The library is loaded by name, so that the program needs none of its files to be built.

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                                  \
    do {                                                                                             \
        const int result_ = (int)(call);                                                             \
        if (result_ != 0) {                                                                          \
            printf("%s:%d: %s -> %d\n", __FILE__, __LINE__, #call, result_);                         \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

#define REQUIRE(condition)                                                                           \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                           \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

struct Id {
    char bytes[128];
};
typedef void *Comm;
enum { FLOAT32 = 7, SUM = 0, MAX = 2, HOST = 1, NO_COLOR = -1 };

static int (*get_version)(int *), (*get_id)(Id *), (*init_rank)(Comm *, int, Id, int);
static int (*init_all)(Comm *, int, const int *), (*destroy)(Comm), (*count_of)(Comm, int *), (*rank_of)(Comm, int *);
static int (*device_of)(Comm, int *), (*split)(Comm, int, int, Comm *, void *), (*error_of)(Comm, int *);
static int (*all_reduce)(const void *, void *, size_t, int, int, Comm, cudaStream_t);
static int (*reduce_scatter)(const void *, void *, size_t, int, int, Comm, cudaStream_t);
static int (*broadcast)(const void *, void *, size_t, int, int, Comm, cudaStream_t);
static int (*reduce)(const void *, void *, size_t, int, int, int, Comm, cudaStream_t);
static int (*all_gather)(const void *, void *, size_t, int, Comm, cudaStream_t), (*abort_one)(Comm);
static int (*send)(const void *, size_t, int, int, Comm, cudaStream_t), (*receive)(void *, size_t, int, int, Comm, cudaStream_t);
static int (*group_start)(), (*group_end)(), (*allocate)(void **, size_t), (*release)(void *);
static int (*scaled_sum)(int *, void *, int, int, Comm), (*end_operator)(int, Comm);

template <class F> static void find(void *library, F *&place, const char *name) {
    place = (F *)dlsym(library, name);
    if (!place) {
        printf("no %s\n", name);
        exit(1);
    }
}

static void load() {
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    if (!library) {
        printf("no NCCL: %s\n", dlerror());
        exit(1);
    }
    find(library, get_version, "ncclGetVersion");
    find(library, get_id, "ncclGetUniqueId");
    find(library, init_rank, "ncclCommInitRank");
    find(library, init_all, "ncclCommInitAll");
    find(library, destroy, "ncclCommDestroy");
    find(library, count_of, "ncclCommCount");
    find(library, rank_of, "ncclCommUserRank");
    find(library, device_of, "ncclCommCuDevice");
    find(library, split, "ncclCommSplit");
    find(library, error_of, "ncclCommGetAsyncError");
    find(library, all_reduce, "ncclAllReduce");
    find(library, reduce_scatter, "ncclReduceScatter");
    find(library, broadcast, "ncclBroadcast");
    find(library, reduce, "ncclReduce");
    find(library, all_gather, "ncclAllGather");
    find(library, abort_one, "ncclCommAbort");
    find(library, send, "ncclSend");
    find(library, receive, "ncclRecv");
    find(library, group_start, "ncclGroupStart");
    find(library, group_end, "ncclGroupEnd");
    find(library, allocate, "ncclMemAlloc");
    find(library, release, "ncclMemFree");
    find(library, scaled_sum, "ncclRedOpCreatePreMulSum");
    find(library, end_operator, "ncclRedOpDestroy");
}

static const size_t COUNT = 1 << 20;

static void fill(float *place, float value) {
    std::vector<float> values(COUNT, value);
    CHECK(cudaMemcpy(place, values.data(), COUNT * sizeof(float), cudaMemcpyHostToDevice));
}

static void expect(const float *place, float value, size_t count = COUNT) {
    std::vector<float> values(count);
    CHECK(cudaMemcpy(values.data(), place, count * sizeof(float), cudaMemcpyDeviceToHost));
    for (float found : values)
        if (found != value) {
            printf("%g is not %g\n", found, value);
            exit(1);
        }
}

// The other collectives, and a graph that is launched twice. `in` has the rank's number, from 1.
static void collectives(Comm comm, int ranks, int rank, cudaStream_t stream, const float *in, float *out) {
    const float sum = ranks * (ranks + 1) / 2.0f;
    const size_t part = COUNT / ranks;
    CHECK(broadcast(in, out, COUNT, FLOAT32, ranks - 1, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect(out, ranks);
    CHECK(reduce_scatter(in, out, part, FLOAT32, SUM, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect(out, sum, part);
    CHECK(all_gather(in, out, part, FLOAT32, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int other = 0; other < ranks; other++) expect(out + other * part, other + 1.0f, part);
    CHECK(reduce(in, out, COUNT, FLOAT32, MAX, 0, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (rank == 0) expect(out, ranks);
    // A group in two streams, each of which waits for both operations.
    cudaStream_t second;
    float *other;
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&other, COUNT * sizeof(float)));
    CHECK(group_start());
    CHECK(broadcast(in, other, COUNT, FLOAT32, 0, comm, second));
    CHECK(all_reduce(in, out, COUNT, FLOAT32, SUM, comm, stream));
    CHECK(group_end());
    CHECK(cudaStreamSynchronize(stream));
    expect(other, 1);
    CHECK(cudaStreamSynchronize(second));
    expect(out, sum);
    CHECK(cudaFree(other));
    CHECK(cudaStreamDestroy(second));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(all_reduce(in, out, COUNT, FLOAT32, SUM, comm, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 2; round++) {
        fill(out, 0);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        expect(out, sum);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// The calls of one rank, which has its device already.
static void run(Comm comm, int ranks, int rank, int device) {
    int number = -1;
    CHECK(count_of(comm, &number));
    REQUIRE(number == ranks);
    CHECK(rank_of(comm, &number));
    REQUIRE(number == rank);
    CHECK(device_of(comm, &number));
    REQUIRE(number == device);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    float *in, *out;
    CHECK(allocate((void **)&in, COUNT * sizeof(float)));
    CHECK(cudaMalloc(&out, COUNT * sizeof(float)));
    const float sum = ranks * (ranks + 1) / 2.0f;
    for (int round = 0; round < 20; round++) {
        fill(in, rank + 1.0f);
        CHECK(all_reduce(in, out, COUNT, FLOAT32, SUM, comm, stream));
        CHECK(cudaStreamSynchronize(stream));
        expect(out, sum);
    }
    float scale = 0.5f;
    CHECK(scaled_sum(&number, &scale, FLOAT32, HOST, comm));
    CHECK(all_reduce(in, out, COUNT, FLOAT32, number, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect(out, sum / 2);
    CHECK(end_operator(number, comm));
    // Around the ring.
    CHECK(group_start());
    CHECK(send(in, COUNT, FLOAT32, (rank + 1) % ranks, comm, stream));
    CHECK(receive(out, COUNT, FLOAT32, (rank + ranks - 1) % ranks, comm, stream));
    CHECK(group_end());
    CHECK(cudaStreamSynchronize(stream));
    expect(out, (rank + ranks - 1) % ranks + 1.0f);
    collectives(comm, ranks, rank, stream, in, out);
    CHECK(error_of(comm, &number));
    REQUIRE(number == 0);
    CHECK(release(in));
    CHECK(cudaFree(out));
    CHECK(cudaStreamDestroy(stream));
}

// A communicator of the even ranks. Only where each rank has a thread: it waits for the others.
static void split_in_two(Comm comm, int rank) {
    Comm half = (Comm)1;
    const bool takes_part = rank % 2 == 0;
    CHECK(split(comm, takes_part ? 0 : NO_COLOR, rank, &half, nullptr));
    REQUIRE((half != nullptr) == takes_part);
    if (!takes_part) return;
    int found = -1;
    CHECK(rank_of(half, &found));
    REQUIRE(found == rank / 2);
    CHECK(destroy(half));
}

// Rank 1 ends without a word while rank 0 waits for it.
static void lose(Comm comm, int rank) {
    if (rank == 1) _exit(0);
    float *place;
    CHECK(cudaMalloc(&place, COUNT * sizeof(float)));
    CHECK(all_reduce(place, place, COUNT, FLOAT32, SUM, comm, nullptr));
    CHECK(cudaDeviceSynchronize());
    int error = 0;
    CHECK(error_of(comm, &error));
    REQUIRE(error != 0);
    CHECK(abort_one(comm));
}

static void run_process(int ranks, int rank, int in, int out, bool loses) {
    load();
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    const int device = rank % devices;
    CHECK(cudaSetDevice(device));
    Id id;
    if (rank == 0) {
        CHECK(get_id(&id));
        for (int other = 1; other < ranks; other++) REQUIRE(write(out, &id, sizeof id) == sizeof id);
    } else {
        REQUIRE(read(in, &id, sizeof id) == sizeof id);
    }
    Comm comm;
    CHECK(init_rank(&comm, ranks, id, rank));
    if (loses) {
        lose(comm, rank);
        return;
    }
    run(comm, ranks, rank, device);
    split_in_two(comm, rank);
    CHECK(destroy(comm));
}

static int processes(int ranks, bool loses) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    // CUDA is not used before the fork.
    for (int rank = 0; rank < ranks; rank++)
        if (fork() == 0) {
            run_process(ranks, rank, ends[0], ends[1], loses);
            exit(0);
        }
    int failed = 0;
    for (int rank = 0; rank < ranks; rank++) {
        int status = 1;
        REQUIRE(wait(&status) > 0);
        failed += status != 0;
    }
    return failed;
}

static void all(int ranks) {
    load();
    std::vector<Comm> comms(ranks);
    CHECK(init_all(comms.data(), ranks, nullptr));
    std::vector<float *> places(ranks);
    for (int rank = 0; rank < ranks; rank++) {
        int device = -1;
        CHECK(device_of(comms[rank], &device));
        REQUIRE(device == rank);
        CHECK(cudaSetDevice(rank));
        CHECK(cudaMalloc(&places[rank], COUNT * sizeof(float)));
        fill(places[rank], rank + 1.0f);
    }
    CHECK(group_start());
    for (int rank = 0; rank < ranks; rank++)
        CHECK(all_reduce(places[rank], places[rank], COUNT, FLOAT32, SUM, comms[rank], nullptr));
    CHECK(group_end());
    // One communicator of the even ranks and one of the odd ones.
    std::vector<Comm> halves(ranks);
    CHECK(group_start());
    for (int rank = 0; rank < ranks; rank++) CHECK(split(comms[rank], rank % 2, rank, &halves[rank], nullptr));
    CHECK(group_end());
    for (int rank = 0; rank < ranks; rank++) {
        int number = -1;
        CHECK(count_of(halves[rank], &number));
        REQUIRE(number == (rank % 2 ? ranks / 2 : (ranks + 1) / 2));
        CHECK(destroy(halves[rank]));
    }
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(cudaSetDevice(rank));
        CHECK(cudaDeviceSynchronize());
        expect(places[rank], ranks * (ranks + 1) / 2.0f);
        CHECK(cudaFree(places[rank]));
        CHECK(destroy(comms[rank]));
    }
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "one";
    const int ranks = count > 2 ? atoi(words[2]) : 2;
    if (!strcmp(mode, "processes")) {
        if (processes(ranks, false) != 0) return 1;
    } else if (!strcmp(mode, "lost")) {
        if (processes(2, true) != 0) return 1;
    } else if (!strcmp(mode, "all")) {
        all(ranks);
    } else {
        load();
        int version = 0;
        CHECK(get_version(&version));
        REQUIRE(version > 20000);
        Id id;
        CHECK(get_id(&id));
        Comm comm;
        CHECK(init_rank(&comm, 1, id, 0));
        run(comm, 1, 0, 0);
        CHECK(destroy(comm));
    }
    printf("ok\n");
}
