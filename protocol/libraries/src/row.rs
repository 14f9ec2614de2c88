// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The contents of a row.

use std::ops::Range;

use crate::attributes::Descriptor;
use crate::expression::Expression;
use crate::roles::Roles;

/// The maximum number of functions of a library, and the limit of their numbers on the wire.
pub const MAX_FUNCTIONS: u32 = NO_FUNCTION as u32;
/// Stands for a number without a function in [`Library::positions`].
pub const NO_FUNCTION: u16 = u16::MAX;

/// One of NVIDIA's libraries.
#[derive(Debug)]
pub struct Library {
    /// For example `cublas`.
    pub name: &'static str,
    /// The number on the wire, which never changes.
    pub number: u32,
    /// The file names that programs load (`libcublas.so.13`), with the newest first.
    pub sonames: &'static [&'static str],
    /// Files that have some of its functions, too, under their own names.
    pub parts: &'static [Part],
    /// Files that it loads by name, and that must be found before it.
    pub needs: &'static [&'static str],
    /// The values of the library's status type.
    pub statuses: Statuses,
    /// The kinds of handles; a kind's number is its position here.
    pub handles: &'static [HandleKind],
    /// The kinds of descriptors; a kind's number is its position here.
    pub descriptors: &'static [Descriptor],
    /// The functions, in the order of the file. Parts of a row that refer to a function have its position here.
    pub functions: &'static [Function],
    /// The positions of functions by their numbers on the wire; [`NO_FUNCTION`] for a number without one. Empty if each
    /// function's number is its position.
    pub positions: &'static [u16],
}

impl Library {
    /// Returns the position of the function with this number on the wire.
    pub fn numbered(&self, number: u32) -> Option<usize> {
        if self.positions.is_empty() {
            return ((number as usize) < self.functions.len()).then_some(number as usize);
        }
        let position = *self.positions.get(number as usize)?;
        (position != NO_FUNCTION).then_some(usize::from(position))
    }

    /// Returns the digests of the functions by their numbers on the wire, from 0; 0 for a number without a function.
    pub fn digests(&self) -> impl Iterator<Item = u64> {
        let numbers = if self.positions.is_empty() { self.functions.len() } else { self.positions.len() };
        (0..numbers as u32).map(|number| self.numbered(number).map_or(0, |at| self.functions[at].digest))
    }
}

/// A file that has some of a library's functions.
#[derive(Debug)]
pub struct Part {
    /// `libcudnn_ops.so.9`
    pub soname: &'static str,
    /// The positions of its functions.
    pub functions: Range<usize>,
}

/// A kind of handle.
#[derive(Debug, Default)]
pub struct HandleKind {
    /// Name of the kind in the rows.
    pub name: &'static str,
    /// True if the C type is an `int` instead of a pointer.
    pub is_int: bool,
    /// If set, handles of this library's first kind are accepted as handles of this kind, too.
    pub or: Option<&'static str>,
    /// If set, all handles of the kind belong to another library: the names of that library and of the kind there.
    pub of: Option<(&'static str, &'static str)>,
    /// Bytes of the library's handle, if it is a structure in the caller's memory instead of an address; else 0. The
    /// program's structure begins with our number.
    pub structure: usize,
    /// True if the library may fill in a new handle after the call that creates it has returned.
    pub is_late: bool,
    /// True if the library's treatment of a handle depends on an argument of the call that created it
    /// ([`Facts::birth`]).
    pub has_birth: bool,
    /// True if calls with such a handle queue work in its stream, or in one that they name. Handles of other kinds describe
    /// something.
    pub works: bool,
    /// The names of numbers that both sides store for a handle ([`Notes`]). A note's number is its position here.
    pub notes: &'static [&'static str],
}

/// The values of a library's status type that this project returns itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statuses {
    /// `…_STATUS_SUCCESS`
    pub success: i32,
    /// The library has not been initialised, or an argument is not a handle.
    pub not_initialized: i32,
    /// Memory ran out.
    pub alloc_failed: i32,
    /// An argument is wrong.
    pub invalid_value: i32,
    /// The function is not supported.
    pub not_supported: i32,
    /// Any other error.
    pub internal_error: i32,
    /// The call continues after its return, if the library has a status for that.
    pub pending: Option<i32>,
}

impl Statuses {
    /// Returns whether `status` is not an error.
    pub fn is_good(&self, status: i32) -> bool {
        status == self.success || self.pending == Some(status)
    }
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// The exported name. The name of a variant has `@` and a further word at its end.
    pub name: &'static str,
    /// The number on the wire, which never changes.
    pub number: u32,
    /// A digest of the row and of the kinds of handles and descriptors that it refers to. Guest and host use a function only if
    /// they have it in common. Not 0.
    pub digest: u64,
    /// The effect of a call on the session's state.
    pub effect: Effect,
    /// The implementation.
    pub body: Body,
}

