// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The contents of a row.

use std::ops::Range;

use crate::attributes::Descriptor;
use crate::expression::Expression;
use crate::roles::Roles;

/// A library of NVIDIA's.
#[derive(Debug)]
pub struct Library {
    /// `cublas`
    pub name: String,
    /// The file names that programs load (`libcublas.so.13`), the newest first.
    pub sonames: Vec<String>,
    /// Files that have some of its functions, too, under their own names.
    pub parts: Vec<Part>,
    /// Files that it loads by name, and that must be found before it.
    pub needs: Vec<String>,
    /// The numbers of its status type.
    pub statuses: Statuses,
    /// The kinds of its handles; a kind's number is the position here.
    pub handles: Vec<HandleKind>,
    /// The kinds of its descriptors; a kind's number is the position here.
    pub descriptors: Vec<Descriptor>,
    /// Its functions. A function's number on the wire is its position here.
    pub functions: Vec<Function>,
    /// A sum over the rows: guest and host must have the same ones.
    pub digest: u64,
}

/// A file that has some of a library's functions.
#[derive(Debug)]
pub struct Part {
    /// `libcudnn_ops.so.9`
    pub soname: String,
    /// The positions of its functions.
    pub functions: Range<usize>,
}

/// A kind of handle.
#[derive(Debug, Default)]
pub struct HandleKind {
    /// Its name in the rows.
    pub name: String,
    /// True if the type is an `int`, not a pointer.
    pub is_int: bool,
    /// Handles of this library's first kind are handles of this kind, too.
    pub or: Option<String>,
    /// All handles of the kind are those of another library: the names of that library and of the kind there.
    pub of: Option<(String, String)>,
    /// Bytes of the library's handle, if it is a structure in the caller's memory and not an address; else 0. The
    /// program's structure begins with our number.
    pub structure: usize,
    /// True if the library may fill in a new handle after the call that makes it has returned.
    pub is_late: bool,
    /// True if the library's use of a handle depends on an argument of the call that made it ([`Facts::birth`]).
    pub has_birth: bool,
    /// The names of numbers that both sides remember of a handle ([`Notes`]). A note's number is its position here.
    pub notes: Vec<String>,
}

/// The values of a library's status type that we answer by ourselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statuses {
    /// `…_STATUS_SUCCESS`
    pub success: i32,
    /// The library has not been initialised; also, an argument is not a handle.
    pub not_initialized: i32,
    /// Memory ran out.
    pub alloc_failed: i32,
    /// An argument is wrong.
    pub invalid_value: i32,
    /// The function is not served.
    pub not_supported: i32,
    /// Anything else.
    pub internal_error: i32,
    /// The call goes on after its return, if the library has a status for that.
    pub pending: Option<i32>,
}

impl Statuses {
    /// Returns whether a call that answered `status` has not failed.
    pub fn is_good(&self, status: i32) -> bool {
        status == self.success || self.pending == Some(status)
    }
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// Its exported name. A further form of a function has `@` and a word of its own after that.
    pub name: String,
    /// The implementation.
    pub body: Body,
}

impl Function {
    /// Returns the name of the function in the host's library.
    pub fn symbol(&self) -> &str {
        self.name.split('@').next().unwrap_or_default()
    }

    /// Returns whether this is a further form of a function that has another row, and is not exported by itself.
    pub fn is_form(&self) -> bool {
        self.name.contains('@')
    }
}

/// The implementation of a function.
#[derive(Debug)]
pub enum Body {
    /// Its arguments cross, and the host's library executes it.
    Forward(Box<Call>),
    /// It answers `not_supported`, for this reason.
    Refuse(String),
    /// It is written by hand.
    Custom,
}

/// A function that crosses.
#[derive(Debug)]
pub struct Call {
    /// Its parameters, in the order of C.
    pub parameters: Vec<Parameter>,
    /// The type of the result.
    pub answer: Answer,
    /// Further facts.
    pub facts: Facts,
    /// Numbers that are remembered of handles.
    pub notes: Notes,
    /// The roles that follow from all of these.
    pub roles: Roles,
}

/// A parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Its name, as in NVIDIA's manual.
    pub name: String,
    /// The kind of parameter.
    pub kind: Kind,
}

