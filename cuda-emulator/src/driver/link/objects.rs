// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host objects that contain device code, and archives of such objects: inputs of the linker.

use object::read::archive::ArchiveFile;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::fatbin::{self, Accepted, FatbinError};

/// Sections with device code: complete code, and code to be linked (`-rdc=true`).
const SECTIONS: [&str; 2] = [".nv_fatbin", "__nv_relfatbin"];
/// Containers begin at multiples of this number of bytes.
const ALIGNMENT: usize = 8;
const INVALID: FatbinError = FatbinError::Invalid("neither an object nor an archive of objects");

/// Returns the PTX texts in an object or in all objects of an archive. Device code without suitable PTX is left out,
/// such as NVIDIA's device runtime, which is not needed. If other code is missing, a name has no definition.
pub(crate) fn texts(bytes: &[u8], accepted: Accepted) -> Result<Vec<String>, FatbinError> {
    if !bytes.starts_with(&object::archive::MAGIC) {
        return of_object(bytes, accepted);
    }
    let archive = ArchiveFile::parse(bytes).map_err(|_| INVALID)?;
    let mut texts = Vec::new();
    let mut end = object::archive::MAGIC.len();
    for member in archive.members() {
        let Ok(member) = member else {
            // Readers of text files append zeros.
            let padding = bytes.get(end..).is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
            return if padding { Ok(texts) } else { Err(INVALID) };
        };
        let (start, length) = member.file_range();
        end = usize::try_from(start.saturating_add(length)).unwrap_or(usize::MAX);
        texts.extend(of_object(member.data(bytes).map_err(|_| INVALID)?, accepted)?);
    }
    Ok(texts)
}

fn of_object(bytes: &[u8], accepted: Accepted) -> Result<Vec<String>, FatbinError> {
    let file = ElfFile64::<object::Endianness>::parse(bytes).map_err(|_| INVALID)?;
    let mut texts = Vec::new();
    for name in SECTIONS {
        let Some(section) = file.section_by_name(name) else { continue };
        let mut rest = section.data().map_err(|_| INVALID)?;
        while let Some(header) = rest.first_chunk() {
            let length = fatbin::container_bytes(header)?;
            let container = rest.get(..length).ok_or(FatbinError::Invalid("shorter than its size"))?;
            match fatbin::ptx(container, accepted.without_newer()) {
                Ok(text) => texts.push(text),
                Err(error @ FatbinError::NoPtx { .. }) => log::debug!("left out of a link: {error}"),
                Err(error) => return Err(error),
            }
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Accepted = Accepted { architecture: 90, newer: false };

    #[test]
    fn what_is_no_object_is_refused() {
        let archive = |member: &[u8]| {
            let header = format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "a.o/", 0, 0, 0, 644, member.len());
            [object::archive::MAGIC.as_slice(), header.as_bytes(), member].concat()
        };
        assert_eq!(texts(b"", H200), Err(INVALID));
        assert_eq!(texts(b"neither", H200), Err(INVALID));
        assert_eq!(texts(&archive(b"no object"), H200), Err(INVALID));
        assert_eq!(texts(&archive(b""), H200), Err(INVALID));
        assert_eq!(texts(&object::archive::MAGIC, H200), Ok(Vec::new()));
        // An object without device code.
        let mut empty = [0; 64];
        empty[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (empty[16], empty[20], empty[52], empty[58]) = (1, 1, 64, 64);
        assert_eq!(texts(&archive(&empty), H200), Ok(Vec::new()));
        assert_eq!(texts(&[archive(&empty), vec![0; 17]].concat(), H200), Ok(Vec::new()));
        assert_eq!(texts(&[archive(&empty), vec![1; 17]].concat(), H200), Err(INVALID));
        for cut in 1..64 {
            assert_eq!(texts(&empty[..cut], H200), Err(INVALID), "cut at {cut}");
        }
    }
}
