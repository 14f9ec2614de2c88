// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host objects with device code in them, and archives of such objects: inputs of the linker.

use object::read::archive::ArchiveFile;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::fatbin::{self, FatbinError};

/// Sections with device code: that which is complete, and that which is to be linked (`-rdc=true`).
const SECTIONS: [&str; 2] = [".nv_fatbin", "__nv_relfatbin"];
/// Containers follow each other at multiples of this.
const ALIGNMENT: usize = 8;
const INVALID: FatbinError = FatbinError::Invalid("neither an object nor an archive of objects");

/// The PTX texts in an object or in all objects of an archive. Device code without PTX that fits is left out: NVIDIA's
/// device runtime is such, and is not needed. If something else is missing, a name will be without definition.
pub(super) fn texts(bytes: &[u8], architecture: u32) -> Result<Vec<String>, FatbinError> {
    if !bytes.starts_with(&object::archive::MAGIC) {
        return of_object(bytes, architecture);
    }
    let archive = ArchiveFile::parse(bytes).map_err(|_| INVALID)?;
    let mut texts = Vec::new();
    for member in archive.members() {
        let member = member.and_then(|member| member.data(bytes)).map_err(|_| INVALID)?;
        texts.extend(of_object(member, architecture)?);
    }
    Ok(texts)
}

fn of_object(bytes: &[u8], architecture: u32) -> Result<Vec<String>, FatbinError> {
    let file = ElfFile64::<object::Endianness>::parse(bytes).map_err(|_| INVALID)?;
    let mut texts = Vec::new();
    for name in SECTIONS {
        let Some(section) = file.section_by_name(name) else { continue };
        let mut rest = section.data().map_err(|_| INVALID)?;
        while let Some(header) = rest.first_chunk() {
            let length = fatbin::container_bytes(header)?;
            let container = rest.get(..length).ok_or(FatbinError::Invalid("shorter than its size"))?;
            match fatbin::ptx(container, architecture) {
                Ok(text) => texts.push(text),
                Err(error @ FatbinError::NoPtx { .. }) => log::debug!("left out of a link: {error}"),
                Err(error) => return Err(error),
            }
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
    }
    Ok(texts)
}
