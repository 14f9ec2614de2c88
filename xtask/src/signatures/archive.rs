// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the public functions of a `libcudart_static.a`, and chooses pieces of them to search for.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use cuda_runtime_signatures::{ALIGNMENT, ANCHOR_BYTES, Anchor, Body, Function, IMPORTS, looks_public};
use object::elf::{
    R_X86_64_32, R_X86_64_32S, R_X86_64_64, R_X86_64_DTPOFF32, R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX,
    R_X86_64_GOTTPOFF, R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_REX_GOTPCRELX, R_X86_64_TLSGD, R_X86_64_TLSLD,
};
use object::read::archive::ArchiveFile;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, SymbolKind};

/// Different bytes that a piece has at least, so that little else looks like it.
const MIN_DIFFERENT: usize = 14;

/// A public function, with its code.
#[derive(Debug)]
pub struct Public {
    pub function: Function,
    code: Vec<u8>,
}

/// Returns the public functions in an archive, by their places.
pub fn public_functions(archive: &Path) -> Result<Vec<Public>> {
    let bytes = fs::read(archive)?;
    let parsed = ArchiveFile::parse(&*bytes)?;
    let mut members = parsed.members();
    let member = members.next().context("it is empty")??;
    ensure!(members.next().is_none(), "it has more than one object");
    let file = ElfFile64::<object::LittleEndian>::parse(member.data(&*bytes)?)?;
    let imports: HashSet<&str> = file
        .symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    let missing = IMPORTS.iter().find(|name| !imports.contains(**name));
    ensure!(missing.is_none(), "it does not need {missing:?}, by which the auditor chooses objects");
    let text = file.section_by_name(".text").context("it has no .text")?;
    ensure!((text.align() as usize).is_multiple_of(ALIGNMENT), ".text is not aligned to {ALIGNMENT} bytes");
    let code = text.data()?;
    let mut operands = BTreeMap::new();
    for (place, relocation) in text.relocations() {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            bail!("a relocation that is not ELF's")
        };
        operands.insert(usize::try_from(place)?, operand(r_type)?);
    }
    let mut functions = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_global() && symbol.kind() == SymbolKind::Text) {
        let name = symbol.name()?;
        if symbol.section_index() != Some(text.index()) || !looks_public(name.as_bytes()) {
            continue;
        }
        let (offset, size) = (usize::try_from(symbol.address())?, usize::try_from(symbol.size())?);
        ensure!(
            offset.is_multiple_of(ALIGNMENT) && size > 0,
            "{name} is at {offset:#x} and has {size} bytes"
        );
        let code =
            code.get(offset..offset + size).with_context(|| format!("{name} is outside .text"))?.to_vec();
        let inside = operands.range(offset..offset + size).map(|(place, operand)| {
            let start = place - offset;
            start.saturating_sub(operand.0)..start + operand.1
        });
        let body = Body::of(&code, inside.collect());
        functions.push(Public { function: Function { name: name.to_owned(), offset, body }, code });
    }
    functions.sort_by_key(|public| public.function.offset);
    Ok(functions)
}

/// The bytes before and behind the place of a relocation that a linker may write (System V ABI, AMD64, 4.4, and B.2 for what
/// it may turn instructions into).
fn operand(kind: u32) -> Result<(usize, usize)> {
    Ok(match kind {
        R_X86_64_PC32 | R_X86_64_PLT32 | R_X86_64_DTPOFF32 | R_X86_64_32 | R_X86_64_32S => (0, 4),
        R_X86_64_64 => (0, 8),
        // The instruction changes as well: its prefix, opcode and operands.
        R_X86_64_GOTPCREL | R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX | R_X86_64_GOTTPOFF => (3, 4),
        // The call behind it, too.
        R_X86_64_TLSGD | R_X86_64_TLSLD => (4, 12),
        other => {
            bail!("a relocation of type {other}, of which this program does not know what a linker writes")
        }
    })
}

/// Chooses a piece of each release so that there are few different ones: the fewer, the quicker is the search.
pub fn anchors<'a>(releases: impl Iterator<Item = &'a [Public]>) -> Result<Vec<Anchor>> {
    let pieces: Vec<BTreeMap<[u8; ANCHOR_BYTES], Anchor>> = releases.map(pieces).collect();
    let mut chosen: Vec<Option<Anchor>> = vec![None; pieces.len()];
    while chosen.iter().any(Option::is_none) {
        let open = || pieces.iter().zip(&chosen).filter(|(_, chosen)| chosen.is_none());
        let candidates: BTreeSet<_> = open().flat_map(|(pieces, _)| pieces.keys()).collect();
        let releases_with =
            |piece: &[u8; ANCHOR_BYTES]| open().filter(|(pieces, _)| pieces.contains_key(piece)).count();
        let best = candidates.into_iter().max_by_key(|piece| releases_with(piece));
        let best = *best.context("A release has no piece to search for")?;
        for (pieces, chosen) in pieces.iter().zip(&mut chosen).filter(|(_, chosen)| chosen.is_none()) {
            *chosen = pieces.get(&best).cloned();
        }
    }
    Ok(chosen.into_iter().flatten().collect())
}

/// The pieces of a release that are there once.
fn pieces(functions: &[Public]) -> BTreeMap<[u8; ANCHOR_BYTES], Anchor> {
    let mut once = BTreeMap::new();
    let mut again = HashSet::new();
    for (index, public) in functions.iter().enumerate() {
        for (at, piece) in public.code.chunks_exact(ANCHOR_BYTES).enumerate() {
            let offset = at * ANCHOR_BYTES;
            let Ok(bytes) = <[u8; ANCHOR_BYTES]>::try_from(piece) else { continue };
            let different = bytes.iter().collect::<HashSet<_>>().len() >= MIN_DIFFERENT;
            if !different || !public.function.body.is_fixed(&(offset..offset + ANCHOR_BYTES)) {
                continue;
            }
            if once.insert(bytes, Anchor { function: index, offset, bytes }).is_some() {
                again.insert(bytes);
            }
        }
    }
    once.retain(|bytes, _| !again.contains(bytes));
    once
}
