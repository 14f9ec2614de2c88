// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asks for the state of processes. Nothing is locked: a process that runs is no checkpoint, and there is nothing to unlock.
#include "check_driver.h"

#include <sys/wait.h>
#include <unistd.h>

#define SHOW(call) std::printf("%s: %d\n", #call, (int)(call))

int main() {
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    REQUIRE(child > 0 && waitpid(child, nullptr, 0) == child);

    use_primary_context();
    const int self = getpid();
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    SHOW(cuCheckpointProcessGetState(self, &state));
    std::printf("state %d\n", (int)state);
    SHOW(cuCheckpointProcessGetState(self, nullptr));
    SHOW(cuCheckpointProcessGetState(-1, &state));
    SHOW(cuCheckpointProcessGetState(child, &state) != CUDA_SUCCESS);
    CUcheckpointCheckpointArgs checkpoint = {};
    CUcheckpointRestoreArgs restore = {};
    CUcheckpointUnlockArgs unlock = {};
    SHOW(cuCheckpointProcessCheckpoint(self, &checkpoint));
    SHOW(cuCheckpointProcessRestore(self, &restore));
    SHOW(cuCheckpointProcessUnlock(self, &unlock));
    SHOW(cuCheckpointProcessUnlock(self, nullptr));
    CHECK_DRIVER(cuCtxSynchronize());
    return 0;
}
