// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a module for the driver API, and the reason for which a module is refused.

use thiserror::Error;

/// An entry point and its resource needs.
#[derive(Debug, Clone, Default)]
pub struct Kernel {
    /// The (mangled) name.
    pub name: String,
    /// The parameters in order. Their offsets are those in the parameter buffer of cuLaunchKernel.
    pub params: Vec<Param>,
    /// Bytes of the parameter buffer.
    pub param_bytes: u32,
    /// Bytes of statically declared shared memory that the kernel and its callees use.
    pub static_shared: u32,
    /// An estimate of the 32-bit registers that hardware would use, 8..=64.
    pub registers: u32,
    /// The maximum number of threads per block (`.maxntid`, `.reqntid`), 1024 when not stated.
    pub max_threads: u32,
    /// Bytes of local memory that each thread needs, without those of functions that it calls.
    pub local_bytes: u32,
    /// The number of blocks of a cluster in each dimension (`.reqnctapercluster`).
    pub cluster: Option<[u32; 3]>,
    /// True if the kernel, or a function that it calls by name, launches kernels.
    pub launches_kernels: bool,
    /// True if the kernel, or a function that it calls by name, launches graphs.
    pub launches_graphs: bool,
    /// PTX ISA version times ten, 90 for 9.0.
    pub ptx_version: u32,
    /// The compute capability of `.target` times ten, 90 for sm_90.
    pub target: u32,
}

/// A kernel parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Offset in the parameter buffer, bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// The state space of a module variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// `.global`
    Global,
    /// `.const`
    Const,
}

/// A module variable.
#[derive(Debug, Clone)]
pub struct Global {
    /// The (mangled) name.
    pub name: String,
    /// The state space.
    pub space: Space,
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// The initial bytes, shorter than `bytes` when the rest is zero. Use [`super::Program::image`], which applies relocations.
    pub init: Vec<u8>,
    /// The parts of the initial value that are addresses.
    pub relocations: Vec<Relocation>,
    /// True for `.attribute(.managed)`: the host reads and writes the variable, too.
    pub managed: bool,
    /// The kind of a `.texref` or `.surfref`. Such a variable is not visible to the host. It represents the texture
    /// or surface that the host binds to it, which kernels find by the variable's address ([`crate::texture`]).
    pub reference: Option<Reference>,
}

/// The kind of object that a reference names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// A texture.
    Texture,
    /// A surface.
    Surface,
}

/// An initial value that is an address. It is known only after the variables have got memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// The offset in the variable, in bytes.
    pub offset: u64,
    /// The number of bytes of the value that are stored there, from bit `shift` on.
    pub size: u8,
    /// The first bit of the value that is stored.
    pub shift: u8,
    /// The object whose address is stored.
    pub target: Target,
    /// The offset that is added to the address.
    pub addend: i64,
}

/// The target of a [`Relocation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An entry of [`super::Program::globals`].
    Global(usize),
    /// A function with this address.
    Function(u64),
}

/// The reason for which a module was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct LoadError {
    /// The line of the PTX text, from 1; 0 if the error concerns the whole module.
    pub line: u32,
    /// The fault, with the name of the instruction or symbol.
    pub message: String,
    /// The kind of error, which selects the error code.
    pub kind: LoadErrorKind,
}

/// The kinds of [`LoadError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadErrorKind {
    /// Not PTX (CUDA_ERROR_INVALID_PTX).
    Syntax,
    /// PTX that this device does not execute (CUDA_ERROR_INVALID_PTX or CUDA_ERROR_NOT_SUPPORTED).
    Unsupported,
    /// A symbol without definition (CUDA_ERROR_INVALID_PTX, the error of the driver's linker).
    Unresolved,
}
