// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Reads the description of CUDA's API: the rows of the driver's calls ([`calls`], `protocol/calls`), those of the functions of
//! NVIDIA's libraries ([`libraries`], `protocol/libraries/rows`), and those of its management library ([`getters`], `protocol/nvml`).
//! All are in one language, and [`rows`] reads it.
//!
//! Only `cargo xtask generate` and tests use this crate. It leaks what it has read: the tables of a library consist of references
//! that live as long as the program, and these programs read each file once.

#![forbid(unsafe_code)]

pub mod calls;
pub mod getters;
pub mod libraries;
pub mod rows;

/// Returns a reference to `value` that is valid until the program ends.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Returns a slice of `values` that is valid until the program ends.
fn slice<T>(values: Vec<T>) -> &'static [T] {
    Vec::leak(values)
}

/// Returns a copy of `text` that is valid until the program ends.
fn kept_text(text: &str) -> &'static str {
    String::leak(text.to_owned())
}
