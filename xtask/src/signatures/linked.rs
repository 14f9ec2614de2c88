// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links the runtimes into programs in several ways, removes the symbols, and looks for the runtimes there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cuda_runtime_signatures::{Release, Sections};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

use crate::progress::{output_of, say};
use crate::setup::runtimes::StaticRuntime;

/// Needs one function, so that the archive is linked, and has code and data of its own before and behind.
const PROGRAM: &str = "\
extern int cudaGetDeviceCount(int *);
int table[5000] = {1};
int other(int x) { return table[x & 4095] * x; }
int main(int count, char **arguments) { return cudaGetDeviceCount(table) + other(count); }
";
/// What the archive needs besides.
const LIBRARIES: [&str; 4] = ["-lpthread", "-ldl", "-lrt", "-lm"];
/// Ways of linking, each with each linker.
const WAYS: [(&str, &[&str]); 5] = [
    ("pie", &["-pie"]),
    ("no-pie", &["-no-pie"]),
    ("sections", &["-ffunction-sections", "-Wl,--gc-sections", "-Wl,-O2"]),
    ("now", &["-Wl,-z,now", "-Wl,-z,relro", "-fcf-protection=full"]),
    ("library", &["-shared", "-fPIC"]),
];

/// Checks that each runtime is found in each program, and in no program without one.
pub fn check(runtimes: &[StaticRuntime]) -> Result<()> {
    let releases = cuda_runtime_signatures::all();
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("program.c");
    fs::write(&source, PROGRAM)?;
    let linkers = linkers(folder.path())?;
    for runtime in runtimes {
        for (linker, choice) in &linkers {
            for (way, flags) in WAYS {
                let program = folder.path().join("program");
                let mut cc = Command::new("cc");
                cc.args(["-O1", "-w", "-o"])
                    .arg(&program)
                    .args(choice)
                    .args(flags)
                    .arg(&source)
                    .arg(&runtime.archive);
                output_of(cc.args(LIBRARIES))?;
                is_found(&program, runtime, &releases)
                    .with_context(|| format!("{} linked by {linker}, {way}", runtime.version))?;
            }
        }
        say(&format!(
            "{}: found in programs of {} linkers, {} ways each",
            runtime.version,
            linkers.len(),
            WAYS.len()
        ));
    }
    has_none(Path::new("/proc/self/exe"), &releases)
}

/// The linkers of this machine, with the compiler's options for each: the C compiler's own, and that of Rust.
fn linkers(folder: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let sysroot = PathBuf::from(output_of(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
    let lld = sysroot.join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld");
    let named = |name: &str| (name.to_owned(), vec![format!("-fuse-ld={name}")]);
    let lld = ("lld".to_owned(), vec!["-fuse-ld=lld".to_owned(), format!("-B{}", lld.display())]);
    let empty = folder.join("empty.c");
    fs::write(&empty, "int main(void) { return 0; }\n")?;
    let works = |(_, choice): &(String, Vec<String>)| {
        output_of(Command::new("cc").arg("-o").arg(folder.join("empty")).arg(&empty).args(choice)).is_ok()
    };
    let there: Vec<_> = [named("bfd"), named("gold"), lld].into_iter().filter(works).collect();
    ensure!(there.len() >= 2, "only {there:?} of ld.bfd, ld.gold and Rust's ld.lld work: install binutils");
    Ok(there)
}

/// Compares what is found without symbols with the symbols.
fn is_found(program: &Path, runtime: &StaticRuntime, releases: &[Release]) -> Result<()> {
    let expected = addresses(program)?;
    output_of(Command::new("strip").arg(program))?;
    let file = File::open(program)?;
    let sections = Sections::of(&file).context("its imports do not look like a runtime's")?;
    let found = sections.find(releases);
    let found = found.map_err(|nearest| {
        anyhow::anyhow!("only {} functions of {:?} are there", nearest.functions, nearest.release.versions)
    })?;
    let found = found.context("there is no piece of a runtime")?;
    let release = found.found.release;
    ensure!(release.versions.contains(&runtime.version), "it looks like {:?}", release.versions);
    for (function, place) in release.functions.iter().zip(&found.found.places) {
        let (address, expected) = (found.address + *place as u64, expected.get(&function.name));
        ensure!(
            expected == Some(&address),
            "{} is at {address:#x}, by its symbol {expected:x?}",
            function.name
        );
    }
    // A runtime that is not whole is none.
    let mut cut = fs::read(program)?;
    let last = found.found.places.last().zip(release.functions.last()).context("a release has functions")?;
    let code = &found.code[*last.0..*last.0 + last.1.body.size()];
    let at = memchr::memmem::find(&cut, code).context("the code is in the file")?;
    cut[at] ^= 0xff;
    fs::write(program, cut)?;
    let file = File::open(program)?;
    let sections = Sections::of(&file).context("its imports do not look like a runtime's")?;
    ensure!(!matches!(sections.find(releases), Ok(Some(_))), "it is found although a function differs");
    Ok(())
}

fn has_none(program: &Path, releases: &[Release]) -> Result<()> {
    let file = File::open(program)?;
    let found = Sections::of(&file).map(|sections| sections.find(releases));
    ensure!(matches!(found, None | Some(Ok(None))), "{} has no runtime, and one is found", program.display());
    Ok(())
}

/// The addresses of the program's functions, by name.
fn addresses(program: &Path) -> Result<BTreeMap<String, u64>> {
    let bytes = fs::read(program)?;
    let file = ElfFile64::<object::LittleEndian>::parse(&*bytes)?;
    let symbols = file.symbols().filter(|symbol| symbol.is_definition());
    Ok(symbols.filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address()))).collect())
}
