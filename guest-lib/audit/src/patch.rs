// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the functions of a static runtime jump to our libcudart.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;

use cuda_runtime_signatures::Nearest;
use object::read::ReadCache;

use crate::link_map::Object;
use crate::runtime::{self, Function, Runtime};
use crate::slot::{self, ENTRY_BYTES};
use crate::{report, stripped};

/// Maximum number of functions whose code in memory may differ from the file, because a debugger has set breakpoints.
/// With more, the file is not the one that was mapped.
const MAX_DIFFERENCES: usize = 16;
/// Exit status of a process that cannot continue.
const EXIT_STATUS: i32 = 127;

/// Redirects the static runtime of an object, if it has one; does nothing to other objects.
pub fn redirect(object: &Object) {
    let Some(file) = object.file() else { return };
    let Ok(opened) = File::open(&file) else { return };
    let name = display_name(&file);
    let by_symbols = runtime::find(&ReadCache::new(&opened));
    let runtime = match by_symbols.map_or_else(|| stripped::find(&opened), |runtime| Ok(Some(runtime))) {
        Ok(Some(runtime)) => runtime,
        Ok(None) => return,
        Err(Nearest { release, functions }) => {
            // Many programs load such an object and never use its runtime. Once they do, libcuda reports a problem.
            return report::debug(format_args!(
                "{} contains NVIDIA's static CUDA runtime without symbols, of a release that is not known here, so it stays \
                 in place and does not work: {functions} of {} functions are those of CUDA {}",
                name.display(),
                release.functions.len(),
                release.versions.join(", "),
            ));
        }
    };
    match write_entries(&runtime, object.base()) {
        Ok(0) => {}
        Ok(count) => report::debug(format_args!("{}: {count} functions go to our libcudart", name.display())),
        Err(Failure::TooOld) => report::problem(format_args!(
            "{} contains the static runtime of CUDA 10 or older, which does not work here. Build it with CUDA 11, 12 or 13.",
            name.display()
        )),
        Err(Failure::Differs) => report::problem(format_args!(
            "{} was replaced while it was loaded, so its static CUDA runtime stays in place and does not work here. \
             Start the program again.",
            name.display()
        )),
        Err(Failure::Refused(error)) => report::problem(format_args!(
            "the kernel does not let the static CUDA runtime in {} be redirected ({error}). Link it with \
             `nvcc --cudart=shared`.",
            name.display()
        )),
    }
}

/// Resolves the link through which the program's own file is opened.
fn display_name(file: &Path) -> std::path::PathBuf {
    std::fs::read_link(file).unwrap_or_else(|_| file.to_owned())
}

/// The reason why a runtime is not redirected.
#[derive(Debug)]
enum Failure {
    /// This project has no library for its version.
    TooOld,
    /// The code in memory differs from the file.
    Differs,
    /// Both ways of writing failed.
    Refused(io::Error),
}

/// Returns the number of functions that were redirected. Either all are redirected or none.
fn write_entries(runtime: &Runtime, base: usize) -> Result<usize, Failure> {
    let major = runtime.major.ok_or(Failure::TooOld)?;
    let memory = Memory::of_this_process(runtime, base).map_err(Failure::Refused)?;
    let mut before = vec![0; runtime.code.len()];
    memory.read(&mut before).map_err(Failure::Refused)?;
    // Shorter functions are jumps to others, or return a constant.
    let functions = || runtime.functions.iter().filter(|function| function.size >= ENTRY_BYTES);
    let differs = |function: &&Function| {
        let entry = function.offset..function.offset + ENTRY_BYTES;
        before.get(entry.clone()) != runtime.code.get(entry)
    };
    if functions().filter(differs).count() > MAX_DIFFERENCES {
        return Err(Failure::Differs);
    }
    let mut after = before.clone();
    let mut count = 0;
    for function in functions() {
        let place = after.get_mut(function.offset..function.offset + ENTRY_BYTES);
        if let (Some(place), Some(slot)) = (place, slot::slot(&function.name, major)) {
            place.copy_from_slice(&slot.entry());
            count += 1;
        }
    }
    memory.write(&before, &after).map_err(Failure::Refused)?;
    Ok(count)
}

/// The text of a runtime in this process.
///
/// # Invariants
///
/// `start..start + bytes` is text of an object that the dynamic linker has mapped and from which no code has run yet.
struct Memory {
    /// `/proc/self/mem`, where addresses are offsets. Writing through it needs no change of page protection. It
    /// therefore also works where memory must not be made executable (`PR_SET_MDWE`, SELinux' `execmod`).
    file: File,
    start: usize,
    bytes: usize,
    writable: bool,
}

impl Memory {
    fn of_this_process(runtime: &Runtime, base: usize) -> io::Result<Self> {
        let path = "/proc/self/mem";
        let file = OpenOptions::new().read(true).write(true).open(path).or_else(|_| File::open(path))?;
        // Objects are in the lower half of the address space, so the sum does not overflow.
        let start = base.wrapping_add(runtime.text.start as usize);
        Ok(Self { file, start, bytes: runtime.code.len(), writable: runtime.writable })
    }

