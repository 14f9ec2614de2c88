// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `cargo xtask api-coverage`: writes `docs/api-coverage.md` from the symbols of the built libraries.
//!
//! A name that is not implemented yet is a weak alias of the library's "not supported" function. So the page is
//! generated from the symbol table and cannot differ from the code.

mod refused;
mod rules;
mod vendor;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use walkdir::WalkDir;

use refused::{REFUSED_NATIVELY, is_refused, refused_natively};

/// A library that the page lists.
struct Listed {
    title: &'static str,
    /// Below `target/stack`.
    path: &'static str,
    /// The error of a missing name.
    error: &'static str,
    /// The versions that have a name: lists of names, each with the version.
    versions: &'static [(&'static str, &'static str)],
    /// The reason for which some are missing.
    why: &'static str,
}

const NOT_SUPPORTED: &str = "CUDA_ERROR_NOT_SUPPORTED or cudaErrorNotSupported (801)";

const LIBRARIES: &[Listed] = &[
    Listed {
        title: "Runtime API (`libcudart.so.13`)",
        path: "guest/lib/libcudart.so.13",
        error: NOT_SUPPORTED,
        versions: RUNTIMES,
        why: "",
    },
    Listed {
        title: "Runtime API of CUDA 12 (`libcudart.so.12`)",
        path: "guest/lib/libcudart.so.12",
        error: NOT_SUPPORTED,
        versions: RUNTIMES,
        why: "",
    },
    Listed {
        title: "Runtime API of CUDA 11 (`libcudart.so.11.0`)",
        path: "guest/lib/libcudart.so.11.0",
        error: NOT_SUPPORTED,
        versions: RUNTIMES,
        why: "",
    },
    Listed {
        title: "Driver API in the guest (`libcuda.so.1`)",
        path: "guest/lib/libcuda.so.1",
        error: NOT_SUPPORTED,
        versions: &[],
        why: WHY,
    },
    Listed {
        title: "Management library in the guest (`libnvidia-ml.so.1`)",
        path: "guest/lib/libnvidia-ml.so.1",
        error: "NVML_ERROR_NOT_SUPPORTED (3), or NVML_ERROR_NO_PERMISSION (4) for what changes the card",
        versions: &[],
        why: WHY_NVML,
    },
];

/// Reasons for functions of the driver API.
const WHY: &str = "\n\
    - `cuCoredump…` keeps what is set and gives it back, but no dump is ever written: the file would be the host's, and a\n  \
      guest must not name those.\n\
    - `cuCheckpoint…` knows the calling process only, which always runs: nothing locks it, and no thread would restore it.\n  \
      NVIDIA's driver locks any process of the user and takes its memory off the GPU.\n\
    - `cuMemGetHandleForAddressRange`: a DMA buffer would be for other devices of the host, and the attribute\n  \
      `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED` says that there are none. What NVIDIA's driver refuses is refused alike.\n\
    - External memory is an allocation of `cuMemCreate` that a process of the guest has exported. An H200 takes the file\n  \
      descriptor of one for an external semaphore, too, which is in no manual; here it is refused as other files are.\n\
    - Host memory of `cuMemCreate`, and pools of NUMA nodes (`cuMemPoolCreate`), have no handles for other\n  \
      processes: `CUDA_ERROR_NOT_SUPPORTED`. Host memory is not bound to its node, and all devices reach it as soon as one may.\n\
    - Host memory of `cuMemCreate` can be mapped in reservations of up to 256 GiB for which the program has not asked for an\n  \
      address, nor for an alignment of more than 1 GiB, and not beside memory of a device in the same reservation:\n  \
      `CUDA_ERROR_NOT_SUPPORTED`. The same holds where memory of a device was mapped before, if the driver keeps the addresses.\n  \
      Linear copies and fills may reach from one mapping into the next; those of rows (`cuMemcpy2D`, `cuMemcpy3D`,\n  \
      `cuMemsetD2D8`) and nodes of graphs may not: `CUDA_ERROR_INVALID_VALUE`. The GPU reaches a\n  \
      mapping through one context. When it is destroyed, another one takes over, but kernels that other contexts run meanwhile may\n  \
      fault: wait for those that use the mapping before. Without a virtual machine (virtio-user), at most\n  \
      about 500 mappings can be reached by devices.\n";

