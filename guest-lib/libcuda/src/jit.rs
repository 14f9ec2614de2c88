// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Options of the just-in-time compiler, and the program's variables for its results.

use virtio_cuda_client::protocol::{JIT_OPTIONS, JitOptions};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::ffi::{HostPtr, In, Out};

/// `CUjit_option` values.
const THREADS_PER_BLOCK: u32 = 1;
const WALL_TIME: u32 = 2;
const INFO_LOG_BUFFER: u32 = 3;
const INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
const ERROR_LOG_BUFFER: u32 = 5;
const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
/// Maximum length of a log that is transferred, in bytes.
const MAX_LOG_BYTES: u32 = 1 << 20;

/// A log buffer of the program.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    buffer: Option<Out<u8>>,
    room: u32,
    /// The option whose value is set to the log's length.
    size_option: Option<usize>,
}

impl Log {
    fn wanted_bytes(&self) -> u32 {
        if self.buffer.is_some() { self.room.min(MAX_LOG_BYTES) } else { 0 }
    }

    /// Stores a log, terminated by a NUL if there is room.
    fn store(&self, values: Out<u32>, log: &[u8]) -> Result<(), CudaError> {
        if let Some(buffer) = self.buffer {
            let room = self.room as usize;
            let nul = std::iter::once(&0).take(room.saturating_sub(log.len()));
            for (index, &byte) in log.iter().take(room).chain(nul).enumerate() {
                buffer.set_at(index, byte)?;
            }
        }
        match self.size_option {
            Some(option) => set_value(values, option, log.len() as u32),
            None => Ok(()),
        }
    }
}

/// Sets an option's value. A value is a `void *`, of which the driver writes the first four bytes.
fn set_value(values: Out<u32>, option: usize, value: u32) -> Result<(), CudaError> {
    values.set_at(2 * option, value)
}

/// The program's variables for results.
#[derive(Clone, Copy, Debug)]
pub struct JitSinks {
    values: Out<u32>,
    wall_time: Option<usize>,
    threads: Option<usize>,
    info: Log,
    error: Log,
}

// SAFETY: these are addresses in the program's memory. The documentation makes the program keep them valid, and
// leave them alone, until the link ends; a link is used by one thread at a time.
unsafe impl Send for JitSinks {}

impl JitSinks {
    /// Parses the program's options: numbers are sent, addresses stay local. Of an option that occurs twice, the last
    /// one counts, as with NVIDIA's driver.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`; `CUDA_ERROR_NOT_SUPPORTED` for options that refer to symbols.
    pub fn parse(options: In<u32>, values: HostPtr, count: u32) -> Result<(JitOptions, Self), CudaError> {
        if count > 0 && (options.is_null() || values.address() == 0) {
            return Err(CudaError::INVALID_VALUE);
        }
        // SAFETY: there are `count` values, as wide as pointers: numbers, which a call may answer in the same place,
        // and for these options buffers.
        let (places, numbers, buffers) =
            unsafe { (values.as_out(), values.as_in::<u64>(), values.as_in::<Out<u8>>()) };
        let mut sinks = Self {
            values: places,
            wall_time: None,
            threads: None,
            info: Log::default(),
            error: Log::default(),
        };
        let mut crossing = JitOptions::default();
        for index in 0..count as usize {
            let number = options.at(index)?;
            let value = numbers.at(index)? as u32;
            let buffer = || buffers.at(index).map(|out| (!out.is_null()).then_some(out));
            match number {
                INFO_LOG_BUFFER => sinks.info.buffer = buffer()?,
                ERROR_LOG_BUFFER => sinks.error.buffer = buffer()?,
                INFO_LOG_BUFFER_SIZE_BYTES => {
                    (sinks.info.room, sinks.info.size_option) = (value, Some(index))
                }
                ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (sinks.error.room, sinks.error.size_option) = (value, Some(index));
                }
                WALL_TIME => {
                    sinks.wall_time = Some(index);
                    push(&mut crossing, number, 0)?;
                }
                17..=19 | 25..=28 => return Err(CudaError::NOT_SUPPORTED),
                _ => {
                    if number == THREADS_PER_BLOCK {
                        sinks.threads = Some(index);
                    }
                    push(&mut crossing, number, value)?;
                }
            }
        }
        for (log, number) in
            [(sinks.info, INFO_LOG_BUFFER_SIZE_BYTES), (sinks.error, ERROR_LOG_BUFFER_SIZE_BYTES)]
        {
            if log.wanted_bytes() > 0 {
                push(&mut crossing, number, log.wanted_bytes())?;
            }
        }
        Ok((crossing, sinks))
    }

    /// Stores the results of a call for which nothing was compiled: no time was spent, and the logs are empty.
    pub fn store_nothing(&self) -> Result<(), CudaError> {
        self.info.store(self.values, &[])?;
        self.error.store(self.values, &[])?;
        self.wall_time.map_or(Ok(()), |option| set_value(self.values, option, 0))
    }

    /// Fetches the results of the calling thread's last call with options.
    pub fn fetch(&self, call: Call<'_>) -> Result<(), CudaError> {
        let wants_logs = self.info.size_option.or(self.error.size_option).is_some();
        if !wants_logs && self.wall_time.or(self.threads).is_none() {
            return Ok(());
        }
        let room = self.info.wanted_bytes() + self.error.wanted_bytes();
        let mut logs = vec![0; room as usize];
        let mut call = call.output(&mut logs);
        let (info_bytes, error_bytes, wall_time, threads) = calls::jit_logs(&mut call)?;
        let (info, rest) = logs.split_at((info_bytes as usize).min(logs.len()));
        let error = &rest[..(error_bytes as usize).min(rest.len())];
        self.info.store(self.values, info)?;
        self.error.store(self.values, error)?;
        if let Some(option) = self.wall_time {
            set_value(self.values, option, wall_time.to_bits())?;
        }
        match self.threads {
            Some(option) => set_value(self.values, option, threads),
            None => Ok(()),
        }
    }
}

