// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fuzz target: the guest's driver library with a worker that lies. An input consists of a program's calls and the
//! worker's answers to the library's requests for them: heads, lengths, results and bulk data of replies, and the
//! words of lanes, which the worker may write at any time.
//!
//! The library must stay in the buffers that the program gave it, end every call, and never panic. State of the process that
//! earlier inputs leave (handles, positions in lanes) stays: an input does not always do the same.

mod program;
mod worker;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use virtio_cuda_client::open;

use program::Program;
use worker::Worker;

/// Calls of an input.
const MAX_CALLS: usize = 24;

/// Bytes that are left of an input; those that are not there are zero.
#[derive(Debug, Default)]
struct Script {
    bytes: Vec<u8>,
    at: usize,
}

impl Script {
    fn more(&self) -> bool {
        self.at < self.bytes.len()
    }

    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    /// A number: short, one at which something changes, or any.
    fn number(&mut self) -> u64 {
        const EDGES: [u64; 8] =
            [0x1000, 0xffff, 1 << 20, 0x7fff_ffff, 0xffff_ffff, 1 << 40, 1 << 63, u64::MAX];
        match self.byte() {
            small @ 0..=0x9f => u64::from(small),
            edge @ 0xa0..=0xdf => {
                EDGES[usize::from(edge & 7)].wrapping_add(u64::from(edge >> 3 & 3)).wrapping_sub(1)
            }
            // Near the addresses that worker and program agree upon.
            0xe0..=0xef => 0x3000_0000_0000 + (u64::from(self.byte()) << 12),
            _ => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }
}

static PROGRAM: OnceLock<Mutex<(Program, Arc<Worker>)>> = OnceLock::new();

fn start() -> Mutex<(Program, Arc<Worker>)> {
    worker::silence();
    let worker = Arc::new(Worker::default());
    let transport = worker.clone();
    open::session_over(|| Ok(Box::new(worker::Way(transport))))
        .expect("the worker tells no lie before the first input");
    Mutex::new((Program::start(), worker))
}

/// See the head of this file.
pub fn run(data: &[u8]) {
    let mut held = PROGRAM.get_or_init(start).lock().unwrap_or_else(PoisonError::into_inner);
    let (program, worker) = &mut *held;
    let Some((&afterwards, script)) = data.split_first() else { return };
    worker.lie(script, afterwards);
    for _ in 0..MAX_CALLS {
        let Some((call, number)) = worker.next_call() else { break };
        program.call(call, number);
    }
    worker.be_honest();
}

#[cfg(test)]
mod tests {
    use crate::corpus;

    #[test]
    fn corpora() {
        corpus::replay("answers", super::run);
    }
}
