// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Defines every name of the library (see the crate `cuda-absent-names`). Functions that change a card (`setters.txt`) come first.

use std::collections::BTreeSet;

use cuda_absent_names::build::{Binding, define, read, write};

fn main() {
    let (names, setters) = (read("names.txt"), read("setters.txt"));
    let setters: BTreeSet<&str> = setters.lines().collect();
    let (first, others): (Vec<&str>, Vec<&str>) = names.lines().partition(|name| setters.contains(name));
    write("setters.rs", &format!("{}\n", first.len()));
    define("vhost_nvml_absent", Binding::Weak, first.into_iter().chain(others));
}
