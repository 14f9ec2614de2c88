// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fetches and builds the suites.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::table::Suite;
use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// pytest's plugins, in the program so that a bundle needs no sources.
const PLUGINS: [(&str, &str); 2] = [
    ("numba_suite.py", include_str!("../../../tests/conformance/plugins/numba_suite.py")),
    ("pytest.ini", "[pytest]\nconsider_namespace_packages = true\n"),
];
/// Prints the folder of a Python package.
const WHERE: &str = "import importlib.util, sys; \
    print(list(importlib.util.find_spec(sys.argv[1]).submodule_search_locations)[0])";

/// The folders of the suites.
pub struct Prepared {
    /// The folder with all of it.
    pub folder: PathBuf,
    /// The interpreter that has the packages.
    pub python: PathBuf,
}

/// One program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unit {
    /// All tests of a test program of cargo's, or one that is ignored otherwise.
    Rust(PathBuf, Option<String>),
    /// The tests of a file, by its path or its module, and its name without `.py`.
    Python(Vec<String>, String),
}

impl Prepared {
    /// Fetches what `suites` need, unless `python` is an interpreter that has it.
    pub fn new(paths: &Paths, suites: &[Suite], folder: &Path, python: Option<&Path>) -> Result<Self> {
        let plugins = folder.join("plugins");
        fs::create_dir_all(&plugins).with_context(|| format!("Cannot create {}", plugins.display()))?;
        for (name, text) in PLUGINS {
            fs::write(plugins.join(name), text)?;
        }
        let packages: Vec<_> = suites.iter().flat_map(|suite| suite.packages.clone()).collect();
        let python = match python {
            Some(python) => std::path::absolute(python)?,
            None if packages.is_empty() => PathBuf::new(),
            None => environment(paths, &folder.join("venv"), packages)?,
        };
        Ok(Self { folder: folder.to_path_buf(), python })
    }

    /// The programs of a suite; `checkout` is a copy of its repository that is here already.
    pub fn units(&self, paths: &Paths, suite: &Suite, checkout: Option<&Path>) -> Result<Vec<Unit>> {
        if let Some(name) = &suite.krate {
            let program = self.folder.join(name).join("tests");
            if !program.exists() {
                self.build_crate(paths, name, &suite.features, &program)?;
            }
            let alone = suite.alone.iter().map(|test| Unit::Rust(program.clone(), Some(test.clone())));
            return Ok([Unit::Rust(program.clone(), None)].into_iter().chain(alone).collect());
        }
        if let Some(package) = &suite.package {
            return self.in_package(suite, package);
        }
        let folder = self.folder.join(&suite.name);
        if !suite.files.iter().all(|file| file.file_name().is_some_and(|name| folder.join(name).exists())) {
            fetch_files(paths, suite, checkout, &folder)?;
        }
        let unit = |file: &PathBuf| {
            let stem = file.file_stem().context("A file has no name")?.to_string_lossy().into_owned();
            let path = folder.join(file.file_name().context("A file has no name")?);
            Ok(Unit::Python(vec![path.to_string_lossy().into_owned()], stem))
        };
        suite.files.iter().map(unit).collect()
    }

    fn in_package(&self, suite: &Suite, package: &str) -> Result<Vec<Unit>> {
        let home = PathBuf::from(output_of(Command::new(&self.python).args(["-c", WHERE, package]))?);
        let mut units = Vec::new();
        for folder in &suite.folders {
            let area = folder.file_name().context("A folder has no name")?.to_string_lossy();
            let there = home.join(folder);
            let files = fs::read_dir(&there).with_context(|| format!("Cannot open {}", there.display()))?;
            for file in files {
                let name = file?.file_name().to_string_lossy().into_owned();
                if let Some(stem) = name.strip_suffix(".py").filter(|stem| stem.starts_with("test_")) {
                    let module = format!("{}.{area}.{stem}", suite.module);
                    units.push(Unit::Python(vec!["--pyargs".to_owned(), module], stem.to_owned()));
                }
            }
        }
        units.sort_by_key(|unit| format!("{unit:?}"));
        Ok(units)
    }

    /// The tests of the crate that Cargo.lock names, whose sources cargo has fetched for the daemon.
    fn build_crate(&self, paths: &Paths, name: &str, features: &[String], to: &Path) -> Result<()> {
        let step = Step::new(name, &self.folder.join("log"))?;
        let mut metadata = Command::new("cargo");
        metadata.args(["metadata", "--format-version=1", "--locked"]).current_dir(&paths.root);
        let metadata: Value = serde_json::from_str(&output_of(&mut metadata)?)?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let manifest = packages
            .filter(|package| package["name"] == name)
            .find_map(|package| package["manifest_path"].as_str());
        let source = Path::new(manifest.with_context(|| format!("Cargo.lock has no {name}"))?);
        let copy = self.folder.join(name).join("source");
        fs::create_dir_all(&copy)?;
        let contents = source.parent().context("A crate has no folder")?.join(".");
        step.run(Command::new("cp").args(["-r", "--no-preserve=mode"]).arg(contents).arg(&copy))?;
        // It lies below our workspace and is no part of it.
        let manifest = copy.join("Cargo.toml");
        fs::write(&manifest, fs::read_to_string(&manifest)? + "\n[workspace]\n")?;
        step.note("cargo test --no-run");
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--release", "--lib", "--no-run", "--no-default-features", "--features"]);
        cargo.arg(features.join(",")).arg("--message-format=json-render-diagnostics").current_dir(&copy);
        let output = output_of(cargo.env("CARGO_TARGET_DIR", self.folder.join(name).join("target")))?;
        let artifacts = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let executable =
            artifacts.filter_map(|artifact| artifact["executable"].as_str().map(PathBuf::from)).next_back();
        fs::copy(executable.context("cargo built no tests")?, to)?;
        step.done(&to.display().to_string());
        Ok(())
    }
}

/// A virtual environment with the packages.
fn environment(paths: &Paths, folder: &Path, packages: Vec<String>) -> Result<PathBuf> {
    let (python, list) = (folder.join("bin/python"), folder.join("packages"));
    let wanted = packages.join("\n");
    if python.exists() && fs::read_to_string(&list).is_ok_and(|there| there == wanted) {
        return Ok(python);
    }
    let step = Step::new("python", &paths.setup_logs())?;
    step.run(Command::new("python3").args(["-m", "venv"]).arg(folder))
        .context("Python with its module venv is needed (Debian: python3-venv), or --python")?;
    step.note("pip install");
    step.run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    fs::write(list, wanted)?;
    step.done(&folder.display().to_string());
    Ok(python)
}

/// Files with tests, from `checkout` or the suite's repository.
fn fetch_files(paths: &Paths, suite: &Suite, checkout: Option<&Path>, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let clone = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
    let from = match (checkout, &suite.repository) {
        (Some(checkout), _) => checkout,
        (None, Some(repository)) => {
            let step = Step::new(&suite.name, &paths.setup_logs())?;
            let mut git = Command::new("git");
            git.args(["clone", "--quiet", "--depth=1", "--branch", &suite.tag, repository]).arg(clone.path());
            step.run(&mut git).context("Without network: --checkout, and a copy of the repository")?;
            step.done(repository);
            clone.path()
        }
        (None, None) => bail!("{} has no repository", suite.name),
    };
    for file in &suite.files {
        let name = file.file_name().context("A file has no name")?;
        fs::copy(from.join(file), to.join(name))
            .with_context(|| format!("{} has no {}", from.display(), file.display()))?;
    }
    Ok(())
}
