// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of NVIDIA's libraries that come again with the same arguments and settings: their work is recorded once, by a
//! capture, and launched as a graph. cuBLAS needs 9 to 13 us on the processor for a small product, and a launch of a graph 1.5 us
//! (docs/performance.md).

use std::sync::Weak;

use log::debug;
use smallvec::SmallVec;

use super::table::Turn;
use super::{Prepared, Preparing};
use crate::worker::gpu::{CUstream, CuResult, Driver, OneCall};
use crate::worker::objects::Object;

/// The maximum length of a block of arguments. Calls with a longer one stay plain.
const MAX_BYTES: usize = 1024;

/// The number of the settings ([`crate::worker::vendor::settings`]), the numbers of library and function, and the block of arguments. The
/// work of a call depends on nothing else.
pub(super) type Key = Box<[u8]>;

/// A call that may be repeated.
#[derive(Debug)]
pub struct Repeat<'r> {
    /// The number of the handle's settings.
    pub settings: u64,
    /// The numbers of library and function.
    pub function: (u32, u32),
    /// Its arguments.
    pub block: &'r [u8],
    /// The name of the stream, and the driver's handle.
    pub stream: (u64, CUstream),
    /// True if the next call waits already: the executor is slower than the program. Only such calls are counted, because recording
    /// takes longer than a call, and gains nothing where the executor waits for the program.
    pub late: bool,
}

/// The outcome of [`Prepared::repeat`].
#[derive(Debug, PartialEq, Eq)]
pub enum Repeated {
    /// Its work was queued.
    Launched,
    /// The work is to be recorded, and passed to [`Prepared::keep_call`], or [`Prepared::put_off_call`] to be called.
    Record,
    /// The call is to be made.
    Not,
}

impl Repeat<'_> {
    fn key(&self) -> SmallVec<[u8; MAX_BYTES]> {
        let mut key = SmallVec::new();
        key.extend_from_slice(&self.settings.to_le_bytes());
        key.extend_from_slice(&self.function.0.to_le_bytes());
        key.extend_from_slice(&self.function.1.to_le_bytes());
        key.extend_from_slice(self.block);
        key
    }
}

impl Prepared {
    /// Launches the work of a call if it was recorded.
    pub fn repeat(
        &mut self,
        gpu: &Driver,
        preparing: &Preparing,
        context: &Weak<Object>,
        repeat: &Repeat<'_>,
    ) -> Repeated {
        let stream = (repeat.stream.0, Weak::as_ptr(context).addr());
        if repeat.block.len() > MAX_BYTES || self.lag.is_behind(stream) {
            self.count(gpu, preparing, context, repeat.stream);
            return Repeated::Not;
        }
        self.forget_changed(gpu, preparing);
        let key = repeat.key();
        let after = preparing.repeat_after;
        let repeated = match self.calls.graph(&key[..]) {
            None if !repeat.late => Repeated::Not,
            _ => match self.calls.turn(gpu, &key[..], after, context, || (key[..].into(), Weak::new())) {
                Turn::Plain => Repeated::Not,
                Turn::Make => return Repeated::Record,
                Turn::Launch => self.launch_call(gpu, &key, repeat.stream.1),
            },
        };
        self.count(gpu, preparing, context, repeat.stream);
        repeated
    }

    /// Keeps the recorded work of a call, and launches it.
    pub fn keep_call(
        &mut self,
        gpu: &Driver,
        preparing: &Preparing,
        context: &Weak<Object>,
        repeat: &Repeat<'_>,
        recorded: CuResult<OneCall>,
    ) -> Repeated {
        debug!("a library's call is recorded: {:?}", recorded.as_ref().map(drop));
        let key = repeat.key();
        self.calls.put(&key[..], recorded);
        let repeated = self.launch_call(gpu, &key, repeat.stream.1);
        self.count(gpu, preparing, context, repeat.stream);
        repeated
    }

    /// Leaves the recording of a call to the next one.
    pub fn put_off_call(&mut self) {
        self.calls.put_off();
    }

    fn launch_call(&mut self, gpu: &Driver, key: &[u8], stream: CUstream) -> Repeated {
        let Some(graph) = self.calls.graph(key) else { return Repeated::Not };
        match gpu.launch_one_call(graph, stream) {
            Ok(()) => Repeated::Launched,
            Err(error) => {
                debug!("a recorded call is made plainly: {error}");
                self.calls.give_up(gpu, key);
                Repeated::Not
            }
        }
    }
}
