// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask explain NAME`: where the repository says something of a public function, in the order of a call's way.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use regex::Regex;

use crate::layers::with_text;
use crate::paths::Paths;

/// Lines that are printed of a stage, unless all are asked for.
const MOST: usize = 8;
/// Columns that are printed of a line.
const COLUMNS: usize = 150;

/// The function.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// For example cublasSgemm_v2, cuMemAlloc_v2, cudaMalloc, nvmlDeviceGetName
    name: String,
    /// Every place, however many there are
    #[arg(long)]
    all: bool,
}

/// A stage of a call's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// What is there.
    pub title: &'static str,
    /// Paths that begin like this belong to it.
    folders: &'static [&'static str],
}

/// The stages, in the order of a call's way. A path belongs to the first stage that has its beginning.
pub const STAGES: [Stage; 9] = [
    Stage { title: "prototype", folders: &["protocol/cuda-abi/src"] },
    Stage {
        title: "row: number, parameters, facts",
        folders: &["protocol/calls", "protocol/nvml", "protocol/libraries/rows"],
    },
    Stage {
        title: "names, versions, states of handles",
        folders: &["protocol/names", "guest-lib/libcudart/names", "guest-lib/nvml/", "guest-lib/cupti/"],
    },
    Stage { title: "the guest's libraries", folders: &["guest-lib/"] },
    Stage { title: "the wire, in the guest and on the host", folders: &["protocol/"] },
    Stage { title: "the host's driver", folders: &["vhost-cuda/worker/src/gpu"] },
    Stage { title: "the worker", folders: &["vhost-cuda/"] },
    Stage { title: "the emulator", folders: &["cuda-emulator/"] },
    Stage { title: "tests", folders: &["tests/", "xtask/"] },
];

/// Files whose lines say nothing of a call: data that tools make.
const LEFT_OUT: [&str; 3] = ["guest-lib/signatures/releases/", "docs/", "protocol/golden/"];

/// What derives the code of a row that has no body of its own, by the word of the row.
const DERIVED: [(&str, &str); 10] = [
    (
        "forward",
        "vhost-cuda/worker/src/dispatch has the handler: each input is resolved and handed to the driver's function",
    ),
    (
        "create",
        "vhost-cuda/worker/src/dispatch has the handler: the driver makes an object, which gets the guest's name",
    ),
    ("destroy", "vhost-cuda/worker/src/dispatch has the handler: the object of that name ends"),
    ("part", "vhost-cuda/worker/src/dispatch has the handler: a part of an object gets the guest's name"),
    ("variable", "vhost-cuda/worker/src/dispatch has the handler: a variable of a module is found"),
    ("load", "vhost-cuda/worker/src/dispatch has the handler: an image is loaded as a module or library"),
    ("upload", "vhost-cuda/worker/src/dispatch has the handler: bulk data go to device memory"),
    ("download", "vhost-cuda/worker/src/dispatch has the handler: bulk data come from device memory"),
    ("card", "vhost-cuda/worker/src/dispatch has the handler: the host's management library answers"),
    ("custom", "the handler is written by hand, in vhost-cuda/worker/src/handlers"),
];

/// A line that names the function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Of [`STAGES`].
    pub stage: usize,
    /// Relative to the repository.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// Without the spaces around it.
    pub text: String,
}

/// Prints the way of a call.
pub fn run(paths: &Paths, arguments: &ExplainArguments) -> Result<()> {
    let places = places(&paths.root, &arguments.name)?;
    if !places.iter().any(|place| place.stage < 4) {
        bail!(
            "There is no public function {:?}: names are spelled as in NVIDIA's headers, cudaMalloc, cuMemAlloc_v2",
            arguments.name
        );
    }
    println!("{}", arguments.name);
    for (number, stage) in STAGES.iter().enumerate() {
        let here: Vec<&Place> = places.iter().filter(|place| place.stage == number).collect();
        if here.is_empty() {
            continue;
        }
        println!("\n{}", stage.title);
        let most = if arguments.all { here.len() } else { MOST };
        for Place { file, line, text, .. } in here.iter().take(most) {
            let text: String = text.chars().take(COLUMNS).collect();
            println!("  {}:{line}: {text}", file.display());
        }
        if here.len() > most {
            println!("  … and {} more: --all", here.len() - most);
        }
        let derived = here.iter().filter_map(|place| derivation(&place.file, &place.text, &arguments.name));
        derived.for_each(|what| println!("  -> {what}"));
        here.iter()
            .filter_map(|place| state(&place.file, &place.text, &arguments.name))
            .for_each(|state| println!("  state: it {state}"));
    }
    for next in next_calls(&paths.root, &places)? {
        println!("\ngoes on as {next}: cargo xtask explain {next}");
    }
    Ok(())
}

