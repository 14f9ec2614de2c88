// SPDX-License-Identifier: Apache-2.0 OR MIT
// Another process of the same program, and a socket to it.
#pragma once

#include "check.h"

#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct Other {
    pid_t process;
    int socket;
};

// Starts it by exec, with these arguments: the mode, and the number of its end of the socket. Neither end waits longer than `limit` seconds.
static inline Other start_other(const char *program, const char *mode, int limit) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const timeval time = {limit, 0};
    for (const int end : ends) {
        REQUIRE(setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    }
    const std::string number = std::to_string(ends[1]);
    const pid_t other = fork();
    REQUIRE(other >= 0);
    if (other == 0) {
        close(ends[0]);
        execl("/proc/self/exe", program, mode, number.c_str(), nullptr);
        _exit(127);
    }
    close(ends[1]);
    REQUIRE(fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0);
    return {other, ends[0]};
}

// Waits for its end. Returns the status of waitpid.
static inline int wait_for(const Other &other) {
    int status = 0;
    REQUIRE(waitpid(other.process, &status, 0) == other.process);
    close(other.socket);
    return status;
}
