// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Recognises NVIDIA's static CUDA runtime in machine code without symbols.
//!
//! `libcudart_static.a` is one object file with one section of code, which a linker copies as a whole: its functions keep
//! their order and, but for the operands that the linker fills in, their bytes. A [`Release`] has the public functions of
//! one archive: place, size, a digest of the bytes, and which bytes are the linker's. [`Sections`] looks for them in the code
//! of an object. Only a release all of whose functions are there counts, so a match is certain; some of NVIDIA's own
//! libraries have a build of the runtime in which a few internal functions are longer or shorter, so distances between
//! functions may differ.
//!
//! The releases are data (`releases/*.txt`), which `cargo xtask signatures` makes from NVIDIA's archives.

mod body;
mod file;
mod find;
mod release;

pub use body::{Body, ParseError};
pub use file::{IMPORTS, InFile, Sections};
pub use find::{Found, Nearest};
pub use release::{Anchor, Function, Release, all, looks_public};

/// Functions of the runtime begin at multiples of this, in the archive and in every object.
pub const ALIGNMENT: usize = 16;
/// Bytes of an anchor.
pub const ANCHOR_BYTES: usize = 16;