/// Sends an option, in place of an earlier one of that number.
fn push(options: &mut JitOptions, number: u32, value: u32) -> Result<(), CudaError> {
    let count = options.count as usize;
    let index = options.options[..count].iter().position(|&known| known == number).unwrap_or(count);
    if index >= JIT_OPTIONS {
        return Err(CudaError::INVALID_VALUE);
    }
    options.options[index] = number;
    options.values[index] = value;
    options.count = options.count.max(index as u32 + 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses options and stores the logs of a call. Returns what crosses.
    fn parsed(numbers: &[u32], values: &mut [usize], logs: [&[u8]; 2]) -> Vec<(u32, u32)> {
        // SAFETY: as many numbers and values, and the tests' buffers are as long as they say.
        let (options, at) = unsafe {
            (In::at_address(numbers.as_ptr() as usize), HostPtr::at_address(values.as_mut_ptr() as usize))
        };
        let (crossing, sinks) = JitSinks::parse(options, at, numbers.len() as u32).expect("valid");
        sinks.info.store(sinks.values, logs[0]).expect("a place");
        sinks.error.store(sinks.values, logs[1]).expect("a place");
        let pairs = crossing.options.into_iter().zip(crossing.values);
        pairs.take(crossing.count as usize).collect()
    }

    #[test]
    fn the_last_of_an_option_counts() {
        let (mut first, mut last) = ([0x7b_u8; 8], [0x7b_u8; 8]);
        let numbers = [
            INFO_LOG_BUFFER,
            INFO_LOG_BUFFER_SIZE_BYTES,
            7,
            INFO_LOG_BUFFER_SIZE_BYTES,
            INFO_LOG_BUFFER,
            7,
            WALL_TIME,
            WALL_TIME,
        ];
        let mut values = [first.as_mut_ptr() as usize, 8, 1, 4, last.as_mut_ptr() as usize, 3, 0, 0];
        let crossing = parsed(&numbers, &mut values, [b"ab", b""]);
        assert_eq!(crossing, [(7, 3), (WALL_TIME, 0), (INFO_LOG_BUFFER_SIZE_BYTES, 4)]);
        assert_eq!((first, &last), ([0x7b; 8], b"ab\0\x7b\x7b\x7b\x7b\x7b"));
        assert_eq!((values[1], values[3]), (8, 2));
    }

    #[test]
    fn nothing_is_stored_in_a_log_without_room() {
        let mut log = [0x7b_u8; 2];
        let mut values = [log.as_mut_ptr() as usize, 0];
        let numbers = [ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES];
        assert_eq!(parsed(&numbers, &mut values, [b"", b""]), []);
        assert_eq!((log, values[1]), ([0x7b; 2], 0));
    }
}
