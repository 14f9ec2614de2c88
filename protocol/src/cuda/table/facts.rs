// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Facts about calls, in brackets behind a row's results: `[idle same prints no_context]`.
//!
//! The first three words say what the call does to the work of the device ([`Work`]), to launches ([`Launches`]) and to the text
//! that device code prints ([`Text`]). Order, waits and output depend on them, and no default would be right for every call:
//! a row without one of them does not compile. Further words may follow whose absence is safe: the call needs a
//! current context, and is waited for.

/// What a call does to the work of the device.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Returns when all work of the current context has ended.
    waits,
    /// Leaves the device without work if it had none before.
    idle,
    /// Runs no kernel. It may queue something else, wait, ask for memory, or end an object.
    other,
    /// Works on graphs or captures: only the driver's own waiting ends what comes of it.
    graphs,
    /// Puts work of the driver's own on the GPU's processors, and may wait.
    fills,
    /// Puts kernels on the GPU's processors, and may wait.
    kernels,
    /// Only queues a copy: neither waits, nor asks for memory, nor ends an object. Memory that the program has freed in stream
    /// order may stay with the guest library meanwhile.
    queues_copy,
    /// Only queues work of the driver's own for the GPU's processors.
    queues_fill,
    /// Only queues kernels.
    queues_kernel,
}

/// What a call does to launches that come after it.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    /// Nothing.
    same,
    /// Changes what they do, or ends something that they use: limits, settings of functions, and the end of contexts and modules.
    changes,
    /// Gives them something that a node of a graph does not take from its stream or context.
    special,
}

/// What a call does to the text that device code prints. The driver prints what device code left in its buffer at launches, waits
/// and copies, and when modules and contexts are created and destroyed.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Nothing: it neither runs nor loads device code.
    silent,
    /// The driver may print: there may be more text after the call. It neither runs nor loads device code.
    prints,
    /// It may run or load device code, whose text comes later.
    code,
    /// Both.
    code_prints,
}

/// The facts of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    work: Work,
    launches: Launches,
    text: Text,
    words: u8,
}

macro_rules! words {
    ($($(#[$doc:meta])* $word:ident = $bit:literal, $(#[$query_doc:meta])* $query:ident = $set:literal;)*) => {
        impl Facts {
            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $word(self) -> Self {
                    Self { words: self.words | 1 << $bit, ..self }
                }
                $(#[$query_doc])*
                pub const fn $query(self) -> bool {
                    (self.words & 1 << $bit != 0) == $set
                }
            )*
        }
    };
}

words! {
    /// Works without a current context, also when that has just been destroyed.
    no_context = 0,
    /// Works in the current context.
    needs_context = false;
    /// The guest library may send it without waiting for the answer.
    may_post = 1,
    /// May be sent without waiting for the answer.
    is_postable = true;
}

impl Facts {
    /// The facts of a row without further words.
    pub const fn new(work: Work, launches: Launches, text: Text) -> Self {
        Self { work, launches, text, words: 0 }
    }
    /// Returns when all work of the current context has ended.
    pub const fn is_wait_for_context(self) -> bool {
        matches!(self.work, Work::waits)
    }
    /// Leaves the device without work if it had none before.
    pub const fn is_idle(self) -> bool {
        matches!(self.work, Work::idle | Work::waits)
    }
    /// Starts work that only the driver's own waiting ends.
    pub const fn is_work(self) -> bool {
        matches!(self.work, Work::graphs | Work::kernels | Work::queues_kernel)
    }
    /// Puts work on the GPU's processors: it counts where virtual machines share GPU time.
    pub const fn is_gpu_work(self) -> bool {
        matches!(self.work, Work::fills | Work::queues_fill | Work::kernels | Work::queues_kernel)
    }
    /// Only queues work.
    pub const fn is_only_queued(self) -> bool {
        matches!(self.work, Work::queues_copy | Work::queues_fill | Work::queues_kernel)
    }
    /// Changes what launches do.
    pub const fn is_change_of_launches(self) -> bool {
        !matches!(self.launches, Launches::same)
    }
    /// Gives launches something that a node of a graph does not have.
    pub const fn makes_launches_special(self) -> bool {
        matches!(self.launches, Launches::special)
    }
    /// Runs or loads device code.
    pub const fn runs_code(self) -> bool {
        matches!(self.text, Text::code | Text::code_prints)
    }
    /// The output of device code may have grown after the call.
    pub const fn prints(self) -> bool {
        matches!(self.text, Text::prints | Text::code_prints)
    }
}
