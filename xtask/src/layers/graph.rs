// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dependencies between the files of a crate, and circular ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::files::Modules;
use super::names::Names;

/// A module's path below the crate's root; the root's is empty.
pub type Module = Vec<String>;
/// Modules that depend on each other, each with those of them that it names.
pub type Knot = BTreeMap<Module, BTreeSet<Module>>;

/// Methods that types of the standard library and of other crates have, too.
const COMMON: [&str; 14] = [
    "append",
    "bytes",
    "close",
    "count",
    "finish",
    "flush",
    "inspect",
    "name",
    "poll",
    "range",
    "send",
    "split",
    "transpose",
    "update",
];
/// A longer chain of re-exports is a circle.
const MAX_STEPS: usize = 16;

/// The files of one crate.
#[derive(Debug)]
pub struct Graph {
    files: BTreeMap<Module, Names>,
    /// The file of each method that stands in another file than its type.
    methods: BTreeMap<String, Module>,
}

impl Graph {
    /// Reads a crate's files.
    pub fn read(root: &Path, modules: &Modules) -> Result<Self> {
        let names = |file| -> Result<Names> {
            let file = root.join(file);
            Names::of(&fs::read_to_string(&file)?).with_context(|| format!("Cannot read {}", file.display()))
        };
        let mut files = modules
            .iter()
            .map(|(module, file)| Ok((module.clone(), names(file)?)))
            .collect::<Result<BTreeMap<_, _>>>()?;
        let of_tests = |(module, names): (&Module, &Names)| {
            // A path may lead to the folder of the file or to that of its modules.
            let beside = &module[..module.len().saturating_sub(1)];
            let places = names.tests.iter().flat_map(|(name, has_path)| {
                let folders = [Some(module.as_slice()), has_path.then_some(beside)];
                folders.into_iter().flatten().map(|folder| [folder, std::slice::from_ref(name)].concat())
            });
            places.collect::<Vec<_>>()
        };
        let tests: Vec<Module> = files.iter().flat_map(of_tests).collect();
        files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        let methods = far_methods(&files);
        Ok(Self { files, methods })
    }

    /// All circles of files, the largest first.
    pub fn knots(&self) -> Vec<Knot> {
        knots(&self.edges())
    }

    /// All circles of rooms, the largest first: the folders at the top of the crate, and the files beside them. Also
    /// the number of rooms.
    pub fn knots_of_rooms(&self) -> (Vec<Knot>, usize) {
        let mut rooms = Knot::new();
        let room = |module: &Module| module.iter().take(1).cloned().collect::<Module>();
        for (module, uses) in self.edges() {
            let own = room(&module);
            if !own.is_empty() {
                let others = uses.iter().map(room).filter(|other| *other != own);
                rooms.entry(own.clone()).or_default().extend(others);
            }
        }
        (knots(&rooms), rooms.len())
    }

    fn edges(&self) -> Knot {
        self.files.keys().map(|module| (module.clone(), self.uses(module))).collect()
    }

    /// The files that define what `module` names.
    fn uses(&self, module: &Module) -> BTreeSet<Module> {
        let names = &self.files[module];
        let imported = names.imports.iter().map(|import| &import.path);
        let named = imported.chain(&names.paths).filter_map(|path| self.absolute(module, path));
        let mut uses: BTreeSet<Module> = named.filter_map(|path| self.definition(&path, 0)).collect();
        uses.extend(names.calls.iter().filter_map(|call| self.methods.get(call)).cloned());
        uses.remove(module);
        uses.remove(&Module::new());
        uses
    }

    /// The path below the crate's root; none for a path into another crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let up = path.iter().take_while(|part| *part == "super").count();
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => Some([module.get(..module.len().checked_sub(up)?)?, &path[up..]].concat()),
            child => {
                let is_child = self.files.contains_key(&[module.as_slice(), &[child.to_owned()]].concat());
                is_child.then(|| [module, path].concat())
            }
        }
    }

    /// The file that defines what `path` names.
    fn definition(&self, path: &[String], steps: usize) -> Option<Module> {
        let depth = (0..=path.len()).rev().find(|depth| self.files.contains_key(&path[..*depth]))?;
        let (module, rest) = path.split_at(depth);
        let Some(name) = rest.first().filter(|name| *name != "*") else { return Some(module.to_vec()) };
        let names = &self.files[module];
        if names.defined.contains(name) || steps == MAX_STEPS {
            return Some(module.to_vec());
        }
        if module.is_empty()
            && let Some(home) = self.files.iter().find(|(_, names)| names.macros.contains(name))
        {
            return Some(home.0.clone());
        }
        let module = module.to_vec();
        let follow = |import: &[String], rest: &[String]| {
            self.definition(&[&self.absolute(&module, import)?, rest].concat(), steps + 1)
        };
        if let Some(import) = names.imports.iter().find(|import| import.name == *name) {
            // The name of another crate is not in the graph.
            return follow(&import.path, &rest[1..]);
        }
        let globs = names.imports.iter().filter(|import| import.name == "*");
        let defines = |found: &Module| self.files[found].defined.contains(name);
        globs
            .filter_map(|glob| follow(&glob.path[..glob.path.len() - 1], rest))
            .find(defines)
            .or(Some(module.clone()))
    }
}

/// Returns the modules that `from` reaches, with itself.
fn reachable(edges: &Knot, from: &Module) -> BTreeSet<Module> {
    let mut reached = BTreeSet::from([from.clone()]);
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        open.extend(edges[module].iter().filter(|to| reached.insert((*to).clone())));
    }
    reached
}

/// All circles among the edges, the largest first.
fn knots(edges: &Knot) -> Vec<Knot> {
    let reach: Knot = edges.keys().map(|module| (module.clone(), reachable(edges, module))).collect();
    let mut knots = BTreeSet::new();
    for (module, reached) in &reach {
        let knot: BTreeSet<_> = reached.iter().filter(|other| reach[*other].contains(module)).collect();
        if knot.len() > 1 {
            knots.insert(knot);
        }
    }
    let among = |knot: BTreeSet<&Module>| {
        let uses = |module: &Module| edges[module].iter().filter(|to| knot.contains(to)).cloned().collect();
        knot.iter().map(|module| ((*module).clone(), uses(module))).collect()
    };
    let mut knots: Vec<Knot> = knots.into_iter().map(among).collect();
    knots.sort_by_key(|knot| std::cmp::Reverse(knot.len()));
    knots
}

/// The file of each method that stands in another file than its type. A name that several methods of the crate have, or other
/// crates' types, is left out: the text does not say which of them is called.
fn far_methods(files: &BTreeMap<Module, Names>) -> BTreeMap<String, Module> {
    let mut count = BTreeMap::<&String, usize>::new();
    for (_, function) in files.values().flat_map(|names| &names.methods) {
        *count.entry(function).or_default() += 1;
    }
    let mut far = BTreeMap::new();
    for (module, names) in files {
        for (of, function) in &names.methods {
            let is_far = of.as_ref().is_some_and(|of| !names.defined.contains(of));
            if is_far && count[function] == 1 && !COMMON.contains(&function.as_str()) {
                far.insert(function.clone(), module.clone());
            }
        }
    }
    far
}