/// The effect of a call on the session's state. A session that is saved and restored must have the same state again. For a call
/// with several effects, the first one in this list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Makes an object.
    Creates,
    /// Ends one.
    Ends,
    /// Changes an object, or a setting of the library: another call may behave differently afterwards.
    Sets(Getter),
    /// Changes the contents of memory only.
    Writes,
    /// Changes nothing.
    Nothing,
}

/// The call that returns a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Getter {
    /// The function of this name.
    Function(&'static str),
    /// No function returns the setting. The text says why.
    None(&'static str),
}

impl Function {
    /// Returns the name of the function in the host's library.
    pub fn symbol(&self) -> &'static str {
        self.name.split('@').next().unwrap_or_default()
    }

    /// Returns whether this is a variant of a function that has another row, and is not exported itself.
    pub fn is_form(&self) -> bool {
        self.name.contains('@')
    }
}

/// The implementation of a function.
#[derive(Debug)]
pub enum Body {
    /// The arguments are sent to the worker, and the host's library executes the function.
    Forward(&'static Call),
    /// The function returns `not_supported`, for this reason.
    Refuse(&'static str),
    /// The function is hand-written.
    Custom,
}

/// A function whose calls are sent to the worker.
#[derive(Debug)]
pub struct Call {
    /// Parameters, in C order.
    pub parameters: &'static [Parameter],
    /// The type of the result.
    pub answer: Answer,
    /// Further facts.
    pub facts: Facts,
    /// Changes of the numbers that are stored for handles.
    pub notes: Notes,
    /// The roles that follow from the fields above.
    pub roles: Roles,
}

/// The maximum number of parameters of a function.
pub const MAX_PARAMETERS: usize = 40;

/// A parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Name, as in NVIDIA's manual.
    pub name: &'static str,
    /// The kind of parameter.
    pub kind: Kind,
    /// Bytes of its memory in a block, if they do not depend on other arguments.
    pub bytes: Option<usize>,
}

impl Parameter {
    /// Returns the parameter with this name and kind.
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        let bytes = kind.fixed_bytes();
        Self { name, kind, bytes }
    }
}

/// The kind of a parameter. Each takes one slot of 64 bits in the block of arguments ([`crate::block`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number by value.
    Value(Number),
    /// An address that only the GPU dereferences.
    Pointer,
    /// A `cudaStream_t`.
    Stream,
    /// A pointer to a `cudaStream_t` result: the stream of the handle, which the guest knows.
    OutStream,
    /// The address of a `cudaStream_t`, which may be null.
    InStream,
    /// A handle.
    Handle {
        /// Number of the handle's kind.
        kind: usize,
        /// True if it may be null.
        nullable: bool,
    },
    /// A pointer to a handle that the call creates.
    New(usize),
    /// A handle that the call destroys.
    End(usize),
    /// An address of host memory.
    Host(&'static Host),
    /// An address of a scalar, in host or device memory according to the handle's pointer mode.
    Scalar {
        /// The sides that read and write it.
        direction: Direction,
        /// The type of an element.
        element: Element,
        /// The number of elements: `None` for one.
        count: Option<Expression>,
    },
    /// An address of `bytes` bytes, in host memory unless the parameter with index `place` is 0.
    Placed {
        /// The parameter that selects host or device memory.
        place: usize,
        /// Bytes.
        bytes: u32,
    },
    /// Host memory that the library uses as its workspace. It may be null. The worker uses its own memory instead.
    Scratch(Scratch),
    /// A number that is stored for a handle. C has no such parameter: the guest fills it in, and the worker compares it
    /// with the number that it has stored itself.
    Noted(Note),
    /// A number that follows from other arguments. C has no such parameter: the guest fills it in, and the worker
    /// measures it itself.
    Measured(Measure),
    /// The address of an array of addresses of host memory that the library reads.
    Arrays {
        /// The type of an element.
        element: Number,
        /// Elements of each array.
        count: Expression,
        /// The number of arrays.
        arrays: Expression,
    },
    /// A pointer to the address of host memory that the library allocates with `malloc`, and the program frees.
    Allocated {
        /// The type of an element.
        element: Number,
        /// The maximum number of elements.
        most: Expression,
        /// The parameter to which the library writes the number of elements. Without it, the number is `most`.
        count: Option<usize>,
    },
    /// A structure of this many bytes by value. They are more than 16, so it is passed on the stack.
    Structure(u32),
    /// A pointer to the address of this many bytes of host memory that belong to the library and never change.
    Table(u32),
    /// A `cudaGraph_t`.
    Graph,
    /// The address of a descriptor ([`crate::attributes`]).
    Described {
        /// Number of the descriptor's kind.
        kind: usize,
        /// True if it may be null.
        nullable: bool,
    },
    /// An address of the scalar alpha or beta. A descriptor contains its type, and whether it is in host memory.
    DescribedScalar {
        /// The index of the descriptor's parameter.
        descriptor: usize,
        /// True for beta.
        is_beta: bool,
    },
    /// A C string.
    Text,
    /// cuDNN's scaling factors: the address of a float, or of a double if the tensors consist of doubles.
    Scaling,
}

