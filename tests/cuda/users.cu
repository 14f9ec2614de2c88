// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a process of root exports, imported by root, by another user, and by that user as root of a user namespace
// of its own. To be run by root, outside of a chroot (where there are no user namespaces).
#include <dlfcn.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <grp.h>

#include "check.h"

enum { USER = 1000 };

static void need(bool fine, const char *what)
{
    if (!fine) {
        perror(what);
        exit(3);
    }
}

static void become_user()
{
    need(setgroups(0, nullptr) == 0, "setgroups");
    need(setresgid(USER, USER, USER) == 0, "setresgid");
    need(setresuid(USER, USER, USER) == 0, "setresuid");
    // So that /proc/self is its own.
    need(prctl(PR_SET_DUMPABLE, 1) == 0, "prctl");
}

static void become_root_of_a_namespace()
{
    become_user();
    need(unshare(CLONE_NEWUSER) == 0, "unshare");
    const int map = open("/proc/self/uid_map", O_WRONLY);
    need(map >= 0 && write(map, "0 1000 1", 8) == 8, "uid_map");
    close(map);
    need(getuid() == 0, "getuid");
}

struct Importer {
    const char *name;
    void (*become)();
};

static const Importer importers[] = {
    {"root", [] {}},
    {"user 1000", become_user},
    {"user 1000 as root of a namespace", become_root_of_a_namespace},
};

/// Imports what comes through the pipe; a child of a process that has not used CUDA yet.
static int import(const Importer &importer, int pipe)
{
    cudaIpcMemHandle_t handle;
    importer.become();
    if (read(pipe, &handle, sizeof handle) != sizeof handle) return 0;
    int *imported = nullptr;
    const cudaError_t error = cudaIpcOpenMemHandle((void **)&imported, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        printf("%s: refused\n", importer.name);
        return 0;
    }
    int value = 0;
    CHECK(cudaMemcpy(&value, imported, sizeof value, cudaMemcpyDeviceToHost));
    printf("%s: %d\n", importer.name, value);
    return 0;
}

int main()
{
    // A user who cannot read its folder must have the library, too.
    need(dlopen("libcuda.so.1", RTLD_NOW) != nullptr, "libcuda.so.1");
    setvbuf(stdout, nullptr, _IOLBF, 0);
    constexpr int count = sizeof importers / sizeof *importers;
    int pipes[count][2];
    pid_t children[count];
    for (int i = 0; i < count; i++) {
        need(pipe(pipes[i]) == 0, "pipe");
        children[i] = fork();
        if (children[i] == 0) {
            for (int j = 0; j <= i; j++) {
                close(pipes[j][1]);
            }
            _exit(import(importers[i], pipes[i][0]));
        }
        close(pipes[i][0]);
    }
    const int secret = 4711;
    int *exported = nullptr;
    cudaIpcMemHandle_t handle;
    CHECK(cudaMalloc(&exported, sizeof secret));
    CHECK(cudaMemcpy(exported, &secret, sizeof secret, cudaMemcpyHostToDevice));
    CHECK(cudaIpcGetMemHandle(&handle, exported));
    int bad = 0;
    for (int i = 0; i < count; i++) {
        need(write(pipes[i][1], &handle, sizeof handle) == sizeof handle, "write");
        int status = -1;
        close(pipes[i][1]);
        need(waitpid(children[i], &status, 0) == children[i], "waitpid");
        bad += status != 0;
    }
    return bad != 0;
}
