// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's libraries on the page, from their rows.

use std::collections::BTreeMap;
use std::fmt::Write;

use cuda_library_rows::{Body, Library, libraries};

/// FFTW's interface to cuFFT, below `target/stack`. It has no rows.
pub const CUFFTW: &str = "guest/lib/libcufftw.so.12";

/// Appends the section. `cufftw`: the number of functions of [`CUFFTW`].
pub fn section(page: &mut String, cufftw: usize) {
    page.push_str(
        "\n## NVIDIA's libraries\n\n\
         From the rows in `protocol/libraries/rows`. Every public function of these versions is exported: cuBLAS and cuBLASLt 13.10,\n\
         cuDNN 9.28, cuFFT and cuFFTW 12.5, cuRAND 10.4.5, cuSPARSE 12.9, cuSPARSELt 0.10, cuSOLVER and cuSOLVERMg 12.4, NCCL 2.32;\n\
         and of the newest ones for CUDA 12. Functions that newer libraries of the host have in addition are not there yet. *Rows*\n\
         cross to the host's library, *by hand* are answered in the guest or need code; *refused* answer the library's \"not supported\".\n\n\
         | library | rows | by hand | refused |\n| --- | --- | --- | --- |\n",
    );
    for library in libraries() {
        let exported = || library.functions.iter().filter(|function| !function.is_form());
        let rows = exported().filter(|function| matches!(function.body, Body::Forward(_))).count();
        let by_hand = exported().filter(|function| matches!(function.body, Body::Custom)).count();
        // Writing to a string does not fail.
        let refused = exported().count() - rows - by_hand;
        let _ = writeln!(page, "| {} | {rows} | {by_hand} | {refused} |", library.name);
    }
    let _ = writeln!(page, "| cufftw | 0 | {cufftw} | 0 |");
    libraries().for_each(|library| refused(page, library));
}

fn refused(page: &mut String, library: &Library) {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for function in library.functions {
        if let Body::Refuse(reason) = function.body {
            reasons.entry(reason).or_default().push(function.name);
        }
    }
    if !reasons.is_empty() {
        let _ = write!(page, "\n### Refused of {}\n\n", library.name);
    }
    for (reason, names) in reasons {
        let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "- {reason}: {}", names.join(", "));
    }
}
