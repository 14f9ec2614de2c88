// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The outcomes of running a part of a kernel.

/// The state of a block that ran for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// All its warps have had a turn; `polled` when one of them seems to wait for memory to change.
    Turn {
        polled: bool,
    },
    Fault,
}

/// The reason for which a warp stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its turn is over.
    Turn,
    /// All its living lanes wait at barriers, or it has none left.
    Blocked,
    /// `machine.fault` is set.
    Fault,
}

/// The next step of the main loop.
pub(super) enum Resume {
    /// With the instruction at `pc`.
    Interpret,
    /// At `pc`, perhaps in translated code again.
    Arrive,
    Stop(Stop),
}
