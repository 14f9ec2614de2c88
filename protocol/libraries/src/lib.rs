// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The public functions of NVIDIA's libraries (cuBLAS, cuDNN, …), described once.
//!
//! Each library has a file in `rows/`, with a line for each function ([`parse`] documents its form). The guest's
//! entry points ([`generate`]), the encoding of arguments ([`block`]), the worker's checks and the tables in `docs/` are all
//! made from these rows. This crate does no I/O: the files are compiled in.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod block;
pub mod expression;
pub mod generate;
mod numbers;
pub mod parse;
mod row;

use std::sync::LazyLock;

pub use row::{
    Answer, Body, Call, Check, Direction, Element, Facts, Function, HandleKind, Host, Kind, Library, Note,
    Notes, Number, Parameter, Scratch, ScratchBytes, Statuses,
};

macro_rules! libraries {
    ($($file:literal $attributes:expr;)*) => {
        /// The rows as they were written, by the name of the library, and the attributes of descriptors.
        const SOURCES: &[(&str, &str, &str)] =
            &[$(($file, include_str!(concat!("../rows/", $file, ".rows")), $attributes)),*];
    };
}

// The position is the library's number on the wire: new ones go to the end.
libraries! {
    "cublas" "";
    "cublasLt" include_str!("../rows/cublasLt.attributes");
    "cudnn" "";
    "cufft" "";
    "curand" "";
    "cusparse" "";
    "cusolver" "";
    "nccl" "";
    "cusparseLt" include_str!("../rows/cusparseLt.attributes");
}

static LIBRARIES: LazyLock<Vec<Library>> = LazyLock::new(|| {
    let parsed = SOURCES.iter().map(|(name, text, attributes)| {
        // The rows are part of this program, and a test parses all of them.
        parse::library(name, text, attributes).unwrap_or_else(|error| panic!("{name}.rows: {error}"))
    });
    parsed.collect()
});

/// All libraries, in the order of their numbers on the wire.
pub fn libraries() -> &'static [Library] {
    &LIBRARIES
}

/// Number and description of the library of that name (`cublas`).
pub fn library(name: &str) -> Option<(u32, &'static Library)> {
    let number = libraries().iter().position(|library| library.name == name)?;
    Some((number as u32, &libraries()[number]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_rows_can_be_read() {
        for library in libraries() {
            let mut names = HashSet::new();
            for function in &library.functions {
                assert!(names.insert(&function.name), "{} has two rows", function.name);
            }
            assert!(!library.sonames.is_empty(), "{} has no soname", library.name);
        }
    }
}
