// SPDX-License-Identifier: Apache-2.0 OR MIT
// File descriptors from one process to another.
#pragma once

#include <cstddef>
#include <cstring>
#include <sys/socket.h>

// Sends bytes and, unless it is -1, a file descriptor. Whether all went.
inline bool send_descriptor(int to, void *bytes, size_t length, int descriptor) {
    iovec vector = {bytes, length};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr whole = {};
    whole.msg_iov = &vector;
    whole.msg_iovlen = 1;
    if (descriptor >= 0) {
        whole.msg_control = control;
        whole.msg_controllen = sizeof control;
        cmsghdr *header = CMSG_FIRSTHDR(&whole);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    return sendmsg(to, &whole, MSG_NOSIGNAL) == (ssize_t)length;
}

// Receives what the other side has sent; -1 if there was no descriptor. Whether all came.
inline bool receive_descriptor(int from, void *bytes, size_t length, int *descriptor) {
    iovec vector = {bytes, length};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr whole = {};
    whole.msg_iov = &vector;
    whole.msg_iovlen = 1;
    whole.msg_control = control;
    whole.msg_controllen = sizeof control;
    *descriptor = -1;
    if (recvmsg(from, &whole, MSG_WAITALL) != (ssize_t)length) {
        return false;
    }
    if (const cmsghdr *header = CMSG_FIRSTHDR(&whole)) {
        std::memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
    }
    return true;
}
