// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device memory that an image of device code takes when it is loaded: its code and its variables.
//!
//! The driver does not report it: it loads late, and finds variables only by their names. So images are
//! read here, in sessions with a limit. An image that this reader does not understand is refused, because its
//! variables could be of any size.

use std::ffi::CString;
use std::ops::RangeInclusive;

use cuda_fatbin::{
    Accepted, CONTAINER_MAGIC, Code, HEADER_BYTES, container_bytes, each_code, unpacked_bytes, variables,
};
use log::debug;
use memchr::memmem::Finder;
use object::elf::{SHF_ALLOC, SHT_LOPROC, SHT_NOBITS};
use object::read::elf::{ElfFile64, ElfSymbol64, SectionHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

use crate::copy_charge::charge_copy;
use crate::gpu::{CuResult, CudaError};

/// The sections of a cubin that are loaded begin with one of these, whatever their flags say.
const LOADED: [&str; 3] = [".text", ".nv.global", ".nv.constant"];
/// CUDA's own types of sections for memory: of variables and of constants.
const MEMORY: [RangeInclusive<u32>; 2] =
    [SHT_LOPROC + 0x4..=SHT_LOPROC + 0xa, SHT_LOPROC + 0x64..=SHT_LOPROC + 0x7e];
/// The sections of memory that is not part of an image begin with one of these, and are not larger than this.
const ON_CHIP: [&str; 2] = [".nv.shared", ".nv.local"];
const MAX_ON_CHIP: u64 = 1 << 20;
/// The sections of variables begin with this, and those with addresses in their initial values with one of these.
const VARIABLES: &str = ".nv.global";
const RELOCATIONS: [&str; 2] = [".rel.nv.global", ".rela.nv.global"];
/// Less than this is left between variables, in bytes.
const MAX_ALIGNMENT: u64 = 512;
/// The maximum bytes of an entry when it is unpacked. This reader has no use for larger ones.
pub const MAX_UNPACKED: usize = 512 << 20;

/// A device that executes code.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its compute capability times ten.
    pub architecture: u32,
    /// True if it executes PTX alone, as the emulator does.
    pub ptx_only: bool,
}

/// Returns the bytes that `image` (with a NUL after it) takes.
///
/// Errors: `CUDA_ERROR_INVALID_IMAGE`; `CUDA_ERROR_OUT_OF_MEMORY` without room to unpack it.
pub fn device_bytes(image: &[u8], target: Target) -> CuResult<u64> {
    let bytes = if image.starts_with(&CONTAINER_MAGIC.to_le_bytes()) {
        let unpacked = containers(image).filter_map(|container| unpacked_bytes(container?).ok()).max();
        // One entry is unpacked at a time.
        let most = unpacked.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0).min(MAX_UNPACKED);
        let _charge = charge_copy(most)?;
        of_containers(image, target)
    } else {
        of_code(image)
    };
    bytes.ok_or_else(|| {
        debug!("An image of {} bytes does not show what memory it takes", image.len());
        CudaError::INVALID_IMAGE
    })
}

/// Returns the containers of an image: linked ones lie one after the other, at multiples of 8. `None`: one that is cut off.
pub fn containers(image: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = image;
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<HEADER_BYTES>()?;
        if !header.starts_with(&CONTAINER_MAGIC.to_le_bytes()) {
            return None;
        }
        let container = container_bytes(header).ok().and_then(|bytes| rest.get(..bytes));
        let next = container.and_then(|container| container.len().checked_next_multiple_of(8));
        rest = next.and_then(|next| rest.get(next..)).unwrap_or(&[]);
        Some(container)
    })
}

fn of_containers(image: &[u8], target: Target) -> Option<u64> {
    let mut sum = 0u64;
    for container in containers(image) {
        sum = sum.checked_add(of_container(container?, target)?)?;
    }
    Some(sum)
}

/// Returns the bytes of the largest code that the driver may choose. Usually that is the machine code that suits the device best, but
/// it takes other machine code, or compiles PTX, where that is for another system, damaged, or of a later version.
fn of_container(container: &[u8], target: Target) -> Option<u64> {
    let (mut has_machine_code, mut has_other, mut text) = (false, false, None);
    kinds(container, |code| match code {
        Code::Machine(_) => has_machine_code |= rank(code, target).is_some(),
        Code::Ptx(_) if rank(code, target) > text.and_then(|text| rank(text, target)) => text = Some(code),
        Code::Ptx(_) => {}
        Code::Other(_) => has_other = true,
    })?;
    // The compiler could make code of it whose variables this reader does not find.
    if has_other && !has_machine_code && !target.ptx_only {
        return None;
    }
    let mut most = Some(0);
    let accept = |code| match code {
        Code::Machine(_) => rank(code, target).is_some(),
        code => Some(code) == text,
    };
    each_code(container, MAX_UNPACKED, accept, |_, bytes| {
        most = most.zip(of_code(bytes)).map(|(most, bytes)| most.max(bytes));
    })
    .ok()?;
    most
}

