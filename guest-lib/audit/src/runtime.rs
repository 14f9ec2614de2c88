// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recognises a static CUDA runtime in an object by its symbol table ([`stripped`](crate::stripped): without one).
//!
//! `libcudart_static.a` is one object file, whose functions stay adjacent when it is linked. The names of its internal
//! functions are `libcudart_static_` and a digest, those of CUDA 11 `__cudart` and a number. Programs keep these names
//! unless they are stripped. An object that merely has functions of the same names, such as the trampolines of JAX's
//! plugin, has none of the internal ones.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use cuda_runtime_signatures::looks_public;
use object::elf::{EM_X86_64, FileHeader64, PF_X, PT_LOAD, SHN_LORESERVE, SHT_SYMTAB, STT_FUNC, Sym64};
use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex};

/// Prefixes of the names of the runtime's internal functions, since CUDA 12 and before.
const INTERNAL: [&[u8]; 2] = [b"libcudart_static_", b"__cudart"];
/// An object with fewer public functions does not contain a whole runtime. The smallest known runtime has 395.
const MIN_PUBLIC: usize = 300;
/// An object with fewer internal functions has no static runtime. The smallest known runtime has 1,190.
const MIN_INTERNAL: usize = 100;
/// Maximum bytes from the first to the last function of one runtime. A runtime's text has about 500 KiB.
const MAX_TEXT: u64 = 64 << 20;

/// The names that our libraries define.
static PUBLIC: LazyLock<HashSet<&'static [u8]>> = LazyLock::new(|| {
    let lists = [
        include_str!("../../libcudart/names/11.8.txt"),
        include_str!("../../libcudart/names/12.9.txt"),
        include_str!("../../libcudart/names/13.0.txt"),
        include_str!("../../libcudart/names/13.5.txt"),
    ];
    lists.iter().flat_map(|list| list.lines()).map(str::as_bytes).collect()
});

/// A major version of the runtime for which this project has a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Major {
    /// CUDA 11.
    Eleven,
    /// CUDA 12.
    Twelve,
    /// CUDA 13.
    Thirteen,
}

impl Major {
    /// Number of major versions.
    pub const COUNT: usize = 3;

    /// Returns the version whose library's soname begins with this number.
    pub fn of(number: u32) -> Option<Self> {
        [Self::Eleven, Self::Twelve, Self::Thirteen].into_iter().find(|major| major.number() == number)
    }

    /// Returns what follows `libcudart.so.` in the library's soname.
    pub fn version(self) -> &'static str {
        match self {
            Self::Eleven => "11.0",
            Self::Twelve => "12",
            Self::Thirteen => "13",
        }
    }

    /// Returns the first number of it.
    pub fn number(self) -> u32 {
        match self {
            Self::Eleven => 11,
            Self::Twelve => 12,
            Self::Thirteen => 13,
        }
    }
}

/// A public function of a static runtime.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// For example `cudaMalloc`.
    pub name: String,
    /// The position relative to the start of [`Runtime::text`].
    pub offset: usize,
    /// Bytes of the function's code.
    pub size: usize,
}

/// A static runtime in a file.
#[derive(Debug)]
pub struct Runtime {
    /// `None` for CUDA 10 and older.
    pub major: Option<Major>,
    /// Addresses of the text in the file.
    pub text: Range<u64>,
    /// The contents of `text` in the file.
    pub code: Vec<u8>,
    /// Functions that programs call.
    pub functions: Vec<Function>,
    /// Set if the segment of `text` is mapped for writing.
    pub writable: bool,
}

/// Returns the static runtime in the file `data`; `None` if it has no symbol table or no such runtime.
pub fn find<'data>(data: impl ReadRef<'data>) -> Option<Runtime> {
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    if header.e_machine(LittleEndian) != EM_X86_64 {
        return None;
    }
    let sections = header.sections(LittleEndian, data).ok()?;
    let table = sections.iter().find(|section| section.sh_type(LittleEndian) == SHT_SYMTAB)?;
    let strings = sections.section(SectionIndex(table.sh_link(LittleEndian) as usize)).ok()?;
    let strings = strings.data(LittleEndian, data).ok()?;
    INTERNAL.iter().find(|prefix| memchr::memmem::find(strings, prefix).is_some())?;
    let symbols: &[Sym64<LittleEndian>] = table.data_as_array(LittleEndian, data).ok()?;
    let census = Census::of(symbols, strings);
    if census.public < MIN_PUBLIC || census.internal < MIN_INTERNAL {
        return None;
    }
    let text = census.text.clone();
    if text.end - text.start > MAX_TEXT {
        return None;
    }
    let segments = header.program_headers(LittleEndian, data).ok()?;
    let segment = segments.iter().find(|segment| {
        let start = segment.p_vaddr(LittleEndian);
        let end = start.saturating_add(segment.p_filesz(LittleEndian));
        segment.p_type(LittleEndian) == PT_LOAD
            && segment.p_flags(LittleEndian) & PF_X != 0
            && start <= text.start
            && text.end <= end
    })?;
    let place = segment.p_offset(LittleEndian).checked_add(text.start - segment.p_vaddr(LittleEndian))?;
    let code = data.read_bytes_at(place, text.end - text.start).ok()?.to_vec();
    let writable = segment.p_flags(LittleEndian) & object::elf::PF_W != 0;
    Some(Runtime { major: census.major(), text, code, functions: census.functions(), writable })
}