/// Returns all lines that name the function, by stages.
pub fn places(root: &Path, name: &str) -> Result<Vec<Place>> {
    let word = Regex::new(&format!(r"\b{}\b", regex::escape(name)))?;
    let mut places = Vec::new();
    for file in with_text(root, name)? {
        let Some(stage) = stage_of(&file) else { continue };
        let text = fs::read_to_string(root.join(&file))
            .with_context(|| format!("Cannot read {}", file.display()))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| word.is_match(line)) {
            places.push(Place { stage, file: file.clone(), line: number + 1, text: line.trim().to_owned() });
        }
    }
    places.sort_by(|a, b| (a.stage, &a.file, a.line).cmp(&(b.stage, &b.file, b.line)));
    Ok(places)
}

fn stage_of(file: &Path) -> Option<usize> {
    let begins = |start: &str| file.to_string_lossy().starts_with(start);
    // Code of these two crates is a library's, the lists beside it are names.
    let is_code = file.extension().is_some_and(|extension| extension == "rs");
    let is_list = |number: usize| STAGES[number].title.starts_with("names");
    let fits = |number: &usize| {
        STAGES[*number].folders.iter().any(|start| begins(start)) && !(is_list(*number) && is_code)
    };
    if LEFT_OUT.iter().any(|start| begins(start)) { None } else { (0..STAGES.len()).find(fits) }
}

/// The words by which rows state what a call does to the session's state, and what they mean.
const STATES: [(&str, &str); 5] = [
    ("creates", "makes an object, memory, a hold on one, or a name for a part of one"),
    ("ends", "ends an object, or gives a hold back"),
    ("writes", "changes contents only"),
    ("none", "changes nothing"),
    ("library", "does what the row of the library's function says"),
];

/// Says what the call of a row does to the session's state.
pub fn state(file: &Path, text: &str, name: &str) -> Option<String> {
    let extension = file.extension().filter(|extension| *extension == "rows");
    let word = r#"(?<word>[a-z]+)(?:\((?<inside>\w+|"[^"]*")\))?"#;
    extension?;
    let row = Regex::new(&format!(r"^\w+ \w+ {name}(?:@\w+)?\b.*\[{word}[ \]]")).ok()?;
    let found = row.captures(text)?;
    match (&found["word"], found.name("inside").map(|inside| inside.as_str())) {
        ("creates", Some("addresses")) => Some("makes memory, a mapping or addresses".to_owned()),
        ("creates", Some(reason)) if reason.starts_with('"') => {
            Some(format!("makes something that no recipe can make again: {reason}"))
        }
        ("creates", Some(name)) => Some(format!("makes {name}, or a hold on it or a name for a part of it")),
        (_, Some(reason)) if reason.starts_with('"') => {
            Some(format!("changes a setting that no call returns: {reason}"))
        }
        (_, Some(getter)) => Some(format!("changes a setting, which {getter} returns")),
        (_, None) => {
            STATES.iter().find(|(word, _)| *word == &found["word"]).map(|(_, what)| (*what).to_owned())
        }
    }
}

/// Says what happens for a row without a body of its own.
fn derivation(file: &Path, text: &str, name: &str) -> Option<String> {
    if file.starts_with("protocol/libraries/rows") {
        const WORKER: &str = "vhost-cuda/worker/src/handlers/vendor/call.rs makes it, by the row";
        let mut words = text.split(' ').skip(1);
        let (kind, of) = (words.next()?, words.next()?);
        if of.split(['(', '@']).next() != Some(name) {
            return None;
        }
        return Some(match kind {
            "forward" => format!(
                "guest-lib/vendor/src/exports has the exported function, guest-lib/vendor/src/front.rs sends it, {WORKER}"
            ),
            "wrap" => format!("guest-lib/vendor/src/custom has the exported function, by hand; {WORKER}"),
            "custom" => "written by hand: guest-lib/vendor/src/custom".to_owned(),
            _ => format!("not served: {}", text.split_once("] ").map_or("", |(_, reason)| reason)),
        });
    }
    let (number, rest) = text.split_once(' ')?;
    let word = rest.split(' ').next()?;
    let known = DERIVED.iter().find(|(known, _)| *known == word && number.starts_with("0x"))?;
    rest.contains(name).then(|| known.1.to_owned())
}

/// The functions of the driver that the runtime's function calls.
fn next_calls(root: &Path, places: &[Place]) -> Result<Vec<String>> {
    let call = Regex::new(r"driver::(cu[A-Z]\w*)")?;
    let mut found: Vec<String> = Vec::new();
    for Place { file, line, text, .. } in
        places.iter().filter(|place| place.file.starts_with("guest-lib/libcudart/src"))
    {
        if !text.starts_with("fn ") {
            continue;
        }
        let source = fs::read_to_string(root.join(file))?;
        // Functions of the macro are apart by an empty line.
        let body = source.lines().skip(line - 1).take_while(|line| !line.is_empty());
        let names = body
            .flat_map(|line| call.captures_iter(line).map(|found| found[1].to_owned()).collect::<Vec<_>>());
        for name in names {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    Ok(found)
}
