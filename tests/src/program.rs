// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The test programs, compiled by the unmodified nvcc and cached until a source or a compiler changes: all checkouts of a machine
//! share them.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use xtask::paths::Paths;
use xtask::setup::cache::c_compiler_version;
use xtask::setup::nvcc_older;

use crate::variant::Variant;

/// The variable with the path of the compiler; `cargo xtask test` sets it. Default: the one on `PATH`.
pub const NVCC_VARIABLE: &str = "NVCC";
/// The variable with the path of a bundle, which has programs that were compiled elsewhere: no compiler is needed.
const BUNDLE_VARIABLE: &str = "VHOST_CUDA_BUNDLE";

/// The unpacked bundle that the tests run from, if they do.
pub fn bundle() -> Option<PathBuf> {
    env::var_os(BUNDLE_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

type Slot = Arc<OnceLock<Result<PathBuf, String>>>;

/// The source of programs.
#[derive(Debug)]
pub struct Programs {
    origin: Origin,
    built: Mutex<HashMap<String, Slot>>,
}

#[derive(Debug)]
enum Origin {
    Prebuilt(PathBuf),
    /// `older` is by the major version of CUDA.
    Compilers {
        usual: Compiler,
        older: HashMap<u32, Compiler>,
        cache: PathBuf,
    },
}

#[derive(Debug)]
struct Compiler {
    nvcc: PathBuf,
    /// The versions that it and the C compiler report.
    version: String,
}

impl Compiler {
    fn new(nvcc: PathBuf) -> Result<Self> {
        let output = Command::new(&nvcc).arg("--version").output();
        let output = output.with_context(|| format!("Cannot run {}", nvcc.display()))?;
        let version = format!("{}{}", String::from_utf8_lossy(&output.stdout), c_compiler_version()?);
        Ok(Self { nvcc, version })
    }
}

impl Programs {
    /// From the environment: a folder of finished programs, or a compiler.
    pub fn from_environment() -> Result<Self> {
        if let Some(bundle) = bundle() {
            return Ok(Self { origin: Origin::Prebuilt(bundle.join("programs")), built: Mutex::default() });
        }
        let usual = Compiler::new(find_nvcc()?)?;
        let mut older = HashMap::new();
        let paths = Paths::discover()?;
        for release in nvcc_older::ALL {
            if let Some(nvcc) = release.find(&paths) {
                older.insert(release.major, Compiler::new(nvcc)?);
            }
        }
        let cache = paths.cache.join("cuda-programs");
        Ok(Self { origin: Origin::Compilers { usual, older, cache }, built: Mutex::default() })
    }

    /// The names of all programs, from the sources.
    pub fn names() -> Result<Vec<String>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
        let is_program = |path: &PathBuf| {
            path.is_dir() || path.extension().is_some_and(|extension| extension == "cu" || extension == "cpp")
        };
        let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
        Ok(list(&root)?.into_iter().filter(is_program).filter_map(stem).collect())
    }

    /// Returns the reason for which the program is not available here, if it is not.
    pub fn missing(&self, name: &str) -> Option<String> {
        let (_, variant) = Variant::of(name)?;
        match &self.origin {
            Origin::Compilers { older, .. } => {
                let major = variant.older.filter(|major| !older.contains_key(major))?;
                Some(format!("the nvcc of CUDA {major} is not here: cargo xtask setup"))
            }
            Origin::Prebuilt(folder) if !folder.join(name).exists() => {
                Some(format!("the bundle has no program {name}"))
            }
            _ => None,
        }
    }

    /// The folders of NVIDIA's own runtimes, if there are toolkits.
    pub fn toolkit_libraries(&self) -> Vec<PathBuf> {
        match &self.origin {
            Origin::Prebuilt(_) => Vec::new(),
            Origin::Compilers { usual, older, .. } => {
                let compilers = std::iter::once(usual).chain(older.values());
                compilers.filter_map(|compiler| libraries_of(&compiler.nvcc)).collect()
            }
        }
    }

    /// The executable of `tests/cuda/NAME`; compiles it if need be.
    pub fn get(&self, name: &str) -> Result<PathBuf> {
        let slot = {
            let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
            built.entry(name.into()).or_default().clone()
        };
        let result = slot.get_or_init(|| self.find_or_build(name).map_err(|error| format!("{error:#}")));
        result.clone().map_err(|error| anyhow::anyhow!("{error}"))
    }

    fn find_or_build(&self, name: &str) -> Result<PathBuf> {
        match &self.origin {
            Origin::Prebuilt(folder) => {
                let program = folder.join(name);
                if !program.exists() {
                    bail!("The bundle has no {}", program.display());
                }
                Ok(program)
            }
            Origin::Compilers { usual, older, cache } => {
                let (source, variant) =
                    Variant::of(name).with_context(|| format!("`{name}` has no such variant"))?;
                let compiler = match variant.older {
                    Some(major) => {
                        older.get(&major).with_context(|| format!("There is no nvcc of CUDA {major}"))?
                    }
                    None => usual,
                };
                let sources = Sources::of(source)?;
                let folder = cache.join(format!("{name}-{}", sources.key(&compiler.version, variant)?));
                let program = folder.join(name);
                if !program.exists() {
                    sources.compile(&compiler.nvcc, &folder, name, variant)?;
                    remove_oldest(cache, name)?;
                }
                Ok(program)
            }
        }
    }
}

/// This file and the variants decide how programs are compiled.
const COMPILED_BY: [&str; 2] = [include_str!("program.rs"), include_str!("variant.rs")];
/// The maximum number of versions of a program in the cache.
const MAX_KEPT: usize = 4;
/// The functions of a libcuda that programs are linked against: building them needs no driver.
const DRIVER_FUNCTIONS: &str = include_str!("../../protocol/names/libcuda.txt");

/// The sources of one program.
#[derive(Debug)]
struct Sources {
    units: Vec<PathBuf>,
    headers: Vec<PathBuf>,
}

impl Sources {
    fn of(name: &str) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
        let is = |path: &Path, end: &str| path.extension().is_some_and(|extension| extension == end);
        let folder = root.join(name);
        let mut units: Vec<PathBuf> = if folder.is_dir() {
            list(&folder)?.into_iter().filter(|path| is(path, "cu") || is(path, "cpp")).collect()
        } else {
            ["cu", "cpp"]
                .iter()
                .map(|end| root.join(format!("{name}.{end}")))
                .filter(|path| path.exists())
                .collect()
        };
        units.sort();
        if units.is_empty() {
            bail!("{} has no program `{name}`", root.display());
        }
        let own = if folder.is_dir() { list(&folder)? } else { Vec::new() };
        let headers = list(&root)?.into_iter().chain(own).filter(|path| is(path, "h")).collect();
        Ok(Self { units, headers })
    }

    /// Changes whenever the program could.
    fn key(&self, version: &str, variant: &Variant) -> Result<String> {
        let mut hash = Sha256::new();
        for input in [version, DRIVER_FUNCTIONS].into_iter().chain(COMPILED_BY) {
            hash.update(input);
        }
        for flag in variant.flags() {
            hash.update(flag);
        }
        for path in self.units.iter().chain(&self.headers) {
            hash.update(path.file_name().unwrap_or_default().as_encoded_bytes());
            hash.update(fs::read(path).with_context(|| format!("Cannot read {}", path.display()))?);
        }
        Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    /// The options of `// nvcc: FLAGS` lines in the sources.
    fn own_flags(&self) -> Result<Vec<String>> {
        let mut flags = Vec::new();
        for unit in &self.units {
            let text = fs::read_to_string(unit)?;
            let lines = text.lines().filter_map(|line| line.strip_prefix("// nvcc: "));
            flags.extend(lines.flat_map(str::split_whitespace).map(str::to_owned));
        }
        Ok(flags)
    }

    fn uses_driver_api(&self) -> Result<bool> {
        for unit in &self.units {
            if fs::read_to_string(unit)?.contains("check_driver.h") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn compile(&self, nvcc: &Path, folder: &Path, name: &str, variant: &Variant) -> Result<()> {
        // Under another name first: another process may do the same, and an incomplete one must not be used.
        let work = folder.with_extension(format!("{}.tmp", process::id()));
        fs::create_dir_all(&work).with_context(|| format!("Cannot make {}", work.display()))?;
        let mut command = Command::new(nvcc);
        command
            .args(variant.flags())
            .args(self.own_flags()?)
            .arg("-o")
            .arg(work.join(name))
            .args(&self.units);
        if let Some(libraries) = libraries_of(nvcc) {
            command.arg("-L").arg(libraries);
        }
        if variant.older.is_some() {
            // Debian's toolkit has it in a package of two gigabytes.
            command.args(["-cudadevrt", "none"]);
        }
        if self.uses_driver_api()? {
            let source = work.join("libcuda.c");
            let functions =
                DRIVER_FUNCTIONS.lines().map(|name| format!("int {name}(void) {{ return 999; }}\n"));
            fs::write(&source, functions.collect::<String>())?;
            let mut stub = Command::new("cc");
            stub.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]);
            finish(stub.arg(work.join("libcuda.so")).arg(&source))?;
            command.arg("-L").arg(&work).arg("-lcuda");
        }
        finish(&mut command)?;
        if variant.is_stripped {
            finish(Command::new("strip").arg(work.join(name)))?;
        }
        if fs::rename(&work, folder).is_err() {
            fs::remove_dir_all(&work)?;
        }
        if !folder.join(name).exists() {
            bail!("{} was not made", folder.join(name).display());
        }
        Ok(())
    }
}

/// Removes the oldest versions of a program.
fn remove_oldest(cache: &Path, name: &str) -> Result<()> {
    let is_version = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.rsplit_once('-').is_some_and(|(of, key)| of == name && !key.contains('.'))
    };
    let mut versions = Vec::new();
    for version in list(cache)?.into_iter().filter(is_version) {
        // Another process may remove it at the same time.
        if let Ok(time) = fs::metadata(&version).and_then(|metadata| metadata.modified()) {
            versions.push((time, version));
        }
    }
    versions.sort();
    for (_, version) in &versions[..versions.len().saturating_sub(MAX_KEPT)] {
        let _ = fs::remove_dir_all(version);
    }
    Ok(())
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot list {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn finish(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("Cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn find_nvcc() -> Result<PathBuf> {
    if let Some(nvcc) = env::var_os(NVCC_VARIABLE).filter(|value| !value.is_empty()) {
        return Ok(nvcc.into());
    }
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("nvcc"))
        .find(|nvcc| nvcc.is_file())
        .with_context(|| format!("No nvcc: `cargo xtask test` installs one and sets {NVCC_VARIABLE}"))
}

/// The wheels' nvcc does not know where its own libraries are.
fn libraries_of(nvcc: &Path) -> Option<PathBuf> {
    let home = nvcc.canonicalize().ok()?.parent()?.parent()?.to_path_buf();
    ["lib", "lib64"].iter().map(|name| home.join(name)).find(|folder| folder.join("libcudart.so").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_versions_of_a_program_stay() -> Result<()> {
        let cache = tempfile::tempdir()?;
        let others = ["sum@12-0000000000000009", "sum-0000000000000008.77.tmp", "sums-0000000000000007"];
        let own = ["5", "3", "4", "1", "2", "0"].map(|key| format!("sum-{key}"));
        for name in own.iter().map(String::as_str).chain(others) {
            fs::create_dir(cache.path().join(name))?;
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        remove_oldest(cache.path(), "sum")?;
        for name in own[..2].iter() {
            assert!(!cache.path().join(name).exists(), "{name}");
        }
        for name in own[2..].iter().map(String::as_str).chain(others) {
            assert!(cache.path().join(name).exists(), "{name}");
        }
        Ok(())
    }
}
