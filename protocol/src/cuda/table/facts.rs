// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Facts about calls, in brackets behind a row's results: `[creates idle same prints no_context]`.
//!
//! The first four words say what the call does to the session's state ([`State`]), to the work of the device ([`Work`]), to
//! launches ([`Launches`]) and to the text that device code prints ([`Text`]). Recipes of objects, order, waits and output depend
//! on them, and no default would be right for every call: `cargo xtask generate` refuses a row without one of them. Further
//! words may follow whose absence is safe: the call needs a current context and the device's memory, and is waited for.

/// The effect of a call on the session's state. A session that is saved and restored must have the same state again. Queued work
/// is not state, because all of it is done before a session is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Makes an object, memory or a mapping, a further hold on one, or a name for a part of one.
    Creates(Makes),
    /// Ends one, or gives a hold back.
    Ends,
    /// Changes a setting of an object, of a context or of the session.
    Sets(Getter),
    /// Changes contents only: memory, an event's latest record, a capture and its graph, or text, recordings and results that are read once.
    Writes,
    /// Changes nothing that a program could find again.
    Nothing,
    /// Calls a function of one of NVIDIA's libraries, whose own row says it.
    Library,
}

/// The thing that a call makes, or that gets a further part, name or hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makes {
    /// The object that the input or result of this name identifies.
    Named(&'static str),
    /// Memory, a mapping or addresses. The worker's tables of memory have all that is needed to make it again.
    Addresses,
    /// Something that the same call cannot make again. The text says why.
    Never(&'static str),
}

/// The call that returns a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Getter {
    /// The call of this name.
    Call(&'static str),
    /// No call returns the setting. The text says why.
    None(&'static str),
}

/// What a call does to the work of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Returns when all work of the current context has ended.
    Waits,
    /// Leaves the device without work if it had none before.
    Idle,
    /// Runs no kernel. It may queue something else, wait, ask for memory, or end an object.
    Other,
    /// Works on graphs or captures: only the driver's own waiting ends what comes of it.
    Graphs,
    /// Puts work of the driver's own on the GPU's processors, and may wait.
    Fills,
    /// Puts kernels on the GPU's processors, and may wait.
    Kernels,
    /// Only queues a copy: neither waits, nor asks for memory, nor ends an object. Memory that the program has freed in stream
    /// order may stay with the guest library meanwhile.
    QueuesCopy,
    /// Only queues work of the driver's own for the GPU's processors.
    QueuesFill,
    /// Only queues kernels.
    QueuesKernel,
}

/// What a call does to launches that come after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    /// Nothing.
    Same,
    /// Changes what they do, or ends something that they use: limits, settings of functions, and the end of contexts and modules.
    Changes,
    /// Gives them something that a node of a graph does not take from its stream or context.
    Special,
}

/// What a call does to the text that device code prints. The driver prints what device code left in its buffer at launches, waits
/// and copies, and when modules and contexts are created and destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Nothing: it neither runs nor loads device code.
    Silent,
    /// The driver may print: there may be more text after the call. It neither runs nor loads device code.
    Prints,
    /// It may run or load device code, whose text comes later.
    Code,
    /// Both.
    CodePrints,
}

/// The facts of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the call does to the session's state.
    pub state: State,
    work: Work,
    launches: Launches,
    text: Text,
    needs_context: bool,
    needs_memory: bool,
    may_post: bool,
}

impl Facts {
    /// The facts of a row without further words.
    pub const fn new(state: State, work: Work, launches: Launches, text: Text) -> Self {
        Self { state, work, launches, text, needs_context: true, needs_memory: true, may_post: false }
    }
    /// Works without a current context, also when that has just been destroyed.
    #[must_use]
    pub const fn no_context(self) -> Self {
        Self { needs_context: false, ..self }
    }
    /// Needs no contents of the device's memory, and starts no work: the driver answers it, or the worker's tables, and one that waits
    /// for work returns once that has ended. Calls for which others of the program may wait must be among these.
    #[must_use]
    pub const fn no_memory(self) -> Self {
        Self { needs_memory: false, ..self }
    }
    /// The guest library may send it without waiting for the answer.
    #[must_use]
    pub const fn may_post(self) -> Self {
        Self { may_post: true, ..self }
    }
    /// Works in the current context.
    pub const fn needs_context(self) -> bool {
        self.needs_context
    }
    /// Brings the memory of a suspended session back.
    pub const fn needs_memory(self) -> bool {
        self.needs_memory
    }
    /// May be sent without waiting for the answer.
    pub const fn is_postable(self) -> bool {
        self.may_post
    }
    /// Returns when all work of the current context has ended.
    pub const fn is_wait_for_context(self) -> bool {
        matches!(self.work, Work::Waits)
    }
    /// Leaves the device without work if it had none before.
    pub const fn is_idle(self) -> bool {
        matches!(self.work, Work::Idle | Work::Waits)
    }
    /// Starts work that only the driver's own waiting ends.
    pub const fn is_work(self) -> bool {
        matches!(self.work, Work::Graphs | Work::Kernels | Work::QueuesKernel)
    }
    /// Only queues work.
    pub const fn is_only_queued(self) -> bool {
        matches!(self.work, Work::QueuesCopy | Work::QueuesFill | Work::QueuesKernel)
    }
    /// Changes what launches do.
    pub const fn is_change_of_launches(self) -> bool {
        !matches!(self.launches, Launches::Same)
    }
    /// Gives launches something that a node of a graph does not have.
    pub const fn makes_launches_special(self) -> bool {
        matches!(self.launches, Launches::Special)
    }
    /// Runs or loads device code.
    pub const fn runs_code(self) -> bool {
        matches!(self.text, Text::Code | Text::CodePrints)
    }
    /// The output of device code may have grown after the call.
    pub const fn prints(self) -> bool {
        matches!(self.text, Text::Prints | Text::CodePrints)
    }
}
