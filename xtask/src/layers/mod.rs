// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask layers`: circles between source files, folders with too many of them, C structures that are defined twice,
//! and environment variables.
//!
//! A file depends on the files that define the items in its paths: paths that begin with `crate`, `super`, `self` or
//! a child module. Re-exports are followed to the definition. It also depends on the files of the methods that it calls, if they
//! stand in another file than their type. Tests are ignored, and so is the root of a crate, because it connects the parts.
//! Files that are generated are not counted. The rooms of a crate are its folders at the top, and the files beside them.

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
/// The maximum number of files of a circle, and of rooms, in a crate that [`LIMITS`] does not name.
const MAX_KNOT: usize = 3;
/// Crates with larger circles of files or of rooms. A limit is lowered when the circle gets smaller, and never raised.
const LIMITS: [(&str, usize, usize); 10] = [
    ("cuda-emulator", 9, 4),
    ("cuda-emulator/libraries", 8, 3),
    ("guest-driver", 11, 3),
    ("guest-driver/stock/kernel", 4, 3),
    ("guest-lib/cupti", 4, 4),
    ("guest-lib/libcuda", 5, 3),
    ("guest-lib/libcudart", 5, 4),
    ("vhost-cuda", 5, 3),
    ("vhost-cuda/worker", 5, 4),
    ("xtask", 6, 3),
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
        let graph = Graph::read(&paths.root, &modules)?;
        let knots = graph.knots();
        let (of_rooms, rooms) = graph.knots_of_rooms();
        let by_hand = |knot: &Knot| {
            let files = knot.keys().filter_map(|module| modules.get(module));
            files.filter(|file| !files::is_generated(&paths.root.join(file))).count()
        };
        let of_files = knots.iter().map(by_hand).max().unwrap_or(0);
        let largest_of_rooms = of_rooms.first().map_or(0, Knot::len);
        let limits = LIMITS.iter().find(|(of, ..)| *of == name);
        let (files_limit, rooms_limit) =
            limits.map_or((MAX_KNOT, MAX_KNOT), |(_, files, rooms)| (*files, *rooms));
        println!(
            "{name:26} {:4} files, {lines:6} lines, largest circle {of_files:2}, limit {files_limit:2}; of {rooms:2} rooms {largest_of_rooms:2}, limit {rooms_limit:2}",
            modules.len(),
            lines = files::lines(&paths.root, &modules)?
        );
        if arguments.files {
            knots.iter().for_each(|knot| print("files", knot));
            of_rooms.iter().for_each(|knot| print("rooms", knot));
        }
        for (what, largest, limit) in
            [("files", of_files, files_limit), ("rooms", largest_of_rooms, rooms_limit)]
        {
            if largest > limit {
                broken.push(format!(
                    "{name}: {largest} {what} depend on each other, {limit} may (--files names them)"
                ));
            } else if largest.max(MAX_KNOT) < limit {
                broken.push(format!(
                    "{name}: the limit of {what} in xtask/src/layers can be {}",
                    largest.max(MAX_KNOT)
                ));
            }
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

fn print(what: &str, knot: &Knot) {
    println!("  {} {what}:", knot.len());
    let name = |module: &Module| module.join("::");
    for (module, uses) in knot {
        println!("    {:30} -> {}", name(module), uses.iter().map(name).collect::<Vec<_>>().join(" "));
    }
}
