// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of a kernel's parameters that a library leaves unset. They have what lay on its stack or heap before, such as addresses of the
//! process, so they differ between workers.
//!
//! The kernels that cuDNN compiles at run time take tensors by value: a rank, then the extents and the strides of twelve dimensions. Those beyond the
//! rank are not set. On an H200 (cuDNN 9, PyTorch 2.11) all other words of captured attention were the same in two processes.

use virtio_cuda_protocol::cuda::ParamLayout;

use super::library::WORD;

/// How the names of these kernels begin.
const GENERATED: &[u8] = b"cudnn_generated_";
const DIMENSIONS: usize = 12;
/// The number of words of a tensor.
const WORDS: usize = 1 + 2 * DIMENSIONS;

/// Returns the offsets of these words in the parameters of a kernel.
pub fn offsets<'a>(
    name: &[u8],
    layouts: &'a [ParamLayout],
    parameters: &'a [u8],
) -> impl Iterator<Item = usize> + use<'a> {
    let layouts = if name.starts_with(GENERATED) { layouts } else { &[] };
    layouts.iter().flat_map(|layout| {
        let first = layout.offset as usize;
        let tensor = parameters.get(first..first + layout.bytes as usize).unwrap_or_default();
        let beyond = rank(tensor).map_or(0..0, |rank| rank..DIMENSIONS);
        beyond
            .flat_map(|dimension| [1 + dimension, 1 + DIMENSIONS + dimension])
            .map(move |word| first + word * WORD)
    })
}

/// Returns the rank of a tensor. `None` if it is none.
fn rank(tensor: &[u8]) -> Option<usize> {
    let (words, _) = tensor.as_chunks::<WORD>();
    let rank = u64::from_le_bytes(*words.first()?) as usize;
    (tensor.len() == WORDS * WORD && (1..=DIMENSIONS).contains(&rank)).then_some(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tensor of the rank of `extents`, behind which there is something else each time.
    fn tensor(extents: &[u64], strides: &[u64], left: u64) -> Vec<u8> {
        let of = |numbers: &[u64]| -> Vec<u64> {
            (0..DIMENSIONS as u64).map(|at| numbers.get(at as usize).copied().unwrap_or(left + at)).collect()
        };
        let words = [vec![extents.len() as u64], of(extents), of(strides)].concat();
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn tensors_of_kernels_that_were_compiled_are_set_up_to_their_rank() {
        let layouts = [(0, 40), (40, 8), (48, 200), (248, 8), (256, 200)];
        let layouts = layouts.map(|(offset, bytes)| ParamLayout { offset, bytes });
        let parameters = |left: u64, last: &[u64]| {
            let query = tensor(&[4, 4, 1, 64], &[256, 64, 0, 1], left);
            [vec![4; 48], query, vec![9; 8], tensor(&[4, 4, 64, 512], last, left)].concat()
        };
        let name = b"cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_kernel0_0";
        let set = |mut parameters: Vec<u8>| {
            for offset in offsets(name, &layouts, &parameters.clone()) {
                parameters[offset..offset + WORD].fill(0);
            }
            parameters
        };
        let strides = [131_072, 32_768, 1, 64];
        let one = set(parameters(0x7ffe_d9c4_8ea0, &strides));
        assert_eq!(one, set(parameters(0x55d2_0dfb_1b10, &strides)));
        assert_ne!(one, set(parameters(0x55d2_0dfb_1b10, &[131_072, 32_768, 1, 65])));
        let found = offsets(name, &layouts, &one).count();
        assert_eq!(found, 2 * 2 * (DIMENSIONS - 4));
        assert_eq!(offsets(b"ampere_sgemm_32x32", &layouts, &one).count(), 0);
        assert_eq!(offsets(name, &layouts, &one[..447]).count(), found / 2, "cut");
        for rank in [0, 13, u64::MAX] {
            let wrong = [&one[..48], &rank.to_le_bytes(), &one[56..]].concat();
            assert_eq!(offsets(name, &layouts, &wrong).count(), found / 2);
        }
    }
}