/// Counts of the runtime's symbols in a symbol table.
struct Census<'data> {
    public: usize,
    internal: usize,
    text: Range<u64>,
    /// Public functions, and others with similar names: name, address, size.
    named: Vec<(&'data str, u64, u64)>,
}

impl<'data> Census<'data> {
    fn of(symbols: &[Sym64<LittleEndian>], strings: &'data [u8]) -> Self {
        let mut census = Self { public: 0, internal: 0, text: 0..0, named: Vec::new() };
        for symbol in symbols {
            let section = symbol.st_shndx(LittleEndian);
            if symbol.st_type() != STT_FUNC || section == 0 || section >= SHN_LORESERVE {
                continue;
            }
            let start = symbol.st_name(LittleEndian) as usize;
            let Some(name) = strings.get(start..) else { continue };
            let name = &name[..memchr::memchr(0, name).unwrap_or(name.len())];
            let (address, size) = (symbol.st_value(LittleEndian), symbol.st_size(LittleEndian));
            let is_public = PUBLIC.contains(name);
            // Internal functions do not count here: the linker puts the cold parts of functions in front of all other
            // text.
            if is_public {
                let (text, end) = (&census.text, address.saturating_add(size));
                census.text =
                    if text.is_empty() { address..end } else { text.start.min(address)..text.end.max(end) };
            }
            census.public += usize::from(is_public);
            census.internal += usize::from(INTERNAL.iter().any(|prefix| name.starts_with(prefix)));
            if is_public || looks_public(name) {
                census.named.extend(str::from_utf8(name).ok().map(|name| (name, address, size)));
            }
        }
        census
    }

    /// `cudaGetDeviceProperties_v2` exists in CUDA 12 only, which removed `cudaBindTexture`. CUDA 11.0 added
    /// `cudaCtxResetPersistingL2Cache`.
    fn major(&self) -> Option<Major> {
        let has = |wanted: &str| self.named.iter().any(|(name, ..)| *name == wanted);
        if has("cudaGetDeviceProperties_v2") {
            return Some(Major::Twelve);
        }
        if !has("cudaBindTexture") {
            return Some(Major::Thirteen);
        }
        has("cudaCtxResetPersistingL2Cache").then_some(Major::Eleven)
    }

    /// Functions between the runtime's own belong to the runtime, including those of later releases. Functions of such
    /// names elsewhere belong to the program: nvcc's `host_runtime.h` defines some (`__cudaUnregisterBinaryUtil`).
    fn functions(&self) -> Vec<Function> {
        let inside = self.named.iter().filter(|(_, address, _)| self.text.contains(address));
        let function = |(name, address, size): &(&str, u64, u64)| {
            let offset = usize::try_from(address - self.text.start).ok()?;
            Some(Function { name: (*name).to_owned(), offset, size: usize::try_from(*size).ok()? })
        };
        inside.filter_map(function).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_runtime() {
        for name in ["cudaMalloc", "__cudaRegisterFunction", "cudaFutureCall"] {
            assert!(looks_public(name.as_bytes()), "{name}");
        }
        for name in ["cudart", "_cudaX", "cuda", "cuMemAlloc_v2", "__cuda_sm20_div", "mycudaMalloc"] {
            assert!(!looks_public(name.as_bytes()), "{name}");
        }
        assert!(PUBLIC.contains(&b"cudaGetDeviceProperties_v2"[..]) && PUBLIC.len() > 450);
    }

    #[test]
    fn versions_differ_by_names() {
        let of = |names: &[&'static str]| {
            let named = names.iter().map(|name| (*name, 0, 0)).collect();
            Census { public: 0, internal: 0, text: 0..0, named }.major()
        };
        assert_eq!(of(&["cudaMalloc", "cudaBindTexture"]), None);
        assert_eq!(of(&["cudaBindTexture", "cudaCtxResetPersistingL2Cache"]), Some(Major::Eleven));
        assert_eq!(of(&["cudaCtxResetPersistingL2Cache", "cudaGetDeviceProperties_v2"]), Some(Major::Twelve));
        assert_eq!(of(&["cudaCtxResetPersistingL2Cache"]), Some(Major::Thirteen));
    }

    #[test]
    fn other_files_have_none() {
        for contents in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", &[0x7f; 4096]] {
            assert!(find(contents).is_none());
        }
        let own = std::fs::read("/proc/self/exe").expect("this program");
        assert!(find(&own[..]).is_none());
    }
}
