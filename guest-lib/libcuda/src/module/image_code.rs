// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Removes code that `CUDA_FORCE_PTX_JIT`, `CUDA_DISABLE_PTX_JIT` and related variables exclude from images. The host's
//! driver chooses between the entries of a fat binary, but reads its own environment long before the program is known.
//! Images that are too long for a request also lose machine code that no device can execute.

use cuda_environment::Code;
use virtio_cuda_client::CudaError;

/// First word of a fat binary container (`fatBinaryHeader`).
pub const CONTAINER_MAGIC: u32 = 0xba55_ed50;
/// First word of an ELF file.
pub const ELF_MAGIC: u32 = 0x464c_457f;

/// Bytes of `fatBinaryHeader`, and of the shortest header of an entry.
const HEADER_BYTES: usize = 16;
/// Offset in an entry's header of the architecture, the compute capability times ten (u32).
const ARCHITECTURE: usize = 28;
/// Entry kinds with machine code: ELF files, those from before CUDA 3 and those of recent architectures.
const MACHINE_KINDS: [u16; 3] = [2, 4, 0x10];

/// Returns the image without excluded code; `None` if nothing is excluded. Unless `majors` is empty, machine code for compute
/// capabilities with other major numbers is excluded, too.
///
/// Errors: `CUDA_ERROR_NO_BINARY_FOR_GPU` or `CUDA_ERROR_JIT_COMPILATION_DISABLED` if nothing remains,
/// `CUDA_ERROR_INVALID_IMAGE` for a damaged container.
pub fn allowed(image: &[u8], code: Code, majors: &[u64]) -> Result<Option<Vec<u8>>, CudaError> {
    let word = image.first_chunk().map(|word| u32::from_le_bytes(*word));
    match word {
        Some(CONTAINER_MAGIC) => containers(image, code, majors).ok_or(CudaError::INVALID_IMAGE)?.map(Some),
        Some(ELF_MAGIC) if !code.machine => Err(nothing_left(code)),
        // A PTX text is compiled nevertheless (measured on an H200, driver 580).
        _ => Ok(None),
    }
}

fn nothing_left(code: Code) -> CudaError {
    if code.ptx { CudaError::NO_BINARY_FOR_GPU } else { CudaError::JIT_COMPILATION_DISABLED }
}

/// Returns consecutive containers with their permitted entries. `None` if they are damaged.
fn containers(image: &[u8], code: Code, majors: &[u64]) -> Option<Result<Vec<u8>, CudaError>> {
    let (mut rest, mut result, mut entries) = (image, Vec::new(), 0);
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        if number(header, 0, 4)? != u64::from(CONTAINER_MAGIC) {
            break;
        }
        let start = number(header, 6, 2)? as usize;
        let bytes = usize::try_from(number(header, 8, 8)?).ok()?;
        let end = start.checked_add(bytes).filter(|_| start >= HEADER_BYTES)?;
        let (head, mut body) = rest.get(..end)?.split_at_checked(start)?;
        let at = result.len();
        result.extend_from_slice(head);
        while !body.is_empty() {
            let length = number(body, 4, 4)?.checked_add(number(body, 8, 8)?)?;
            let length = usize::try_from(length).ok().filter(|&length| length >= HEADER_BYTES)?;
            let (entry, others) = body.split_at_checked(length)?;
            let machine = MACHINE_KINDS.contains(&(number(entry, 0, 2)? as u16));
            if if machine { code.machine && runs(entry, majors) } else { code.ptx } {
                result.extend_from_slice(entry);
                entries += 1;
            }
            body = others;
        }
        let kept = (result.len() - at - start) as u64;
        result.get_mut(at + 8..at + 16)?.copy_from_slice(&kept.to_le_bytes());
        // The next container is aligned.
        result.resize(result.len().next_multiple_of(8), 0);
        rest = rest.get(end.next_multiple_of(8)..).unwrap_or(&[]);
    }
    Some(if entries > 0 { Ok(result) } else { Err(nothing_left(code)) })
}

