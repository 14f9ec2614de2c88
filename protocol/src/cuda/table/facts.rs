// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Facts about calls, as words behind a row's results. A call without words needs a current context, may run device
//! code, prints nothing, and is waited for: the safe assumptions for a new row.

/// The facts of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts(u16);

macro_rules! facts {
    ($($(#[$doc:meta])* $word:ident = $bit:literal, $(#[$query_doc:meta])* $query:ident = $set:literal;)*) => {
        impl Facts {
            /// The facts of a row without words.
            pub const fn new() -> Self {
                Self(0)
            }
            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $word(self) -> Self {
                    Self(self.0 | 1 << $bit)
                }
                $(#[$query_doc])*
                pub const fn $query(self) -> bool {
                    (self.0 & 1 << $bit != 0) == $set
                }
            )*
        }
    };
}

facts! {
    /// Works without a current context, also when that has just been destroyed.
    no_context = 0,
    /// Works in the current context.
    needs_context = false;
    /// Neither runs nor loads device code: nothing is printed because of it.
    no_code = 1,
    /// Runs or loads device code.
    runs_code = false;
    /// The driver may print what device code left in its buffer: it does so at launches, waits and copies, and when
    /// modules and contexts are created and destroyed.
    may_print = 2,
    /// The output of device code may have grown after the call.
    prints = true;
    /// Starts work that only the driver's own waiting ends: launches, graphs and captures.
    starts_work = 3,
    /// Starts work that only the driver's own waiting ends.
    is_work = true;
    /// Leaves the device without work if it had none before.
    leaves_idle = 4,
    /// Leaves the device without work if it had none before.
    is_idle = true;
    /// The guest library may send it without waiting for the answer.
    may_post = 5,
    /// May be sent without waiting for the answer.
    is_postable = true;
    /// Never answers with the error of an earlier posted call.
    own_errors = 6,
    /// May answer with the error of an earlier posted call, as all of CUDA's calls may.
    reports_errors = false;
    /// Puts work on the GPU's processors: it counts where virtual machines share GPU time.
    gpu_work = 7,
    /// Puts work on the GPU's processors.
    is_gpu_work = true;
    /// Only queues work: neither waits, nor asks for memory, nor ends an object. Memory that the program has freed in stream
    /// order may stay with the guest library meanwhile.
    only_queues = 8,
    /// Only queues work.
    is_only_queued = true;
    /// Changes what launches do, or ends something that they use: limits, settings of functions, and the end of contexts and
    /// modules.
    changes_launches = 9,
    /// Changes what launches do.
    is_change_of_launches = true;
    /// Gives launches something that a node of a graph does not take from its stream or context.
    special_launches = 10,
    /// Gives launches something that a node of a graph does not have.
    makes_launches_special = true;
    /// Returns when all work of the current context has ended.
    waits_for_context = 11,
    /// Returns when all work of the current context has ended.
    is_wait_for_context = true;
}