/// Returns the names of the variables of the code of `image` that a device uses: contents that only its context keeps. `None` if
/// it has contents without a name: it allocates device memory by itself, or is an image that this reader does not understand. `None`
/// also for variables that begin with addresses, which may be others when the image is loaded again.
pub fn variable_names(image: &[u8], target: Target) -> Option<Vec<CString>> {
    let allocates = Finder::new("malloc");
    let mut names = Some(Vec::new());
    let mut take = |code: &[u8]| {
        let more = names_of_code(code).filter(|_| allocates.find(code).is_none());
        names = names.take().zip(more).map(|(all, more)| [all, more].concat());
    };
    if image.starts_with(&CONTAINER_MAGIC.to_le_bytes()) {
        for container in containers(image) {
            each_used(container?, target, &mut take)?;
        }
    } else {
        take(image);
    }
    names
}

/// Returns the names of the variables of a cubin or PTX text. Constants that the host has not asked for are not among those of a cubin.
fn names_of_code(code: &[u8]) -> Option<Vec<CString>> {
    if !code.starts_with(b"\x7fELF") {
        let end = code.iter().position(|&byte| byte == 0).unwrap_or(code.len());
        let mut names = Some(Vec::new());
        variables::each(std::str::from_utf8(&code[..end]).ok()?, |variable| {
            if variable.is_reference {
                return;
            }
            let name = CString::new(variable.name).ok().filter(|_| !variable.has_addresses);
            names = names.take().zip(name).map(|(mut all, name)| {
                all.push(name);
                all
            });
        })?;
        return names;
    }
    let file = ElfFile64::<Endianness>::parse(code).ok()?;
    let endian = file.endian();
    let mut names = Vec::new();
    for section in file.sections() {
        let (name, header) = (section.name().ok()?, section.elf_section_header());
        let is_on_chip = ON_CHIP.iter().any(|start| name.starts_with(start));
        let is_zeroed = header.sh_type(endian) == SHT_NOBITS && !is_on_chip;
        if RELOCATIONS.iter().any(|start| name.starts_with(start)) {
            return None;
        }
        if !is_zeroed && !name.starts_with(VARIABLES) {
            continue;
        }
        let mut parts = Vec::new();
        let is_in = |symbol: &ElfSymbol64<'_, '_, Endianness>| {
            symbol.section_index() == Some(section.index()) && symbol.size() > 0
        };
        for symbol in file.symbols().filter(is_in) {
            parts.push((symbol.address().saturating_sub(section.address()), symbol.size()));
            names.push(CString::new(symbol.name_bytes().ok()?).ok()?);
        }
        // All of it must have names, but for alignment.
        parts.sort_unstable();
        let mut end = 0u64;
        for (start, bytes) in parts {
            if start.saturating_sub(end) >= MAX_ALIGNMENT {
                return None;
            }
            end = end.max(start.checked_add(bytes)?);
        }
        if section.size().saturating_sub(end) >= MAX_ALIGNMENT {
            return None;
        }
    }
    for symbol in file.symbols().filter(|symbol| symbol.is_common()) {
        names.push(CString::new(symbol.name_bytes().ok()?).ok()?);
    }
    Some(names)
}

/// Orders the code that a device executes: machine code comes before PTX, later architectures before earlier ones.
fn rank(code: Code, target: Target) -> Option<(u8, i64)> {
    let own = target.architecture;
    let accepted = Accepted { architecture: own, newer: target.ptx_only };
    match code {
        Code::Machine(other) => {
            (!target.ptx_only && other / 10 == own / 10 && other <= own).then_some((1, i64::from(other)))
        }
        Code::Ptx(other) => accepted.rank(other).map(|rank| (0, rank)),
        Code::Other(_) => None,
    }
}

/// Passes `visit` the code of a container that the driver usually chooses, unpacked. `None`: it is damaged.
pub fn each_used(container: &[u8], target: Target, mut visit: impl FnMut(&[u8])) -> Option<()> {
    let mut best: Option<Code> = None;
    let seen = |code| {
        if rank(code, target) > best.and_then(|best| rank(best, target)) {
            best = Some(code);
        }
    };
    kinds(container, seen)?;
    each_code(container, MAX_UNPACKED, |code| Some(code) == best, |_, bytes| visit(bytes)).ok()
}

