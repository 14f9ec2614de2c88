// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The roles of parameters in each call of a function. They are computed once per row, not per call.

/// Indices of the parameters that have a role.
#[derive(Clone, Debug)]
pub struct Roles {
    /// The first handle; the call depends on its state.
    pub handle: Option<usize>,
    /// The stream, if it is sent.
    pub stream: Option<usize>,
    /// The pointer to the result for the stream of the handle.
    pub out_stream: Option<usize>,
    /// The pointer to the result for the address of a table.
    pub table: Option<usize>,
    /// The pointer to the handle that the call creates, and the handle's kind. A function creates at most one.
    pub new: Option<(usize, usize)>,
    /// Numbers by value.
    pub values: &'static [usize],
    /// Addresses that may be of device memory.
    pub addresses: &'static [usize],
    /// Parameters whose slot may differ from the argument, with descriptors first: slots of scalars depend on theirs.
    pub encoded: &'static [usize],
    /// Handles that the call uses.
    pub handles: &'static [usize],
    /// Handles that the call destroys.
    pub ends: &'static [usize],
    /// Host memory that the library reads or writes.
    pub memory: &'static [usize],
    /// Memory that the library reads.
    pub reads: &'static [usize],
    /// Memory that the library writes.
    pub writes: &'static [usize],
    /// Memory that the library reads and then writes.
    pub changes: &'static [usize],
    /// Memory whose contents are checked ([`crate::Check`]).
    pub checked: &'static [usize],
    /// Memory that the library allocates.
    pub allocated: &'static [usize],
    /// Numbers that are stored for a handle.
    pub noted: &'static [usize],
    /// Numbers that follow from other arguments.
    pub measured: &'static [usize],
    /// True if the caller must wait: the program reads host memory that the call writes, or the result matters at once.
    pub answers: bool,
    /// True if what is sent of the call follows from the arguments and the state of its handle, except for scalars in host memory,
    /// and the program need not wait for it.
    pub is_plain: bool,
}

impl Roles {
    /// The roles of no parameters.
    pub const NONE: Self = Self {
        handle: None,
        stream: None,
        out_stream: None,
        table: None,
        new: None,
        values: &[],
        addresses: &[],
        encoded: &[],
        handles: &[],
        ends: &[],
        memory: &[],
        reads: &[],
        writes: &[],
        changes: &[],
        checked: &[],
        allocated: &[],
        noted: &[],
        measured: &[],
        answers: false,
        is_plain: false,
    };
}
