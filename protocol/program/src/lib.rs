// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program that a library of this project is loaded into.

mod library;
mod text;

pub use library::Library;
pub use text::{MAX_TEXT_BYTES, text};