/// Host memory that a parameter points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The sides that read and write it.
    pub direction: Direction,
    /// True if the address may be null.
    pub nullable: bool,
    /// The type of an element.
    pub element: Element,
    /// The number of elements: `None` for one.
    pub count: Option<Expression>,
    /// The minimum number of elements for which the worker has memory. Those behind the guest's are 0.
    pub room: Option<Expression>,
    /// The check of numbers that the library would use as indices without checking them.
    pub check: Option<Check>,
}

/// A rule for the numbers of an array that the library reads. They are `int`s, except for METIS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The numbers start at the index base, do not decrease, and end `span` later: the row pointers of a matrix.
    Rising {
        /// The number of elements of the matrix.
        span: Expression,
        /// The matrix descriptor with the index base; `None` for 0.
        base: Option<usize>,
    },
    /// The numbers are one of `limit` values, from the index base on. After row pointers these are the columns of a
    /// matrix: each occurs once per row.
    Below {
        /// The number of values.
        limit: Expression,
        /// The matrix descriptor with the index base; `None` for 0.
        base: Option<usize>,
    },
    /// Each index of the array occurs once.
    Permutation,
    /// The options of METIS, 64-bit numbers: graphs must be numbered from 0, as the library's are.
    Metis,
}

/// Host memory that a library uses as its workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// The parameter with the handle to which it belongs: its contents are kept between calls with that handle. `None`
    /// selects the first handle of the call.
    pub owner: Option<usize>,
    /// Length of the memory.
    pub bytes: ScratchBytes,
}

/// The length of a [`Scratch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScratchBytes {
    /// This many bytes: a number that is stored for a handle.
    Counted(Expression),
    /// The last result of the function with this number. This call has the parameters of that function, by the same names,
    /// except the places of results.
    Asked(usize),
    /// This many bytes, which must not be fewer than the last result of the function with this number.
    Checked(Expression, usize),
}

/// The origin of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The library is asked for it.
    Asked(Asked),
    /// The sum of the numbers in the array of the parameter with this index. None of them is negative.
    Sum(usize),
}

/// A number that a function of the library writes for a handle: a property of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The parameter with the handle.
    pub handle: usize,
    /// The function.
    pub function: usize,
    /// The parameter of the function to which it writes the number.
    pub result: usize,
    /// The position of the number there.
    pub element: usize,
}

/// A number that both sides store for a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The parameter with the handle.
    pub handle: usize,
    /// The number of the note in [`HandleKind::notes`].
    pub note: usize,
}

/// The numbers of handles that a call depends on and changes. Lengths that the library uses follow from earlier calls
/// with the same handle. The worker must therefore know them: it never trusts the guest's.
#[derive(Clone, Debug)]
pub struct Notes {
    /// The call is refused unless the note has this value.
    pub needs: &'static [(Note, Expression)],
    /// A successful call sets the note to this value, which may refer to `out` numbers, too.
    pub takes: &'static [(Note, Expression)],
    /// The call invalidates the note.
    pub forgets: &'static [Note],
    /// The parameter with the handle for which the worker stores the matrix if the call succeeds: the arrays with the
    /// rules [`Check::Rising`] and [`Check::Below`], and the index base.
    pub keeps_pattern: Option<usize>,
    /// The parameter with the handle whose stored matrix must equal the call's; otherwise the call is refused.
    pub needs_pattern: Option<usize>,
}

impl Notes {
    /// The notes of a call that neither depends on such numbers nor changes them.
    pub const NONE: Self =
        Self { needs: &[], takes: &[], forgets: &[], keeps_pattern: None, needs_pattern: None };

    /// Returns all notes that a call changes, even if it fails.
    pub fn changed(&self) -> impl Iterator<Item = Note> {
        self.takes.iter().map(|(note, _)| *note).chain(self.forgets.iter().copied())
    }
}

/// The type of elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Numbers.
    Number(Number),
    /// Structures of this many bytes.
    Bytes(u32),
    /// A structure whose first 8 bytes are its length. The worker sets the addresses in it to null.
    Sized {
        /// Its maximum length.
        bytes: u32,
        /// The offsets of the addresses.
        nulls: [u32; 2],
    },
    /// GPU addresses.
    Pointer,
    /// Handles of this kind.
    Handle(usize),
    /// An element of the type in the parameter with this index, a `cudaDataType`.
    ByDataType(usize),
    /// An element of the type in the parameter with this index, a `cudnnBackendAttributeType_t`, which may be a handle
    /// or a descriptor.
    ByAttribute {
        /// The parameter with the attribute's number.
        name: usize,
        /// The parameter with the type.
        kind: usize,
    },
    /// The scalar type of a computation: the indices of a `cublasComputeType_t` and of a `cudaDataType`, which says
    /// whether it is complex.
    ByCompute {
        /// `cublasComputeType_t`
        compute: usize,
        /// `cudaDataType`
        data: usize,
    },
}

