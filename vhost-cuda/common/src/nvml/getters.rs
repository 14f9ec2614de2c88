// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVML functions by their number in `protocol`'s table of getters.

use std::ffi::{CString, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

use libloading::os::unix::Symbol;
use virtio_cuda_protocol::cuda::getter::{MAX_INPUTS, MAX_PARAMETERS};
use virtio_cuda_protocol::cuda::{Getter, Parameter};

use super::{Nvml, symbol};

/// An argument in one register: a number or an address.
type Register = *mut c_void;

/// The maximum number of arguments, including the device.
const MAX_WORDS: usize = MAX_PARAMETERS + 1;
// Both calling conventions (x86-64 and AArch64) pass this number in registers.
const _: () = assert!(MAX_WORDS <= 6);

/// The memory that the library writes, aligned as its structures require.
struct Results(Vec<u64>);

impl Results {
    /// Returns the address of word `first`, which lies inside.
    fn place(&mut self, first: usize) -> Register {
        self.0[first / size_of::<u64>()..].as_mut_ptr().cast()
    }

    /// Sets the first words of a structure, or the number of entries that fit.
    fn set(&mut self, first: usize, words: impl Iterator<Item = u32>) {
        for (index, word) in words.enumerate() {
            let (long, shift) = (first / 8 + index / 2, 32 * (index % 2));
            self.0[long] |= u64::from(word) << shift;
        }
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_iter().flat_map(u64::to_ne_bytes).collect()
    }
}

/// Returns the arguments of `getter` for a device and valid inputs, and memory for its results.
fn arguments(
    getter: &Getter,
    device: Register,
    inputs: [u64; MAX_INPUTS],
    peer: impl Fn(u32) -> Option<Register>,
) -> Option<(Vec<Register>, Results)> {
    let mut results = Results(vec![0; getter.bytes() / size_of::<u64>()]);
    let mut inputs = inputs.into_iter();
    let mut places = getter.places().map(|(_, first, _)| first);
    let mut arguments = Vec::with_capacity(MAX_WORDS);
    arguments.extend(getter.of_device.then_some(device));
    let mut room = 0;
    for &parameter in getter.parameters {
        arguments.push(match parameter {
            Parameter::Up(_) | Parameter::Only(_) | Parameter::Number => {
                without_provenance_mut(inputs.next()? as usize)
            }
            Parameter::Peer => peer(u32::try_from(inputs.next()?).ok()?)?,
            Parameter::Room => without_provenance_mut(room),
            Parameter::Out(_) | Parameter::Maybe(_) | Parameter::Entries(_) => results.place(places.next()?),
            Parameter::Text(bytes) => {
                room = bytes as usize;
                results.place(places.next()?)
            }
            Parameter::Count(most) => {
                let first = places.next()?;
                results.set(first, [most].into_iter());
                results.place(first)
            }
            Parameter::Struct(bytes, version, lasts) => {
                let first = places.next()?;
                let given = inputs.by_ref().take(lasts.len()).map(|input| input as u32);
                results.set(first, [bytes | version << 24].into_iter().chain(given));
                results.place(first)
            }
        });
    }
    Some((arguments, results))
}

impl Nvml {
    /// Returns the status of `getter` (`nvmlReturn_t`) and its results, for valid inputs. `peer` finds the library's
    /// handle of another device. Returns `None` if the library does not have the function, or there is no such
    /// device.
    pub fn get(
        &self,
        getter: &Getter,
        inputs: [u64; MAX_INPUTS],
        peer: impl Fn(u32) -> Option<*mut c_void>,
    ) -> Option<(c_int, Vec<u8>)> {
        let (given, results) = arguments(getter, self.device, inputs, peer)?;
        let name = CString::new(getter.name).ok()?;
        let mut all = [null_mut(); MAX_WORDS];
        all[..given.len()].copy_from_slice(&given);
        let [a, b, c, d, e, f] = all;
        // SAFETY: the table's rows are nvml.h's prototypes, with a number or an address for each parameter. Both are
        // passed in registers. A function reads the registers that it has parameters for, and of each as many bits as
        // the parameter has; so additional ones do no harm. Every address is a place in `results`, which lives
        // through the call, of the size that the row says: the library writes a type of this size, `Room` bytes of a
        // text, or as many entries as `Count` says.
        let code = unsafe {
            type Call =
                unsafe extern "C" fn(Register, Register, Register, Register, Register, Register) -> c_int;
            let get: Symbol<Call> = symbol(&self.library, &name)?;
            get(a, b, c, d, e, f)
        };
        Some((code, results.bytes()))
    }

    /// Returns the library's handle of the device.
    pub fn handle(&self) -> *mut c_void {
        self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> &'static Getter {
        Getter::all().iter().find(|getter| getter.name == name).unwrap()
    }

    #[test]
    fn arguments_lie_where_the_prototype_has_them() {
        let device = without_provenance_mut(0x1000);
        let (given, results) =
            arguments(row("nvmlDeviceGetInforomVersion"), device, [2, 0, 0], |_| None).unwrap();
        assert_eq!((given[0], given[1].addr(), given[3].addr(), given.len()), (device, 2, 16, 4));
        assert_eq!(given[2].addr(), results.0.as_ptr().addr());

        let (given, results) =
            arguments(row("nvmlDeviceGetSupportedGraphicsClocks"), device, [3201, 0, 0], |_| None).unwrap();
        assert_eq!((given[1].addr(), given.len()), (3201, 4));
        assert_eq!(given[3].addr() - given[2].addr(), 8);
        assert_eq!(results.bytes()[..8], [0, 2, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn structures_say_their_version_and_inputs() {
        let (given, results) =
            arguments(row("nvmlDeviceGetClockOffsets"), null_mut(), [2, 15, 0], |_| None).unwrap();
        assert_eq!(given.len(), 2);
        assert_eq!(results.bytes()[..16], [24, 0, 0, 1, 2, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn other_devices_are_looked_up() {
        let known = |number| (number == 1).then_some(without_provenance_mut(0x2000));
        let same = row("nvmlDeviceOnSameBoard");
        let (given, _) = arguments(same, null_mut(), [1, 0, 0], known).unwrap();
        assert_eq!(given[1].addr(), 0x2000);
        assert!(arguments(same, null_mut(), [2, 0, 0], known).is_none());
    }

    #[test]
    fn inputs_that_no_row_admits_are_refused() {
        assert!(Getter::of(u32::MAX).is_none());
        let samples = row("nvmlDeviceGetSamples");
        assert!(samples.check([0, u64::MAX, 0]).is_ok());
        for forged in [[1, 0, 0], [2, 0, 0], [0, 0, 1], [1 << 32, 0, 0]] {
            assert!(samples.check(forged).is_err(), "{forged:?}");
        }
        assert!(row("nvmlDeviceGetClockOffsets").check([3, 33, 0]).is_err());
        assert!(row("nvmlDeviceGetBoardId").check([1, 0, 0]).is_err());
    }
}
