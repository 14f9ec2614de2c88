// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask layers`: circles between source files, folders with too many of them, C structures that are defined twice,
//! and environment variables.
//!
//! A file depends on the files that define the items in its paths: paths that begin with `crate`, `super`, `self` or
//! a child module. Re-exports are followed to the definition. Tests are ignored, and so is the root of a crate,
//! because it connects the parts. Files that are generated are not counted.

mod files;
mod graph;
mod names;
mod spellings;
mod structs;
pub mod variables;

use anyhow::{Result, bail};
use clap::Args;

use crate::paths::Paths;
pub use files::with_text;
use graph::{Graph, Knot, Module};

/// The maximum number of source files in one folder.
const MAX_SIDE_BY_SIDE: usize = 24;
/// The maximum number of files of a circle, in a crate that [`LIMITS`] does not name.
const MAX_KNOT: usize = 3;
/// Crates with larger circles. A limit is lowered when the circle gets smaller, and never raised.
const LIMITS: [(&str, usize); 10] = [
    ("cuda-emulator", 6),
    ("cuda-emulator/libraries", 8),
    ("guest-driver", 7),
    ("guest-driver/stock/kernel", 4),
    ("guest-lib/client", 7),
    ("guest-lib/cupti", 6),
    ("guest-lib/libcuda", 8),
    ("guest-lib/libcudart", 5),
    ("vhost-cuda", 6),
    ("xtask", 7),
];

/// The kind of output.
#[derive(Debug, Args)]
pub struct LayersArguments {
    /// Also print the files of each circle, with what each of them uses of the others
    #[arg(long)]
    files: bool,
    /// Also print how often a function of the driver API is spelled, and the environment variables
    #[arg(long)]
    spellings: bool,
}

/// Prints the size and the largest circle of each crate, the largest folder, and the numbers of C structures and of
/// environment variables. An error if one of them is over its limit, or a structure is defined twice.
pub fn run(paths: &Paths, arguments: &LayersArguments) -> Result<()> {
    let sources = files::sources(&paths.root)?;
    let mut broken = Vec::new();
    for (name, modules) in files::crates(&sources) {
        let knots = Graph::read(&paths.root, &modules)?.knots();
        let by_hand = |knot: &Knot| {
            let files = knot.keys().filter_map(|module| modules.get(module));
            files.filter(|file| !files::is_generated(&paths.root.join(file))).count()
        };
        let largest = knots.iter().map(by_hand).max().unwrap_or(0);
        let lines = files::lines(&paths.root, &modules)?;
        let limit = LIMITS.iter().find(|(of, _)| *of == name).map_or(MAX_KNOT, |(_, limit)| *limit);
        println!(
            "{name:26} {:4} files, {lines:6} lines, largest circle {largest:2}, limit {limit:2}",
            modules.len()
        );
        if arguments.files {
            knots.iter().for_each(print);
        }
        if largest > limit {
            broken.push(format!(
                "{name}: {largest} files depend on each other, {limit} may (--files names them)"
            ));
        } else if largest.max(MAX_KNOT) < limit {
            broken.push(format!("{name}: the limit in xtask/src/layers can be {}", largest.max(MAX_KNOT)));
        }
    }
    let c_sources = files::c_sources(&paths.root)?;
    let folders = files::side_by_side(sources.iter().chain(&c_sources));
    if let Some((folder, count)) = folders.iter().max_by_key(|(_, count)| **count) {
        println!("largest folder: {}, {count} files", folder.display());
    }
    for (folder, count) in folders {
        if count > MAX_SIDE_BY_SIDE {
            broken
                .push(format!("{}: {count} files side by side, {MAX_SIDE_BY_SIDE} may be", folder.display()));
        }
    }
    let structs::Structures { owned, copies } = structs::structures(&paths.root, &sources)?;
    println!("C structures: {owned}, defined again elsewhere: {}", copies.len());
    broken.extend(copies);
    let variables = variables::names(&paths.root, &sources)?;
    println!("environment variables: {}, limit {}", variables.len(), variables::MAX_VARIABLES);
    if variables.len() > variables::MAX_VARIABLES {
        broken.push(format!(
            "{} environment variables, {} may be",
            variables.len(),
            variables::MAX_VARIABLES
        ));
    }
    if arguments.spellings {
        println!("  {}", Vec::from_iter(variables).join(" "));
        spellings::print(&paths.root, &sources)?;
    }
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

fn print(knot: &Knot) {
    println!("  {} files:", knot.len());
    let name = |module: &Module| module.join("::");
    for (module, uses) in knot {
        println!("    {:30} -> {}", name(module), uses.iter().map(name).collect::<Vec<_>>().join(" "));
    }
}