/// The direction of memory: the sides that read and write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The library reads.
    In,
    /// The library writes.
    Out,
    /// Both.
    InOut,
}

impl Kind {
    /// Returns whether this is the place of one number, of at most 8 bytes, that a function writes.
    pub fn is_answer(&self) -> bool {
        let Self::Host(Host { direction, element: Element::Number(number), count: None, .. }) = self else {
            return false;
        };
        direction.writes() && number.bytes() <= size_of::<u64>()
    }

    /// Returns the direction of the memory that a parameter of this kind points to.
    pub fn direction(&self) -> Option<Direction> {
        match self {
            Self::Host(Host { direction, .. }) | Self::Scalar { direction, .. } => Some(*direction),
            Self::Scaling
            | Self::Text
            | Self::Described { .. }
            | Self::DescribedScalar { .. }
            | Self::Placed { .. }
            | Self::Arrays { .. }
            | Self::Structure(_) => Some(Direction::In),
            Self::Table(_) | Self::Allocated { .. } => Some(Direction::Out),
            _ => None,
        }
    }
}

impl Direction {
    /// Returns whether the library reads the memory.
    pub fn reads(self) -> bool {
        self != Self::Out
    }
    /// Returns whether the library writes the memory.
    pub fn writes(self) -> bool {
        self != Self::In
    }
}

/// A C number type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// `signed char`
    I8,
    /// `unsigned char`
    U8,
    /// `short`
    I16,
    /// `unsigned short`
    U16,
    /// `int`, and every enum
    I32,
    /// `unsigned`
    U32,
    /// `int64_t`
    I64,
    /// `size_t`
    U64,
    /// `float`
    F32,
    /// `double`
    F64,
    /// `cuComplex`
    C32,
    /// `cuDoubleComplex`
    C64,
}

/// The type of a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The library's status.
    Status,
    /// A number.
    Number(Number),
    /// A C string that lives as long as the library.
    Text,
    /// Nothing.
    Nothing,
}

/// Facts about a function.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The caller must wait for the result.
    pub wait: bool,
    /// The result depends on the arguments only.
    pub pure: bool,
    /// The function sets the pointer mode of its handle to its second argument.
    pub pointer_mode: bool,
    /// The function sets the stream of its handle to its second argument.
    pub stream_of: bool,
    /// The function sets a property of its handle to its other arguments, and does nothing else.
    pub sets: bool,
    /// The function whose setting this call also reverts.
    pub resets: Option<usize>,
    /// The function returns the setting of the function with this number.
    pub gets: Option<usize>,
    /// The new handle stores the argument with this index.
    pub birth: Option<usize>,
    /// The new handle stores 1 + the ordinal of the current device, or the number that the first handle among the
    /// arguments stores.
    pub on_device: bool,
    /// The caller must wait for the result, unless the first handle has this birth.
    pub wait_unless: Option<u64>,
    /// The worker makes the library create the described objects, and calls nothing else.
    pub makes: bool,
    /// The call changes the described object, which no other call may use afterwards. The library's values of its
    /// attributes are written to the parameter with this index.
    pub finds: Option<usize>,
    /// The library links the program's code, which may then print text.
    pub links_code: bool,
    /// The library may read the call's host memory until it destroys the handle of the argument with this index.
    pub lends: Option<usize>,
    /// The library may copy host memory in the stream. A graph would do so on each launch, after the call has ended.
    pub uncaptured: bool,
}

impl Facts {
    /// No facts.
    pub const NONE: Self = Self {
        wait: false,
        pure: false,
        pointer_mode: false,
        stream_of: false,
        sets: false,
        resets: None,
        gets: None,
        birth: None,
        on_device: false,
        wait_unless: None,
        makes: false,
        finds: None,
        links_code: false,
        lends: None,
        uncaptured: false,
    };
}

impl Host {
    /// The address of a byte that the library reads.
    pub const NONE: Self = Self {
        direction: Direction::In,
        nullable: false,
        element: Element::Bytes(1),
        count: None,
        room: None,
        check: None,
    };
}

impl HandleKind {
    /// A kind of plain handles without a name.
    pub const NONE: Self = Self {
        name: "",
        is_int: false,
        or: None,
        of: None,
        structure: 0,
        is_late: false,
        has_birth: false,
        works: false,
        notes: &[],
    };
}