/// Calls `see` for each kind of code in a container, without unpacking anything.
fn kinds(container: &[u8], see: impl FnMut(Code)) -> Option<()> {
    let see = std::cell::RefCell::new(see);
    let look = |code| {
        (see.borrow_mut())(code);
        false
    };
    each_code(container, 0, look, |_, _| ()).ok()
}

/// A cubin or PTX text.
fn of_code(bytes: &[u8]) -> Option<u64> {
    if bytes.starts_with(b"\x7fELF") {
        return of_cubin(bytes);
    }
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    // Machine code is not longer than the text that it is made of.
    variables::bytes(std::str::from_utf8(&bytes[..end]).ok()?)?.checked_add(end as u64)
}

/// Counts what may be loaded, by whatever the driver recognises it: names, flags or types.
fn of_cubin(bytes: &[u8]) -> Option<u64> {
    let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let endian = file.endian();
    let mut sum = 0u64;
    for section in file.sections() {
        let (name, header, size) = (section.name().ok()?, section.elf_section_header(), section.size());
        let starts = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
        let (kind, flags) = (header.sh_type(endian), header.sh_flags(endian));
        if kind == SHT_NOBITS && size <= MAX_ON_CHIP && starts(&ON_CHIP) {
            continue;
        }
        let is_memory = kind == SHT_NOBITS || MEMORY.iter().any(|kinds| kinds.contains(&kind));
        let is_loaded = flags & u64::from(SHF_ALLOC) != 0 || starts(&LOADED);
        if is_memory || is_loaded || size > bytes.len() as u64 {
            sum = sum.checked_add(size)?;
        }
    }
    for symbol in file.symbols().filter(|symbol| symbol.is_common()) {
        sum = sum.checked_add(symbol.size())?;
    }
    Some(sum)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const TARGET: Target = Target { architecture: 90, ptx_only: false };

    #[test]
    fn text_and_machine_code_are_told_apart() {
        let text = b".global .u8 x[100];\0";
        assert_eq!(device_bytes(text, TARGET), Ok(100 + 19));
        assert_eq!(device_bytes(b"\x7fELF and nothing else", TARGET), Err(CudaError::INVALID_IMAGE));
        assert_eq!(device_bytes(b"\xff\xfe", TARGET), Err(CudaError::INVALID_IMAGE));
    }

    /// A cubin with sections of these names, types, flags and sizes, none of which has contents.
    fn cubin(sections: &[(&str, u32, u64, u64)]) -> Vec<u8> {
        let mut names = b"\0.names\0".to_vec();
        let mut headers = vec![[0u8; 64]; 2];
        let header = |name: u32, kind: u32, flags: u64, offset: u64, size: u64| {
            let mut header = [0u8; 64];
            header[0..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&flags.to_le_bytes());
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            header
        };
        for (name, kind, flags, size) in sections {
            headers.push(header(names.len() as u32, *kind, *flags, 64, *size));
            names.extend(name.bytes().chain([0]));
        }
        headers[1] = header(1, object::elf::SHT_STRTAB, 0, 64, names.len() as u64);
        let mut bytes = vec![0u8; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..20].copy_from_slice(&[2, 0, 190, 0]);
        bytes[40..48].copy_from_slice(&(64 + names.len() as u64).to_le_bytes());
        for (at, value) in [(52, 64), (58, 64), (60, headers.len() as u16), (62, 1)] {
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        bytes.extend(names);
        bytes.extend(headers.concat());
        bytes
    }

    #[test]
    fn variables_are_named_or_not_at_all() {
        let names = |image: &[u8]| {
            let names = variable_names(image, TARGET)?;
            Some(names.into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>())
        };
        let text = b".global .u8 x[100]; .visible .const .align 4 .f32 $t[1] = {0f00000000};\0";
        assert_eq!(names(text), Some(vec!["x".to_owned(), "$t".to_owned()]));
        let text = b".global .texref t; .global .surfref s; .global .u32 x;";
        assert_eq!(names(text), Some(vec!["x".to_owned()]), "references are not variables with contents");
        assert_eq!(names(b".global .u64 place = generic(x);"), None, "it begins with an address");
        assert_eq!(names(b".global .u8 x[n];"), None, "of unknown length");
        assert_eq!(names(b".extern .func (.param .b64 r) malloc (.param .b64 n);"), None);
        // A cubin without symbols.
        let zeroed = |bytes| {
            cubin(&[(".text.k", object::elf::SHT_PROGBITS, 6, 10), (".nv.global", SHT_NOBITS, 3, bytes)])
        };
        assert_eq!(names(&zeroed(1 << 20)), None);
        assert_eq!(names(&zeroed(0)), Some(vec![]));
        assert_eq!(names(&cubin(&[(".rel.nv.global.init", object::elf::SHT_REL, 0, 16)])), None);
        let several = container(&[(1, 90, b".global .u8 x;"), (1, 80, b".global .u64 y = x;")]);
        assert_eq!(names(&several), Some(vec!["x".to_owned()]), "only what the device uses counts");
    }

    #[test]
    fn machine_code_counts_whatever_its_sections_are_called() {
        const PROGBITS: u32 = object::elf::SHT_PROGBITS;
        let (alloc, big) = (u64::from(SHF_ALLOC), 1 << 30);
        for (sections, expected) in [
            (vec![(".text.k", PROGBITS, 6, 100), (".nv.global", SHT_NOBITS, 3, big)], 100 + big),
            (vec![(".other", SHT_NOBITS, 0, big), (".debug_info", PROGBITS, 0, 50)], big),
            (vec![(".other", PROGBITS, alloc, 60), (".nv.info", SHT_LOPROC, 0, 30)], 60),
            (vec![(".other", SHT_LOPROC + 7, 0, 60), (".other", SHT_LOPROC + 0x66, 0, 5)], 65),
            (vec![(".other", PROGBITS, 0, big)], big),
            (vec![(".nv.shared.k", SHT_NOBITS, 3, 48 << 10), (".nv.shared.k", SHT_NOBITS, 3, big)], big),
            (vec![(".nv.shared.k", PROGBITS, alloc, 70)], 70),
        ] {
            assert_eq!(device_bytes(&cubin(&sections), TARGET), Ok(expected), "{sections:?}");
        }
    }

    #[test]
    fn code_that_the_driver_may_not_take_hides_no_other() {
        let cubin = cubin(&[(".text.k", object::elf::SHT_PROGBITS, 6, 10)]);
        let (big, packed) = (&b".global .u8 x[100000];"[..], &b"the compiler's own"[..]);
        let both = container(&[(2, 90, &cubin), (1, 80, big)]);
        assert_eq!(device_bytes(&both, TARGET), Ok(100_000 + 22));
        // The compiler's own representation is for links, unless there is nothing else.
        assert_eq!(device_bytes(&container(&[(2, 90, &cubin), (8, 90, packed)]), TARGET), Ok(10));
        assert!(device_bytes(&container(&[(8, 90, packed)]), TARGET).is_err());
        assert!(device_bytes(&container(&[(8, 90, packed), (1, 90, big)]), TARGET).is_err());
        let emulated = Target { ptx_only: true, ..TARGET };
        assert_eq!(device_bytes(&container(&[(8, 90, packed), (1, 90, big)]), emulated), Ok(100_000 + 22));
    }

    /// A container of these entries: kind, architecture and contents.
    pub fn container(entries: &[(u16, u32, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for &(kind, architecture, payload) in entries {
            let mut entry = vec![0u8; 64];
            entry[0..2].copy_from_slice(&kind.to_le_bytes());
            entry[4..8].copy_from_slice(&64u32.to_le_bytes());
            entry[8..16].copy_from_slice(&(payload.len().next_multiple_of(8) as u64).to_le_bytes());
            entry[28..32].copy_from_slice(&architecture.to_le_bytes());
            entry.extend_from_slice(payload);
            entry.resize(64 + payload.len().next_multiple_of(8), 0);
            body.extend(entry);
        }
        let mut bytes = CONTAINER_MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 16, 0]);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn what_the_device_uses_of_a_container_counts() {
        let (small, large) = (&b".global .u8 x[100];"[..], &b".global .u8 x[100000];"[..]);
        let one = container(&[(1, 100, large), (1, 80, large), (1, 90, small)]);
        assert_eq!(device_bytes(&one, TARGET), Ok(100 + 19));
        let ptx_only = Target { ptx_only: true, ..TARGET };
        let broken = container(&[(2, 90, b"no ELF file"), (1, 80, small)]);
        assert_eq!(device_bytes(&broken, ptx_only), Ok(100 + 19));
        // The emulator executes PTX of newer devices where there is no other.
        let newer = container(&[(2, 90, b"no ELF file"), (1, 120, large)]);
        assert_eq!(device_bytes(&newer, ptx_only), Ok(100_000 + 22));
        assert_eq!(device_bytes(&container(&[(1, 120, large)]), TARGET), Ok(0));
        assert!(device_bytes(&container(&[(2, 90, b"\xffno ELF file")]), TARGET).is_err());
        assert_eq!(device_bytes(&container(&[]), TARGET), Ok(0));
        let linked = [container(&[]), one.clone(), one].concat();
        assert_eq!(device_bytes(&linked, TARGET), Ok(2 * (100 + 19)));
        assert!(device_bytes(&linked[..40], TARGET).is_err());
    }
}