    /// Reads the text. Fails where nothing is mapped.
    fn read(&self, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, self.start as u64)
    }

    /// Replaces `before` by `after`.
    fn write(&self, before: &[u8], after: &[u8]) -> io::Result<()> {
        if self.file.write_all_at(after, self.start as u64).is_ok() {
            return Ok(());
        }
        // Some kernels refuse to write read-only memory this way (CONFIG_PROC_MEM_NO_FORCE,
        // CONFIG_PROC_MEM_FORCE_PTRACE).
        self.write_unprotected(after).inspect_err(|_| {
            let mut now = vec![0; before.len()];
            if self.read(&mut now).is_ok() && now != before {
                report::problem(format_args!(
                    "a static CUDA runtime was redirected in part only; the program ends"
                ));
                // SAFETY: _exit takes no memory, and runs no code of the program, which is not complete.
                unsafe { libc::_exit(EXIT_STATUS) };
            }
        })
    }

    /// Makes the pages writable and not executable, writes them, and restores their protection.
    fn write_unprotected(&self, after: &[u8]) -> io::Result<()> {
        // SAFETY: sysconf takes no memory.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(io::Error::other)?;
        let start = self.start & !(page - 1);
        let bytes = self.start + self.bytes - start;
        let protect = |protection| {
            // SAFETY: by this type's invariant the pages are the object's text, and nothing executes it.
            match unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(start), bytes, protection) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let usual = libc::PROT_READ | libc::PROT_EXEC | if self.writable { libc::PROT_WRITE } else { 0 };
        protect(libc::PROT_READ | libc::PROT_WRITE)?;
        let target: *mut u8 = ptr::with_exposed_provenance_mut(self.start);
        let bytes = self.bytes.min(after.len());
        // SAFETY: by this type's invariant the bytes are mapped, and writable since the call above.
        unsafe { ptr::copy_nonoverlapping(after.as_ptr(), target, bytes) };
        protect(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Major;

    /// A page of text of our own, filled with `nop`.
    fn text() -> *mut u8 {
        // SAFETY: a new private mapping, which nothing else refers to.
        let page = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(page, libc::MAP_FAILED);
        // SAFETY: the new page.
        unsafe {
            ptr::write_bytes(page.cast::<u8>(), 0x90, 4096);
            assert_eq!(libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC), 0);
        }
        page.cast()
    }

    fn runtime(functions: Vec<Function>) -> Runtime {
        Runtime {
            major: Some(Major::Thirteen),
            text: 0x100..0x200,
            code: vec![0x90; 0x100],
            functions,
            writable: false,
        }
    }

    fn function(name: &str, offset: usize, size: usize) -> Function {
        Function { name: name.to_owned(), offset, size }
    }

    fn contents(page: *const u8) -> Vec<u8> {
        // SAFETY: the page of `text`, which no other code writes at this moment.
        unsafe { std::slice::from_raw_parts(page, 4096) }.to_vec()
    }

    #[test]
    fn entries_replace_long_functions_only() {
        let page = text();
        let runtime = runtime(vec![function("cudaLong", 0x20, 17), function("__cudaShort", 0x80, 16)]);
        assert_eq!(write_entries(&runtime, page.addr()).expect("own memory"), 1);
        let after = contents(page);
        let entry = slot::slot("cudaLong", Major::Thirteen).expect("a slot").entry();
        assert_eq!(after[0x120..0x131], entry);
        assert!(after[..0x120].iter().chain(&after[0x131..]).all(|byte| *byte == 0x90));
    }

    #[test]
    fn both_ways_write_the_same() {
        let page = text();
        let memory = Memory {
            file: File::open("/proc/self/mem").expect("our memory"),
            start: page.addr() + 0x100,
            bytes: 0x100,
            writable: false,
        };
        // The file is opened for reading only, which forces the fallback that makes the pages writable.
        memory.write(&[0x90; 0x100], &[0xc3; 0x100]).expect("own memory");
        let after = contents(page);
        assert!(after[0x100..0x200].iter().all(|byte| *byte == 0xc3));
        assert!(after[..0x100].iter().chain(&after[0x200..]).all(|byte| *byte == 0x90));
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
        // The kernel merges the adjacent pages of other tests.
        let holds_the_page = |line: &&str| {
            let (start, rest) = line.split_once('-').expect("a range");
            let (end, _) = rest.split_once(' ').expect("a range");
            let address = |text| usize::from_str_radix(text, 16).expect("an address");
            (address(start)..address(end)).contains(&page.addr())
        };
        let line = maps.lines().find(holds_the_page);
        assert!(line.is_some_and(|line| line.contains(" r-xp ")), "{line:?}");
    }

    #[test]
    fn a_file_that_was_replaced_is_left_alone() {
        let page = text();
        let functions = (0..=MAX_DIFFERENCES).map(|at| function("cudaX", at, 17)).collect();
        let mut other = runtime(functions);
        other.code.fill(0x91);
        assert!(matches!(write_entries(&other, page.addr()), Err(Failure::Differs)));
        assert!(contents(page).iter().all(|byte| *byte == 0x90));
    }

    #[test]
    fn old_runtimes_are_left_alone() {
        let old = Runtime { major: None, ..runtime(Vec::new()) };
        assert!(matches!(write_entries(&old, 0), Err(Failure::TooOld)));
    }
}
