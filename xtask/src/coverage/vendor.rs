// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's libraries on the page, from their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use cuda_library_rows::{Body, Library, generate, libraries};

/// Files with functions that are written by hand.
const CUSTOM: [&str; 2] = ["guest-lib/vendor/src/custom", "guest-lib/vendor/descriptors/src"];

/// FFTW's interface to cuFFT, below `target/stack`. It has no rows.
pub const CUFFTW: &str = "guest/lib/libcufftw.so.12";

/// Appends the section. `written`: names in the sources of functions that are written by hand; `cufftw`: the number of functions
/// of [`CUFFTW`].
pub fn section(page: &mut String, written: &BTreeSet<String>, cufftw: usize) {
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
        let count = |wanted: &dyn Fn(&Body, &str) -> bool| {
            exported().filter(|function| wanted(&function.body, &function.name)).count()
        };
        let rows = count(&|body, _| matches!(body, Body::Forward(_)));
        let by_hand = count(&|body, name| matches!(body, Body::Custom) && written.contains(name));
        // Writing to a string does not fail.
        let refused = exported().count() - rows - by_hand;
        let _ = writeln!(page, "| {} | {rows} | {by_hand} | {refused} |", library.name);
    }
    let _ = writeln!(page, "| cufftw | 0 | {cufftw} | 0 |");
    libraries().for_each(|library| refused(page, library, written));
}

fn refused(page: &mut String, library: &Library, written: &BTreeSet<String>) {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for function in &library.functions {
        match &function.body {
            Body::Refuse(reason) => reasons.entry(reason).or_default().push(&function.name),
            Body::Custom if !written.contains(&function.name) => {
                reasons.entry("not written yet").or_default().push(&function.name);
            }
            _ => {}
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

/// Words in the sources of functions that are written by hand.
///
/// Errors: the folder cannot be read.
pub fn written(root: &std::path::Path) -> anyhow::Result<BTreeSet<String>> {
    let mut words = BTreeSet::new();
    for folder in CUSTOM {
        for file in std::fs::read_dir(root.join(folder))? {
            let text = std::fs::read_to_string(file?.path())?;
            words.extend(generate::words(&text).into_iter().map(str::to_owned));
        }
    }
    Ok(words)
}