/// Returns whether a device with one of these numbers may execute the machine code of an entry.
fn runs(entry: &[u8], majors: &[u64]) -> bool {
    let major = number(entry, ARCHITECTURE, 4).map_or(0, |architecture| architecture / 10);
    major == 0 || majors.is_empty() || majors.contains(&major)
}

/// Returns the little-endian number of `bytes` bytes at `at`.
fn number(from: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let bytes = from.get(at..)?.get(..bytes)?;
    Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_MACHINE: Code = Code { machine: false, ptx: true };
    const NO_PTX: Code = Code { machine: true, ptx: false };

    fn entry(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 1]);
        bytes.extend_from_slice(&64u32.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes.resize(64, 0);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn container(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut bytes = CONTAINER_MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 16, 0]);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn entries_of_one_kind_are_taken_out() {
        let (ptx, elf, ir) = (entry(1, b"ptx text"), entry(2, b"elf file"), entry(8, b"lto code"));
        let all = container(&[ptx.clone(), elf.clone(), ir.clone()]);
        assert_eq!(allowed(&all, NO_MACHINE, &[]), Ok(Some(container(&[ptx, ir]))));
        assert_eq!(allowed(&all, NO_PTX, &[]), Ok(Some(container(&[elf]))));
    }

    #[test]
    fn each_of_several_containers_loses_its_own() {
        let (ptx, elf) = (entry(1, b"ptx text"), entry(2, b"elf file"));
        let linked = [container(std::slice::from_ref(&elf)), container(&[ptx.clone(), elf.clone()])].concat();
        let expected = [container(&[]), container(&[ptx])].concat();
        assert_eq!(allowed(&linked, NO_MACHINE, &[]), Ok(Some(expected)));
    }

    #[test]
    fn machine_code_for_other_devices_is_taken_out() {
        let machine = |architecture: u32| {
            let mut bytes = entry(2, b"elf file");
            bytes[ARCHITECTURE..ARCHITECTURE + 4].copy_from_slice(&architecture.to_le_bytes());
            bytes
        };
        let ptx = entry(1, b"ptx text");
        let all = container(&[machine(75), machine(89), machine(90), machine(0), ptx.clone(), machine(120)]);
        let both = Code { machine: true, ptx: true };
        let left = container(&[machine(90), machine(0), ptx.clone()]);
        assert_eq!(allowed(&all, both, &[9]), Ok(Some(left)));
        assert_eq!(allowed(&all, both, &[]), Ok(Some(all.clone())));
        assert_eq!(allowed(&all, NO_MACHINE, &[9]), Ok(Some(container(&[ptx]))));
        let old = container(&[machine(75)]);
        assert_eq!(allowed(&old, both, &[9]), Err(CudaError::NO_BINARY_FOR_GPU));
    }

    #[test]
    fn an_image_of_which_nothing_is_left_is_refused() {
        let disabled = CudaError::JIT_COMPILATION_DISABLED;
        assert_eq!(allowed(b"\x7fELF", NO_MACHINE, &[]), Err(CudaError::NO_BINARY_FOR_GPU));
        assert_eq!(allowed(b"\x7fELF", NO_PTX, &[]), Ok(None));
        assert_eq!(allowed(b".version 8.0\0", NO_PTX, &[]), Ok(None));
        assert_eq!(allowed(b".version 8.0\0", NO_MACHINE, &[]), Ok(None));
        assert_eq!(allowed(&container(&[entry(1, b"ptx text")]), NO_PTX, &[]), Err(disabled));
    }

    #[test]
    fn damaged_containers_are_refused() {
        let whole = container(&[entry(1, b"ptx text")]);
        for bytes in [16, 20, 40, whole.len() - 1] {
            assert_eq!(allowed(&whole[..bytes], NO_MACHINE, &[]), Err(CudaError::INVALID_IMAGE), "{bytes}");
        }
        let mut endless = whole;
        endless[16 + 8..16 + 16].fill(0xff);
        assert_eq!(allowed(&endless, NO_MACHINE, &[]), Err(CudaError::INVALID_IMAGE));
    }
}
