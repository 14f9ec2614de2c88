// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checked-in sources follow from their rows.

use std::fs;
use std::path::Path;

use cuda_api_generator::files;

#[test]
fn generated_sources_are_up_to_date() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is in the repository");
    let stale: Vec<_> = files(root)
        .expect("the rows are valid")
        .into_iter()
        .filter(|file| fs::read_to_string(root.join(&file.path)).ok().as_ref() != Some(&file.text))
        .map(|file| file.path)
        .collect();
    assert!(stale.is_empty(), "`cargo xtask generate` was not run after a change of rows: {stale:?}");
}
