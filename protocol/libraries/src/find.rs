// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Finds a library in the tables.

use crate::{LIBRARIES, Library};

/// Number of libraries.
pub const COUNT: usize = LIBRARIES.len();

/// Returns all libraries, in the order of their numbers on the wire.
pub fn libraries() -> impl Iterator<Item = &'static Library> {
    LIBRARIES.iter().copied()
}

/// Returns the library with this number on the wire.
pub fn library_of(number: usize) -> Option<&'static Library> {
    LIBRARIES.get(number).copied()
}

/// Returns number and description of the library with this name (`cublas`).
pub fn library(name: &str) -> Option<(u32, &'static Library)> {
    let number = LIBRARIES.iter().position(|library| library.name == name)?;
    Some((number as u32, LIBRARIES[number]))
}
