// SPDX-License-Identifier: Apache-2.0 OR MIT
// Two processes open each other's memory. In each round one writes its own and a part of the other's, and the other one compares all of it.
// The other process is started by exec before this one has used CUDA. With `events` neither waits for its own work: the other one waits for an
// event, which it opens in each round. Nobody waits for ever.
#include "check_driver.h"
#include "other_process.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

// One allocation that shares a unit of memory with others, and one that does not.
static const size_t BYTES[] = {5000, 3 << 20};
static const int ROUNDS = 300;
// After so many rounds the other side's memory is closed, and opened again.
static const int REOPENED = 16;
// Longer than a round takes, s.
static const int LIMIT = 60;

struct Message {
    int wrong;
    CUipcEventHandle event;
    CUipcMemHandle handles[2];
};

static void send_all(int to, const Message &message) {
    REQUIRE(send(to, &message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message);
}

static Message receive_all(int from) {
    Message message;
    REQUIRE(recv(from, &message, sizeof message, MSG_WAITALL) == (ssize_t)sizeof message);
    return message;
}

// The value of a half of the memory in a round, as one side writes it.
static unsigned int value(int round, int side, size_t which, int half) {
    return 0x9e3779b9u * (unsigned int)(((round * 2 + side) * 2 + (int)which) * 2 + half + 1);
}

struct Side {
    int number;
    bool has_events;
    CUstream stream;
    CUevent done;
    CUdeviceptr own[2], opened[2];
    CUdeviceptr copy;
    CUipcMemHandle handles[2];

    void open() {
        for (size_t which = 0; which < 2; which++) {
            CUdeviceptr again;
            CHECK_DRIVER(cuIpcOpenMemHandle(&opened[which], handles[which], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            CHECK_DRIVER(cuIpcOpenMemHandle(&again, handles[which], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            REQUIRE(again == opened[which]);
        }
    }

    void close() {
        for (const CUdeviceptr at : opened) {
            CHECK_DRIVER(cuIpcCloseMemHandle(at));
            CHECK_DRIVER(cuIpcCloseMemHandle(at));
        }
    }

    // Writes the first halves of the own memory, and the second ones of the other side's.
    void write(int round) {
        for (size_t which = 0; which < 2; which++) {
            const size_t half = BYTES[which] / 2;
            CHECK_DRIVER(cuMemsetD32Async(own[which], value(round, number, which, 0), half / 4, stream));
            CHECK_DRIVER(cuMemsetD32Async(opened[which] + half, value(round, number, which, 1), half / 4, stream));
        }
        if (has_events) {
            CHECK_DRIVER(cuEventRecord(done, stream));
        } else {
            CHECK_DRIVER(cuStreamSynchronize(stream));
        }
    }

    // Compares what the other side has written, there and here.
    int compare(int round, const CUipcEventHandle &handle) {
        int wrong = 0;
        CUevent there = nullptr;
        if (has_events) {
            CHECK_DRIVER(cuIpcOpenEventHandle(&there, handle));
            CHECK_DRIVER(cuStreamWaitEvent(stream, there, 0));
        }
        for (size_t which = 0; which < 2; which++) {
            const size_t half = BYTES[which] / 2;
            CHECK_DRIVER(cuMemcpyDtoDAsync(copy, opened[which], half, stream));
            CHECK_DRIVER(cuStreamSynchronize(stream));
            wrong += differences(copy, half, value(round, 1 - number, which, 0));
            wrong += differences(own[which] + half, half, value(round, 1 - number, which, 1));
        }
        if (has_events) {
            CHECK_DRIVER(cuEventDestroy(there));
        }
        return wrong;
    }

    static int differences(CUdeviceptr at, size_t bytes, unsigned int expected) {
        std::vector<unsigned int> back(bytes / 4);
        CHECK_DRIVER(cuMemcpyDtoH(back.data(), at, bytes));
        int wrong = 0;
        for (const unsigned int word : back) {
            wrong += word != expected;
        }
        return wrong;
    }
};

static int run(int number, int socket, bool has_events) {
    use_primary_context();
    Side side = {};
    side.number = number;
    side.has_events = has_events;
    CHECK_DRIVER(cuStreamCreate(&side.stream, CU_STREAM_NON_BLOCKING));
    Message message = {}, answer;
    CUdeviceptr before;
    CHECK_DRIVER(cuMemAlloc(&before, 700));
    CHECK_DRIVER(cuMemAlloc(&side.copy, BYTES[1]));
    for (size_t which = 0; which < 2; which++) {
        CHECK_DRIVER(cuMemAlloc(&side.own[which], BYTES[which]));
        CHECK_DRIVER(cuIpcGetMemHandle(&message.handles[which], side.own[which]));
    }
    if (has_events) {
        CHECK_DRIVER(cuEventCreate(&side.done, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        CHECK_DRIVER(cuIpcGetEventHandle(&message.event, side.done));
    }
    send_all(socket, message);
    answer = receive_all(socket);
    std::copy(answer.handles, answer.handles + 2, side.handles);
    side.open();
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 2 == number) {
            side.write(round);
            send_all(socket, message);
        } else {
            wrong += receive_all(socket).wrong + side.compare(round, answer.event);
        }
        if (round % REOPENED == REOPENED - 1) {
            side.close();
            side.open();
        }
    }
    message.wrong = wrong;
    send_all(socket, message);
    const int there = receive_all(socket).wrong;
    side.close();
    if (number == 0) {
        std::printf("%d rounds, here %d wrong, there %d wrong\n", ROUNDS, wrong, there);
    }
    return wrong + there > 0;
}

int main(int count, char **arguments) {
    const bool has_events = count > 1 && std::strcmp(arguments[1], "events") == 0;
    if (count == 3) {
        return run(1, std::atoi(arguments[2]), has_events);
    }
    const Other other = start_other("shared_rounds", has_events ? "events" : "-", LIMIT);
    const int failed = run(0, other.socket, has_events);
    std::printf("the other process ends with %d\n", wait_for(other));
    return failed;
}