/// Reasons for functions of the management library.
const WHY_NVML: &str = "\n\
    - What the card says of itself is the answer of the host's library (`protocol/src/cuda/getter`); where it has none, as with\n  \
      the emulator, those names answer NVML_ERROR_NOT_SUPPORTED, too.\n\
    - Serial numbers, the PDI, the place in a rack, names of hosts and interrupts tell machines apart, and what processes use\n  \
      the card, only the host knows by its own numbers: a guest is told none of it.\n\
    - Measurements by programs (`nvmlGpm…`) are of the whole card.\n";

const RUNTIMES: &[(&str, &str)] = &[
    ("11.8", "guest-lib/libcudart/names/11.8.txt"),
    ("12.9", "guest-lib/libcudart/names/12.9.txt"),
    ("13.0", "guest-lib/libcudart/names/13.0.txt"),
];

/// The programs that show what works.
const PROGRAMS: &str = "tests/cuda";
/// The maximum number of programs that the page lists for a function.
const MAX_PROGRAMS: usize = 3;

/// Exported functions of a library and whether each is real.
fn exports(library: &Path) -> Result<BTreeMap<String, bool>> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .output()
        .context("cannot run nm: install binutils")?;
    if !output.status.success() {
        bail!(
            "nm {}: {}: run `cargo xtask build` first",
            library.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let text = String::from_utf8(output.stdout).context("nm printed something other than text")?;
    Ok(text.lines().filter_map(parse_symbol).collect())
}

/// `0000… T cudaMalloc@@libcudart.so.13` → (`cudaMalloc`, real).
fn parse_symbol(line: &str) -> Option<(String, bool)> {
    let mut words = line.split_whitespace().skip(1);
    let kind = words.next()?;
    let name = words.next()?.split('@').next()?;
    let cuda = ["cu", "__cuda", "nvml", "fftw"].iter().any(|prefix| name.starts_with(prefix));
    match kind {
        "T" if cuda => Some((name.to_owned(), !is_refused(name))),
        "W" if cuda => Some((name.to_owned(), false)),
        _ => None,
    }
}

/// The test programs: name, and the words of the source.
fn programs(root: &Path) -> Result<Vec<(String, BTreeSet<String>)>> {
    let mut programs = BTreeMap::<String, BTreeSet<String>>::new();
    for file in WalkDir::new(root.join(PROGRAMS)) {
        let file = file.context("cannot list the programs")?;
        let path = file.path();
        if path.extension().is_some_and(|end| end == "cu" || end == "cpp") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(path)?;
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned);
            programs.entry(name).or_default().extend(words);
        }
    }
    Ok(programs.into_iter().collect())
}

/// Returns the name as programs write it: headers turn `cuMemAlloc` into `cuMemAlloc_v2`.
fn written(name: &str) -> &str {
    let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match name.rsplit_once("_v") {
        Some((plain, number)) if number.chars().all(|digit| digit.is_ascii_digit()) => plain,
        _ => name,
    }
}

/// The programs that use a function, as a table's cell.
fn tested_by(programs: &[(String, BTreeSet<String>)], name: &str) -> String {
    let uses = |words: &BTreeSet<String>| words.contains(name) || words.contains(written(name));
    let found: Vec<&str> =
        programs.iter().filter(|(_, words)| uses(words)).map(|(program, _)| program.as_str()).collect();
    let more = if found.len() > MAX_PROGRAMS { " …" } else { "" };
    format!("{}{more}", found[..found.len().min(MAX_PROGRAMS)].join(", "))
}

