// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of the just-in-time compiler in the driver's form, and the compiler's logs.

use std::ffi::{c_uint, c_void};
use std::ops::RangeInclusive;

use virtio_cuda_protocol::cuda::{JIT_OPTIONS, JitOptions};

use crate::gpu::{CuResult, CudaError};

/// The maximum length of a log, in bytes.
const MAX_LOG_BYTES: u32 = 1 << 20;

/// `CUjit_option` values.
const THREADS_PER_BLOCK: u32 = 1;
const WALL_TIME: u32 = 2;
const INFO_LOG_BUFFER: u32 = 3;
const INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
const ERROR_LOG_BUFFER: u32 = 5;
const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
/// The options whose values are arrays of pointers, and the number of their elements.
const SYMBOLS: [u32; 7] = [17, 18, 19, 25, 26, 27, 28];
/// The other options whose values are numbers, up to `CU_JIT_BINARY_LOADER_THREAD_COUNT` of CUDA 13.2. The value of an
/// option that is not listed could be an address that the compiler writes to.
const NUMBERS: [RangeInclusive<u32>; 4] = [0..=2, 7..=15, 20..=24, 29..=35];

/// The logs of the compiler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JitLogs {
    /// The information log.
    pub info: Vec<u8>,
    /// The error log.
    pub error: Vec<u8>,
    /// The compilation time, in milliseconds.
    pub wall_time: f32,
    /// Threads that the code was compiled for.
    pub threads_per_block: u32,
}

/// Options as the driver takes them, with the buffers that they refer to. The driver may write to these buffers as
/// long as the object that was created with the options lives.
#[derive(Debug, Default)]
pub struct JitArguments {
    numbers: Vec<c_uint>,
    // Pointers and numbers, as integers so that threads may share them.
    values: Vec<usize>,
    info: Vec<u8>,
    error: Vec<u8>,
}

