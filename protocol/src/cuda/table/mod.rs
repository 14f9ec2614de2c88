// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! One row per call, one file per area. A row is
//!
//! ```text
//! /// Allocates device memory.
//! 0x0301 custom cuMemAlloc_v2(bytesize: u64) -> (dptr: DevicePtr) [idle same prints];
//! ```
//!
//! number, kind of handler, CUDA name, inputs, results, [`Facts`]; the doc line describes bulk data.
//!
//! - `forward`: the device's handler is derived. Each input is resolved and handed to the driver function of that name in
//!   the same order; each result of the driver is converted to the row's type. Addresses need a clause
//!   `where dst: elements(n, 4)`, which states the bytes that the driver uses there, and writes if the name is `dst`; they
//!   must be the session's, and nothing happens if their number is 0.
//! - `create`: derived, too. The first input is the name that the guest chose for the object that the driver makes of the
//!   other ones.
//! - `destroy`: derived, too. Destroys the object of that name, by the rules of its type.
//! - `part`: derived, too. Names a part of an object: the first input is the object, the last one the part's name.
//! - `variable`: derived, too. Finds the variable of a module or library that the bulk input names.
//! - `load`: derived, too. Loads an image as a module or library of that name: the bulk input, or the image of a digest
//!   that the daemon has kept.
//! - `upload`, `download`: derived, too. Copy the bulk data to or from device memory, in the order of a stream.
//! - `card`: derived, too. Asks the host's management library about a device, or about the host.
//! - `custom`: the handler is written by hand, and the build fails until it exists.
//!
//! A clause `as cuMemPoolSetAccess(pool, granted(location, access), one())` behind the facts states the driver's function
//! and its arguments, where they are not the row's name and inputs. An argument is an input, a literal, or a *word*: a
//! function of `vhost-cuda/src/worker/words` that makes one value of the driver's of several inputs or of the bulk input,
//! and checks it. The call answers with the error of its first wrong argument.
//!
//! A clause `entry first` or `entry last` has the guest library derive the exported function, too: pointers for the results
//! come before or after the inputs, which are in the order of the row. `entry last / cuStreamGetId_ptsz` exports the variant
//! with a default stream per thread as well. The others are written by hand in `guest-lib/libcuda`.
//!
//! [`all_calls!`](crate::all_calls) hands every row at once to a macro of the consumer. A number, once
//! shipped, keeps its meaning for ever: `golden/calls.txt` checks it.

mod array;
mod context;
mod device;
mod event;
mod facts;
mod graph;
mod ipc;
mod launch;
mod link;
mod memory;
mod module;
mod nvml;
mod peer;
mod pool;
mod reference;
mod session;
mod stream;
mod texture;
mod vendor;
mod vmm;

pub use facts::{Facts, Launches, Text, Work};

/// Expands to `$emit! { rows }` with every row of the call table.
#[macro_export]
macro_rules! all_calls {
    ($emit:ident) => {
        $crate::session_calls! { ($emit [device_calls context_calls memory_calls module_calls launch_calls stream_calls event_calls array_calls texture_calls reference_calls pool_calls vmm_calls link_calls peer_calls ipc_calls graph_calls nvml_calls vendor_calls]) {} }
    };
}

/// Goes on to the next area with the rows collected so far, then to the consumer.
#[doc(hidden)]
#[macro_export]
macro_rules! next_area {
    (($emit:ident []) { $($rows:tt)* }) => { $emit! { $($rows)* } };
    (($emit:ident [$next:ident $($later:ident)*]) { $($rows:tt)* }) => {
        $crate::$next! { ($emit [$($later)*]) { $($rows)* } }
    };
}

/// Numbers of rows that were removed. No other call gets them.
pub const RETIRED: &[u32] = &[0x0316, 0x0317, 0x0318, 0x0920, 0x0921, 0x0922, 0x0923, 0x0924];

/// A row of the call table as data, for documentation and the golden file.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The number.
    pub opcode: u32,
    /// The kind of row: `forward`, `custom`, …; see the head of this module.
    pub kind: &'static str,
    /// The CUDA name.
    pub name: &'static str,
    /// Names and types of the inputs.
    pub inputs: &'static str,
    /// Bytes of the inputs on the wire.
    pub input_bytes: usize,
    /// Names and types of the results.
    pub results: &'static str,
    /// The facts.
    pub facts: Facts,
}

use super::*;

macro_rules! emit_opcodes {
    ($($(#[$doc:meta])* $number:literal $kind:ident $name:ident ($($p:ident: $pt:ty),*) -> ($($r:ident: $rt:ty),*) [$work:ident $launches:ident $text:ident $($fact:ident)*] $(as $function:ident($($arg:expr),*))? $(entry $order:ident $(/ $per_thread:ident)?)? $(where $($range:ident: $bytes:expr),*)?;)*) => {
        /// The calls by number.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode { $($(#[$doc])* $name = $number,)* }

        impl Opcode {
            /// Returns the call with this number.
            pub fn from_u32(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
            /// Returns the CUDA name, for traces.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
            /// Returns the facts of its row.
            pub const fn facts(self) -> Facts {
                match self { $(Self::$name => const { Facts::new(Work::$work, Launches::$launches, Text::$text)$(.$fact())* },)* }
            }
        }

        /// Every row.
        pub const ROWS: &[Row] = &[$(Row {
            opcode: $number,
            kind: stringify!($kind),
            name: stringify!($name),
            inputs: stringify!($($p: $pt),*),
            input_bytes: 0 $(+ <$pt as Wire>::BYTES)*,
            results: stringify!($($r: $rt),*),
            facts: Opcode::$name.facts(),
        },)*];

        /// Bytes of the longest arguments of a row.
        pub const MAX_ARGS: usize = longest(&[$(0 $(+ <$pt as Wire>::BYTES)*),*]);
        /// Bytes of the longest results of a row.
        pub const MAX_RESULTS: usize = longest(&[$(0 $(+ <$rt as Wire>::BYTES)*),*]);
    };
}
crate::all_calls!(emit_opcodes);

const fn longest(bytes: &[usize]) -> usize {
    let (mut longest, mut at) = (0, 0);
    while at < bytes.len() {
        if bytes[at] > longest {
            longest = bytes[at];
        }
        at += 1;
    }
    longest
}
