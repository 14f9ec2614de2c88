// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checked-in sources follow from their rows.

use std::path::Path;

use cuda_api_generator::stale;

#[test]
fn generated_sources_are_up_to_date() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is in the repository");
    let stale = stale(root).expect("the rows are valid");
    let stale: Vec<_> = stale.into_iter().map(|file| file.path).collect();
    assert!(stale.is_empty(), "`cargo xtask generate` was not run after a change of rows: {stale:?}");
}
