// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask layers`: circles between source files, folders with too many of them, and C structures that are defined
//! twice.
//!
//! A file depends on the files that define what its paths name: paths that begin with `crate`, `super`, `self` or a
//! child module. Re-exports are followed to the definition. Tests do not count. Nor does the root of a crate, because
//! it ties the parts together.

mod files;
mod graph;
mod names;
mod structs;

use anyhow::{Result, bail};
use clap::Args;

use crate::paths::Paths;
use graph::{Graph, Knot, Module};

/// Most source files that a folder may have side by side.
const MOST_SIDE_BY_SIDE: usize = 25;
/// Most files of a circle.
const LARGEST_KNOT: usize = 8;

/// The kind of output.
#[derive(Debug, Args)]
pub struct LayersArguments {
    /// Also print the files of each circle, with what each of them uses of the others
    #[arg(long)]
    files: bool,
}

/// Prints the largest circle of each crate. An error if a crate or a folder is over its limit, or a structure
/// is defined twice.
pub fn run(paths: &Paths, arguments: &LayersArguments) -> Result<()> {
    let sources = files::sources(&paths.root)?;
    let mut broken = Vec::new();
    for (name, modules) in files::crates(&sources) {
        let knots = Graph::read(&paths.root, &modules)?.knots();
        let largest = knots.first().map_or(0, Knot::len);
        println!("{name:24} {:4} files, largest circle {largest:3}", modules.len());
        if arguments.files {
            knots.iter().for_each(print);
        }
        if largest > LARGEST_KNOT {
            broken.push(format!(
                "{name}: {largest} files depend on each other, {LARGEST_KNOT} may (--files names them)"
            ));
        }
    }
    for (folder, count) in files::side_by_side(&sources) {
        if count > MOST_SIDE_BY_SIDE {
            broken.push(format!(
                "{}: {count} files side by side, {MOST_SIDE_BY_SIDE} may be",
                folder.display()
            ));
        }
    }
    broken.extend(structs::defined_twice(&paths.root, &sources)?);
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

fn print(knot: &Knot) {
    println!("  {} files:", knot.len());
    let name = |module: &Module| module.join("::");
    for (module, uses) in knot {
        println!("    {:30} -> {}", name(module), uses.iter().map(name).collect::<Vec<_>>().join(" "));
    }
}