impl JitArguments {
    /// Converts the guest's options. None may occur twice: the driver takes the last one, so a second size of a log
    /// would replace that of the buffer.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`; `CUDA_ERROR_NOT_SUPPORTED` for options with pointers.
    pub fn new(options: &JitOptions) -> CuResult<Self> {
        let count = options.count as usize;
        if count > JIT_OPTIONS {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut made = Self::default();
        for (&number, &value) in options.options[..count].iter().zip(&options.values) {
            match number {
                _ if made.numbers.contains(&number) => return Err(CudaError::INVALID_VALUE),
                INFO_LOG_BUFFER_SIZE_BYTES => made.info = made.buffer(INFO_LOG_BUFFER, number, value),
                ERROR_LOG_BUFFER_SIZE_BYTES => made.error = made.buffer(ERROR_LOG_BUFFER, number, value),
                _ if SYMBOLS.contains(&number) => return Err(CudaError::NOT_SUPPORTED),
                _ if NUMBERS.iter().any(|known| known.contains(&number)) => made.push(number, value as usize),
                _ => return Err(CudaError::INVALID_VALUE),
            }
        }
        Ok(made)
    }

    fn push(&mut self, number: u32, value: usize) {
        self.numbers.push(number);
        self.values.push(value);
    }

    /// Creates a log buffer. Its address does not change when the vector moves.
    fn buffer(&mut self, number: u32, size_number: u32, room: u32) -> Vec<u8> {
        let mut buffer = vec![0; room.clamp(1, MAX_LOG_BYTES) as usize];
        self.push(number, buffer.as_mut_ptr() as usize);
        self.push(size_number, buffer.len());
        buffer
    }

    /// Returns the length of the log buffers, in bytes.
    pub fn log_bytes(&self) -> usize {
        self.info.len() + self.error.len()
    }

    /// Returns the number of options, their numbers and their values, for one driver call.
    pub fn as_raw(&mut self) -> (c_uint, *mut c_uint, *mut *mut c_void) {
        if self.numbers.is_empty() {
            return (0, std::ptr::null_mut(), std::ptr::null_mut());
        }
        (self.numbers.len() as c_uint, self.numbers.as_mut_ptr(), self.values.as_mut_ptr().cast())
    }

    /// Returns the text that the driver has written so far.
    pub fn logs(&self) -> JitLogs {
        // The driver writes four bytes of a value.
        let value = |wanted: u32| {
            let place = self.numbers.iter().position(|&number| number == wanted)?;
            Some(self.values[place] as u32)
        };
        let log = |buffer: &[u8], size: u32| {
            let bytes = value(size).unwrap_or(0) as usize;
            buffer[..bytes.min(buffer.len())].to_vec()
        };
        JitLogs {
            info: log(&self.info, INFO_LOG_BUFFER_SIZE_BYTES),
            error: log(&self.error, ERROR_LOG_BUFFER_SIZE_BYTES),
            wall_time: f32::from_bits(value(WALL_TIME).unwrap_or(0)),
            threads_per_block: value(THREADS_PER_BLOCK).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(given: &[(u32, u32)]) -> JitOptions {
        let mut options = JitOptions { count: given.len() as u32, ..Default::default() };
        for (index, &(number, value)) in given.iter().enumerate() {
            options.options[index] = number;
            options.values[index] = value;
        }
        options
    }

    #[test]
    fn what_the_driver_writes_is_read_back() {
        let mut made =
            JitArguments::new(&options(&[(WALL_TIME, 0), (INFO_LOG_BUFFER_SIZE_BYTES, 16), (7, 3)])).unwrap();
        let (count, numbers, values) = made.as_raw();
        assert_eq!(count, 4);
        // SAFETY: `count` numbers and values.
        let (numbers, values) = unsafe {
            let numbers = std::slice::from_raw_parts(numbers, 4);
            (numbers, std::slice::from_raw_parts_mut(values.cast::<u64>(), 4))
        };
        assert_eq!(numbers, [WALL_TIME, INFO_LOG_BUFFER, INFO_LOG_BUFFER_SIZE_BYTES, 7]);
        assert_eq!((values[2], values[3]), (16, 3));
        values[0] = u64::from(1.5f32.to_bits());
        values[2] = 3;
        // SAFETY: the buffer has 16 bytes.
        unsafe { std::ptr::copy_nonoverlapping(b"abc".as_ptr(), values[1] as *mut u8, 3) };
        let logs = made.logs();
        assert_eq!((logs.info.as_slice(), logs.wall_time), (&b"abc"[..], 1.5));
    }

    /// NVIDIA's driver 580 takes the last one: it wrote 524,288 bytes into a buffer of 16.
    #[test]
    fn an_option_occurs_once() {
        let sizes = [(INFO_LOG_BUFFER_SIZE_BYTES, 16), (INFO_LOG_BUFFER_SIZE_BYTES, 1 << 20)];
        assert_eq!(JitArguments::new(&options(&sizes)).err(), Some(CudaError::INVALID_VALUE));
        for number in (0..=u32::from(u8::MAX)).chain([1 << 31, u32::MAX]) {
            let twice = [(number, 16), (7, 3), (number, 8)];
            assert!(JitArguments::new(&options(&twice)).is_err(), "{number}");
        }
    }

    #[test]
    fn only_numbers_that_are_documented_reach_the_driver() {
        let accepted = (0..64).filter(|&number| JitArguments::new(&options(&[(number, 1)])).is_ok());
        let documented = (0..=35).filter(|number| !matches!(number, 3 | 5 | 16..=19 | 25..=28));
        assert!(accepted.eq(documented));
    }

    #[test]
    fn pointers_and_overlong_lists_are_refused() {
        for bad in [
            options(&[(INFO_LOG_BUFFER, 4096)]),
            options(&[(17, 1)]),
            JitOptions { count: 25, ..options(&[]) },
        ] {
            assert!(JitArguments::new(&bad).is_err());
        }
        let mut vast = JitArguments::new(&options(&[(ERROR_LOG_BUFFER_SIZE_BYTES, u32::MAX)])).unwrap();
        assert_eq!(vast.as_raw().0, 2);
        assert_eq!(vast.error.len(), MAX_LOG_BYTES as usize);
        assert_eq!(vast.logs().error.len(), MAX_LOG_BYTES as usize, "no more than there is");
    }
}