/// `one`, `two`
fn listed<'n>(names: impl Iterator<Item = &'n String>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn section(page: &mut String, root: &Path, stack: &Path, library: &Listed) -> Result<()> {
    let names = exports(&stack.join(library.path))?;
    let (programs, rules) = (programs(root)?, rules::counts(root)?);
    let lists = library.versions.iter().map(|(version, file)| {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
        Ok((*version, text.lines().map(str::to_owned).collect::<BTreeSet<_>>()))
    });
    let lists = lists.collect::<Result<Vec<_>>>()?;
    let real: Vec<&String> = names.iter().filter(|(_, real)| **real).map(|(name, _)| name).collect();
    let (native, missing): (Vec<&String>, Vec<&String>) = names
        .iter()
        .filter(|(_, real)| !**real)
        .map(|(name, _)| name)
        .partition(|name| refused_natively(name));
    let (count, all) = (real.len(), names.len());
    write!(page, "\n## {}\n\n{count} of {all} names are real", library.title)?;
    match native.len() {
        0 => write!(page, ".\n\n### Real\n\n")?,
        more => write!(page, "; {more} more are refused, as an H200 refuses them.\n\n### Real\n\n")?,
    }
    let versions = if lists.is_empty() { "" } else { " in |" };
    let rule = if lists.is_empty() { "" } else { " --- |" };
    write!(page, "| name |{versions} used by, for example | rules |\n| --- |{rule} --- | --- |\n")?;
    for name in real {
        write!(page, "| `{name}` |")?;
        if !lists.is_empty() {
            let has = lists.iter().filter(|(_, names)| names.contains(name)).map(|(version, _)| *version);
            write!(page, " {} |", has.collect::<Vec<_>>().join(", "))?;
        }
        let count = rules.get(name).filter(|count| **count > 0).map(usize::to_string).unwrap_or_default();
        writeln!(page, " {} | {count} |", tested_by(&programs, name))?;
    }
    if !native.is_empty() {
        write!(page, "\n### Refused by NVIDIA's library, too (H200, one GPU, Linux, driver 580)\n\n")?;
        for (reason, group) in REFUSED_NATIVELY {
            let names = listed(native.iter().copied().filter(|name| group.contains(&name.as_str())));
            if !names.is_empty() {
                writeln!(page, "- {reason}: {names}")?;
            }
        }
    }
    let missing = if missing.is_empty() { "None.".to_owned() } else { listed(missing.into_iter()) };
    write!(page, "\n### Not supported: {}\n\n{missing}\n{}", library.error, library.why)?;
    Ok(())
}

/// Writes the page. With `check`, fails instead when it differs from the existing one.
pub fn run(root: &Path, stack: &Path, check: bool) -> Result<()> {
    let mut page = String::from(
        "# API coverage\n\n\
         Written by `cargo xtask api-coverage` from the symbol tables of the built libraries and the sources of\n\
         `tests/cuda`; do not edit. Every name of CUDA 13.0 is exported, of 12.9 by `libcudart.so.12`, and\n\
         of 11.8 by `libcudart.so.11.0`. *Real* names are implemented; the others answer the error that each section names. The last column is the\n\
         number of rules for wrong calls in `tests/rules`.\n\n\
         The runtime libraries work over any driver library. In a guest, their names for external semaphores, graphics\n\
         and NvSciSync end in names of the driver API that are refused there.\n",
    );
    for library in LIBRARIES {
        section(&mut page, root, stack, library)?;
    }
    let cufftw = exports(&stack.join(vendor::CUFFTW))?.len();
    vendor::section(&mut page, cufftw);
    let target = root.join("docs/api-coverage.md");
    if check {
        let there = fs::read_to_string(&target).unwrap_or_default();
        if there != page {
            bail!("docs/api-coverage.md is out of date: run `cargo xtask api-coverage` and commit it");
        }
        println!("docs/api-coverage.md is up to date");
        return Ok(());
    }
    fs::write(&target, page).with_context(|| format!("cannot write {}", target.display()))?;
    println!("wrote {}", target.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_programs_write_them() {
        assert_eq!(written("cuMemcpyHtoD_v2_ptds"), "cuMemcpyHtoD");
        assert_eq!(written("cudaMemcpyAsync_ptsz"), "cudaMemcpyAsync");
        assert_eq!(written("cuStream_value"), "cuStream_value");
        let programs = vec![("one".to_owned(), BTreeSet::from(["cuMemAlloc".to_owned()]))];
        assert_eq!(tested_by(&programs, "cuMemAlloc_v2"), "one");
        assert_eq!(tested_by(&programs, "cuMemFree_v2"), "");
    }

    #[test]
    fn symbols_are_parsed() {
        assert_eq!(
            parse_symbol("0000000000011f00 T cudaMalloc@@libcudart.so.13"),
            Some(("cudaMalloc".into(), true))
        );
        assert_eq!(parse_symbol("0000000000011f00 W cuTexRefCreate"), Some(("cuTexRefCreate".into(), false)));
        assert_eq!(parse_symbol("0000000000000000 A libcudart.so.13@@libcudart.so.13"), None);
        assert_eq!(parse_symbol("                 U malloc"), None);
    }
}
