// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device memory that an image of device code takes when it is loaded: its code and its variables.
//!
//! The driver does not report it: it loads late, and finds variables only by their names. So images are
//! read here, in sessions with a limit. An image that this reader does not understand is refused, because its
//! variables could be of any size.

use cuda_fatbin::{Accepted, CONTAINER_MAGIC, Code, HEADER_BYTES, container_bytes, each_code};
use log::debug;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};

use crate::worker::gpu::{CuResult, CudaError};

/// The sections of a cubin that are loaded begin with one of these. Shared and local memory is not part of an image.
const LOADED: [&str; 3] = [".text", ".nv.global", ".nv.constant"];

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
/// Errors: `CUDA_ERROR_INVALID_IMAGE`.
pub fn device_bytes(image: &[u8], target: Target) -> CuResult<u64> {
    let bytes = if image.starts_with(&CONTAINER_MAGIC.to_le_bytes()) {
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

/// Returns the bytes of the largest code that the driver may choose.
fn of_container(container: &[u8], target: Target) -> Option<u64> {
    let mut most = Some(0);
    each_used(container, target, |bytes| {
        most = most.zip(of_code(bytes)).map(|(most, bytes)| most.max(bytes));
    })?;
    most
}

/// Passes `visit` the code of a container among which the driver may choose, unpacked. `None`: it is damaged.
pub fn each_used(container: &[u8], target: Target, mut visit: impl FnMut(&[u8])) -> Option<()> {
    let own = target.architecture;
    let accepted = Accepted { architecture: own, newer: target.ptx_only };
    // Machine code comes before PTX, later architectures before earlier ones.
    let rank = |code| match code {
        Code::Machine(other) => {
            (!target.ptx_only && other / 10 == own / 10 && other <= own).then_some((1, i64::from(other)))
        }
        Code::Ptx(other) => accepted.rank(other).map(|rank| (0, rank)),
    };
    let mut best: Option<Code> = None;
    let seen = |code| {
        if rank(code) > best.and_then(rank) {
            best = Some(code);
        }
    };
    kinds(container, seen)?;
    each_code(container, |code| Some(code) == best, |_, bytes| visit(bytes)).ok()
}

/// Calls `see` for each kind of code in a container, without unpacking anything.
fn kinds(container: &[u8], see: impl FnMut(Code)) -> Option<()> {
    let see = std::cell::RefCell::new(see);
    let look = |code| {
        (see.borrow_mut())(code);
        false
    };
    each_code(container, look, |_, _| ()).ok()
}

/// A cubin or PTX text.
fn of_code(bytes: &[u8]) -> Option<u64> {
    if bytes.starts_with(b"\x7fELF") {
        return of_cubin(bytes);
    }
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    // Machine code is not longer than the text that it is made of.
    ptx_variables(std::str::from_utf8(&bytes[..end]).ok()?)?.checked_add(end as u64)
}

fn of_cubin(bytes: &[u8]) -> Option<u64> {
    let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let mut sum = 0u64;
    for section in file.sections() {
        let name = section.name().ok()?;
        if LOADED.iter().any(|loaded| name.starts_with(loaded)) {
            sum = sum.checked_add(section.size())?;
        }
    }
    Some(sum)
}

/// Returns the bytes of all variables that PTX declares in device memory. `None`: the size of one is unknown.
fn ptx_variables(text: &str) -> Option<u64> {
    let text = without_comments(text);
    let mut sum = 0u64;
    // An initializer contains no `;`, and text that a brace ends or begins is not a declaration.
    for statement in text.split(';') {
        // The text before the statement: the head of a function, or a block's end.
        let mut start = 0;
        if let Some((before, _)) = statement.split_once('=') {
            start = before.rfind(['{', '}']).map_or(0, |at| at + 1);
        } else if let Some(at) = statement.rfind(['{', '}']) {
            start = at + 1;
        }
        sum = sum.checked_add(declaration(statement[start..].trim_start())?)?;
    }
    Some(sum)
}

/// Returns the bytes of one statement's variables: 0 without variables in device memory.
fn declaration(statement: &str) -> Option<u64> {
    let statement = without_labels(statement);
    let (head, _) = statement.split_once('=').unwrap_or((statement, ""));
    // Directives need no space between them.
    let head = head.replace('.', " .");
    let words = || head.split_whitespace().map(|word| word.split(['[', ',', '(']).next().unwrap_or(word));
    let says = |wanted: &[&str]| words().any(|word| wanted.contains(&word));
    let declares = statement.starts_with('.') && says(&[".global", ".const"]);
    if !declares || says(&[".extern", ".func", ".entry", ".callprototype"]) {
        return Some(0);
    }
    let lanes = words().filter_map(|word| word.strip_prefix(".v")?.parse::<u64>().ok()).max().unwrap_or(1);
    let element = words().filter_map(type_bytes).max()?.checked_mul(lanes)?;
    let mut sum = 0u64;
    for declared in declarators(statement) {
        sum = sum.checked_add(element.checked_mul(count(declared)?)?)?;
    }
    Some(sum)
}

fn without_labels(statement: &str) -> &str {
    let mut rest = statement.trim_start();
    let of_name = |letter: char| letter.is_ascii_alphanumeric() || "_$%".contains(letter);
    while let Some((label, behind)) = rest.split_once(':')
        && label.trim_end().chars().all(of_name)
    {
        rest = behind.trim_start();
    }
    rest
}

/// The parts of a declaration between commas that are in no brackets.
fn declarators(statement: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    statement.split(move |letter| {
        depth += match letter {
            '{' | '[' | '(' => 1,
            '}' | ']' | ')' => -1,
            _ => 0,
        };
        letter == ',' && depth <= 0
    })
}

/// Elements of one variable.
fn count(declared: &str) -> Option<u64> {
    let (name, values) = declared.split_once('=').unwrap_or((declared, ""));
    let mut count = 1u64;
    for dimension in name.split('[').skip(1) {
        let dimension = dimension.split(']').next()?.trim();
        let elements = match number(dimension) {
            // As many as it has values, or characters of text.
            None if dimension.is_empty() && !values.is_empty() => values.len() as u64,
            number => number?,
        };
        count = count.checked_mul(elements)?;
    }
    Some(count)
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(['U', 'u']);
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => u64::from_str_radix(&text[2..], 16).ok(),
        [b'0', b'b' | b'B', ..] => u64::from_str_radix(&text[2..], 2).ok(),
        [b'0', _, ..] => u64::from_str_radix(&text[1..], 8).ok(),
        _ => text.parse().ok(),
    }
}

/// Bytes of a type, as `.f32`; handles of textures and the like have 64 bits.
fn type_bytes(word: &str) -> Option<u64> {
    if matches!(word, ".texref" | ".samplerref" | ".surfref") {
        return Some(8);
    }
    let word = word.strip_prefix('.')?;
    let letters = word.bytes().take_while(|letter| letter.is_ascii_alphabetic()).count();
    let (kind, rest) = word.split_at(letters);
    // `.f16x2`, `.e4m3x2` and the like have at most 64 bits.
    if !matches!(kind, "b" | "u" | "s" | "f" | "bf" | "tf") {
        return None;
    }
    match rest.parse::<u64>() {
        Ok(bits) if bits <= 128 => Some(bits.div_ceil(8)),
        Ok(_) => None,
        Err(_) => Some(8),
    }
}

fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, comment) = rest.split_at(at);
        kept.push_str(before);
        let end = match comment.as_bytes() {
            [_, b'/', ..] => comment.find('\n').unwrap_or(comment.len()),
            [_, b'*', ..] => comment[2..].find("*/").map_or(comment.len(), |end| end + 4),
            _ => {
                kept.push('/');
                1
            }
        };
        kept.push(' ');
        rest = &comment[end..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const TARGET: Target = Target { architecture: 90, ptx_only: false };

    fn variables(text: &str) -> Option<u64> {
        ptx_variables(text)
    }

    #[test]
    fn variables_of_ptx_are_counted() {
        let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
        for (declared, bytes) in [
            (".visible .global .align 8 .b8 big[1073741824];", Some(1 << 30)),
            (".global .u32 one;", Some(4)),
            (".const .align 4 .f32 table[16] = {0f00000000, 0f3F800000};", Some(64)),
            (".global .align 16 .v4 .f32 vectors[4];", Some(64)),
            (".global .u8 a[0x10], b[2][3], c = 7;", Some(16 + 6 + 1)),
            (".extern .global .u8 elsewhere[1000000];", Some(0)),
            (".extern .const .u8 unknown[];", Some(0)),
            (".global .texref image;", Some(8)),
            (".global .u64 place = generic(table);", Some(8)),
            (".global .attribute(.managed) .align 4 .u32 managed[3];", Some(12)),
            (".global .u8 text[] = {1, 2, 3};", Some(10)),
            (".shared .align 4 .b8 shared[4096];", Some(0)),
            ("// .global .u8 x[99];\n/* .global .u8 y[99]; */ .global .u8 z[3];", Some(3)),
            (".global .u8 much[n];", None),
            (".global .u8 much[18446744073709551615][2];", None),
            (".global .unknown8 x;", None),
            (".global.align 8.b8 close[9];", Some(9)),
            ("here: there: .global .b8 behind[9];", Some(9)),
            (".visible .func f(.param .u64 .ptr .global .align 4 p);", Some(0)),
        ] {
            assert_eq!(variables(&format!("{head}{declared}\n")), bytes, "{declared}");
        }
    }

    #[test]
    fn functions_have_none_and_hide_none() {
        let text = ".version 8.0\n.visible .entry f(.param .u64 p)\n{\n.reg .b64 %rd<3>;\n\
                    .local .align 4 .b8 stack[64];\nld.param.u64 %rd1, [p];\nld.global.u32 %r1, [%rd1];\n\
                    .global .u8 inside[5];\nret;\n}\n.global .u8 behind[7];";
        assert_eq!(variables(text), Some(12));
    }

    #[test]
    fn text_and_machine_code_are_told_apart() {
        let text = b".global .u8 x[100];\0";
        assert_eq!(device_bytes(text, TARGET), Ok(100 + 19));
        assert_eq!(device_bytes(b"\x7fELF and nothing else", TARGET), Err(CudaError::INVALID_IMAGE));
        assert_eq!(device_bytes(b"\xff\xfe", TARGET), Err(CudaError::INVALID_IMAGE));
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
