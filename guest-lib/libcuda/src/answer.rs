// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Buffers for results whose length the worker determines. The worker is not trusted. A false length must neither end
//! the program (a failed allocation aborts) nor make it loop for ever.

use virtio_cuda_client::CudaError;

/// The maximum length of a list in bytes: millions of nodes, edges or names. Limits the memory that a malicious worker
/// can make the program allocate.
const MAX_LIST: u64 = 256 << 20;
/// The maximum number of times that a list is requested: another thread of the program may make it longer meanwhile.
const MAX_ATTEMPTS: u32 = 16;

/// Returns `bytes` zeros.
///
/// Errors: `CUDA_ERROR_OUT_OF_MEMORY` for more than `limit`, or if the allocation fails.
pub fn zeros(bytes: u64, limit: u64) -> Result<Vec<u8>, CudaError> {
    let wanted = usize::try_from(bytes).ok().filter(|_| bytes <= limit).ok_or(CudaError::OUT_OF_MEMORY)?;
    let mut room = Vec::new();
    room.try_reserve_exact(wanted).map_err(|_| CudaError::OUT_OF_MEMORY)?;
    room.resize(wanted, 0);
    Ok(room)
}

/// Fetches a list. `ask` fills the buffer that it gets, and returns the list's length in bytes. If the buffer was too
/// short, it is called again with a longer one. The first buffer has `usual` bytes.
///
/// Errors: those of `ask`; `CUDA_ERROR_OUT_OF_MEMORY` for a list that is too long; `CUDA_ERROR_UNKNOWN` if the length
/// changes in each attempt.
pub fn fetch<T>(
    usual: usize,
    mut ask: impl FnMut(&mut [u8]) -> Result<(T, u64), CudaError>,
) -> Result<(T, Vec<u8>), CudaError> {
    let mut room = zeros(usual as u64, MAX_LIST)?;
    for _ in 0..MAX_ATTEMPTS {
        let (value, bytes) = ask(&mut room)?;
        if bytes <= room.len() as u64 {
            room.truncate(bytes as usize);
            return Ok((value, room));
        }
        room = zeros(bytes, MAX_LIST)?;
    }
    Err(CudaError::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_asked_for_with_more_room() {
        let mut rooms = Vec::new();
        let (count, list) = fetch(4, |room| {
            rooms.push(room.len());
            room.fill(7);
            Ok((3, 6))
        })
        .expect("it fits the second time");
        assert_eq!((count, list), (3, vec![7; 6]));
        assert_eq!(rooms, [4, 6]);
    }

    #[test]
    fn absurd_lengths_are_refused() {
        assert_eq!(fetch(4, |_| Ok(((), u64::MAX))), Err(CudaError::OUT_OF_MEMORY));
        assert_eq!(fetch(4, |_| Ok(((), MAX_LIST + 1))), Err(CudaError::OUT_OF_MEMORY));
        assert_eq!(zeros(u64::MAX, u64::MAX), Err(CudaError::OUT_OF_MEMORY));
    }

    #[test]
    fn a_list_that_always_grows_ends() {
        let mut asked = 0;
        let grows = fetch(4, |room| {
            asked += 1;
            Ok(((), room.len() as u64 + 1))
        });
        assert_eq!((grows, asked), (Err(CudaError::UNKNOWN), MAX_ATTEMPTS));
    }
}
