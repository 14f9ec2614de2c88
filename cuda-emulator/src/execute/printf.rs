// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device printf FIFO.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The default of `cudaLimitPrintfFifoSize`.
pub const DEFAULT_FIFO_BYTES: usize = 1 << 20;

/// The bounded FIFO of device printf: when it is full, the oldest output is lost, as on the device.
#[derive(Debug)]
pub struct Printf {
    fifo: Mutex<Fifo>,
}

#[derive(Debug)]
struct Fifo {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    limit: usize,
}

impl Default for Printf {
    fn default() -> Self {
        Printf::new(DEFAULT_FIFO_BYTES)
    }
}

impl Printf {
    /// A FIFO that holds `limit` bytes of formatted output.
    pub fn new(limit: usize) -> Printf {
        Printf { fifo: Mutex::new(Fifo { lines: VecDeque::new(), bytes: 0, limit }) }
    }

    /// cudaLimitPrintfFifoSize; loses the oldest output when it no longer fits.
    pub fn resize(&self, limit: usize) {
        let mut fifo = self.fifo.lock().unwrap_or_else(PoisonError::into_inner);
        fifo.limit = limit;
        fifo.shrink();
    }

    /// The size in bytes.
    pub fn limit(&self) -> usize {
        self.fifo.lock().unwrap_or_else(PoisonError::into_inner).limit
    }

    /// Appends the output of one printf call.
    pub fn push(&self, text: Vec<u8>) {
        let mut fifo = self.fifo.lock().unwrap_or_else(PoisonError::into_inner);
        fifo.bytes += text.len();
        fifo.lines.push_back(text);
        fifo.shrink();
    }

    /// Takes all output so far, oldest first.
    pub fn drain(&self) -> Vec<u8> {
        let mut fifo = self.fifo.lock().unwrap_or_else(PoisonError::into_inner);
        fifo.bytes = 0;
        fifo.lines.drain(..).flatten().collect()
    }
}

impl Fifo {
    fn shrink(&mut self) {
        while self.bytes > self.limit {
            let Some(lost) = self.lines.pop_front() else { break };
            self.bytes -= lost.len();
        }
    }
}
