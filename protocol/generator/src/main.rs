// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask generate` for the time in which xtask does not compile, because it contains the tables of which the types have
//! changed: `cargo run --package cuda-api-generator`.

use std::path::Path;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("No repository")?;
    cuda_api_generator::run(root, false)
}