/// The kind of a parameter. Each takes one slot of 64 bits in the block of arguments ([`crate::block`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number by value.
    Value(Number),
    /// An address that only the GPU follows.
    Pointer,
    /// A `cudaStream_t`.
    Stream,
    /// A place for the `cudaStream_t` of the handle, which the guest knows.
    OutStream,
    /// The address of a `cudaStream_t`, which may be null.
    InStream,
    /// A handle.
    Handle {
        /// Its kind's number.
        kind: usize,
        /// True if it may be null.
        nullable: bool,
    },
    /// A place for a handle that the call makes.
    New(usize),
    /// A handle that the call destroys.
    End(usize),
    /// An address of host memory.
    Host(Host),
    /// An address of a scalar, in host or device memory as the handle's pointer mode says.
    Scalar {
        /// The sides that read and write it.
        direction: Direction,
        /// The type of an element.
        element: Element,
        /// The number of elements: `None` for one.
        count: Option<Expression>,
    },
    /// An address of `bytes` bytes, in host memory unless the parameter of index `place` is 0.
    Placed {
        /// The parameter that states the place.
        place: usize,
        /// Bytes.
        bytes: u32,
    },
    /// Host memory that the library uses for itself. It may be null. The worker has memory of its own for that.
    Scratch(Scratch),
    /// A number that is remembered of a handle. C has no such parameter: the guest fills it in, and the worker compares it with what
    /// it remembers itself.
    Noted(Note),
    /// The address of an array of addresses of host memory that the library reads.
    Arrays {
        /// The type of an element.
        element: Number,
        /// Elements of each array.
        count: Expression,
        /// The number of arrays.
        arrays: Expression,
    },
    /// A place for the address of host memory that the library allocates with `malloc`, and the program frees.
    Allocated {
        /// The type of an element.
        element: Number,
        /// The maximum number of elements.
        most: Expression,
        /// The parameter to which the library writes the number of elements. Without one, their number is `most`.
        count: Option<usize>,
    },
    /// A structure of this many bytes by value. They are more than 16, so it lies on the stack.
    Structure(u32),
    /// A place for the address of this many bytes of host memory that belong to the library and never change.
    Table(u32),
    /// A `cudaGraph_t`.
    Graph,
    /// The address of a descriptor ([`crate::attributes`]).
    Described {
        /// Its kind's number.
        kind: usize,
        /// True if it may be null.
        nullable: bool,
    },
    /// An address of the scalar alpha or beta, whose place and type a descriptor contains.
    DescribedScalar {
        /// The index of the descriptor's parameter.
        descriptor: usize,
        /// True for beta.
        is_beta: bool,
    },
    /// A C string.
    Text,
    /// cuDNN's factors: the address of a float, or of a double where the tensors are of doubles.
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
    /// The numbers that the library would follow without a check of its own.
    pub check: Option<Check>,
}

/// A rule for the numbers of an array that the library reads: `int`s, except for METIS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// They start at the index base, do not fall, and end `span` later: the row pointers of a matrix.
    Rising {
        /// The number of elements of the matrix.
        span: Expression,
        /// The matrix descriptor with the index base; `None` for 0.
        base: Option<usize>,
    },
    /// There are `limit` values, from the index base on. After row pointers these are the columns of a matrix: each occurs once
    /// per row.
    Below {
        /// The number of values.
        limit: Expression,
        /// The matrix descriptor with the index base; `None` for 0.
        base: Option<usize>,
    },
    /// Each index of the array occurs once.
    Permutation,
    /// The options of METIS, numbers of 64 bits: graphs are numbered from 0, as the library's are.
    Metis,
}

/// Host memory that a library uses for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// The parameter with the handle to which it belongs: its contents are kept between calls with that handle. `None`: the
    /// first handle of the call.
    pub owner: Option<usize>,
    /// Its length.
    pub bytes: ScratchBytes,
}

/// The length of a [`Scratch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScratchBytes {
    /// This many bytes.
    Counted(Expression),
    /// The result of the function with this number. This call has its parameters, by the same names, but for the place for the
    /// result.
    Asked(usize),
}

/// A number that both sides remember of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The parameter with the handle.
    pub handle: usize,
    /// The number of the note in [`HandleKind::notes`].
    pub note: usize,
}

/// The numbers of handles that a call depends on and changes. The library's lengths follow from earlier calls with the same handle,
/// so the worker must know them: it never believes the guest's.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// The call is refused unless the note has the value.
    pub needs: Vec<(Note, Expression)>,
    /// A call that succeeds leaves the value, in which `out` numbers count, too.
    pub takes: Vec<(Note, Expression)>,
    /// The call makes the note meaningless.
    pub forgets: Vec<Note>,
    /// The parameter with the handle whose matrix the worker remembers if the call succeeds: the arrays with the rules
    /// [`Check::Rising`] and [`Check::Below`], and the index base.
    pub keeps_pattern: Option<usize>,
    /// The parameter with the handle whose matrix must be the call's; otherwise the call is refused.
    pub needs_pattern: Option<usize>,
}

impl Notes {
    /// Returns all notes that a call changes, also if it fails.
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
        /// The positions of the addresses.
        nulls: [u32; 2],
    },
    /// GPU addresses.
    Pointer,
    /// Handles of this kind.
    Handle(usize),
    /// An element of the type in the parameter with this index, a `cudaDataType`.
    ByDataType(usize),
    /// An element of the type in the parameter with this index, a `cudnnBackendAttributeType_t`; handles and
    /// descriptors among them.
    ByAttribute(usize),
    /// The scalar type of a computation: the indices of a `cublasComputeType_t` and of a `cudaDataType`, which is
    /// complex or not.
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

/// A number of C.
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Its result matters at once.
    pub wait: bool,
    /// Its answer depends on the arguments only.
    pub pure: bool,
    /// It sets the pointer mode of its handle to its second argument.
    pub pointer_mode: bool,
    /// It sets the stream of its handle to its second argument.
    pub stream_of: bool,
    /// It sets something of its handle to its other arguments, and does nothing else.
    pub sets: bool,
    /// The function whose setting it also takes back.
    pub resets: Option<usize>,
    /// It returns the setting of the function with this number.
    pub gets: Option<usize>,
    /// Its new handle remembers the argument with this index.
    pub birth: Option<usize>,
    /// Its new handle remembers 1 + the ordinal of the current device, or the number that the first handle among
    /// the arguments remembers.
    pub on_device: bool,
    /// Its result matters at once, unless its first handle has this birth.
    pub wait_unless: Option<u64>,
    /// The worker lets the library make the described objects, and calls nothing else.
    pub makes: bool,
    /// The call changes the described object, which no other call may use afterwards. The library's values of its attributes are
    /// written to the parameter with this index.
    pub finds: Option<usize>,
    /// The library links code of the program, which may then print text.
    pub links_code: bool,
}
