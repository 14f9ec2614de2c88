// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuRAND. Generators of host memory have separate rows, because the worker must never write to an address of the
//! guest. Their results are returned with the reply. A result that exceeds the maximum reply is generated in pieces.
//! The library continues the sequence where the last call ended, so all pieces together equal the result of one call.

use smallvec::SmallVec;

use crate::exports::CURAND;
use crate::forward_named;

/// `curandStatus_t`
type Status = i32;

const SUCCESS: Status = 0;
const NOT_INITIALIZED: Status = 101;

/// Maximum bytes of results per call; less than the maximum of a block of results.
const PIECE_BYTES: usize = 16 << 20;

/// The origin of a generator, stored with its handle: its `curandRngType_t`, a bit for host memory, and from bit 32 the
/// number of dimensions, 0 until it is set. A call that the library accepts for one generator is accepted for all of
/// the same origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Birth(u64);

impl Birth {
    const HOST: u64 = 1 << 16;

    fn of(generator: u64) -> Self {
        Self(CURAND.state(generator).birth)
    }

    fn is_host(self) -> bool {
        self.0 & Self::HOST != 0
    }

    fn with_dimensions(self, dimensions: u32) -> Self {
        Self(self.0 & u64::from(u32::MAX) | u64::from(dimensions) << 32)
    }

    /// Returns the number of consecutive sequences that fill a result.
    fn lines(self) -> usize {
        (self.0 >> 32).max(1) as usize
    }

    /// Returns whether normal numbers are generated in pairs only, as by XORWOW and MRG32k3a
    /// (`CURAND_RNG_PSEUDO_DEFAULT`, `_XORWOW`, `_MRG32K3A`).
    fn needs_pairs(self) -> bool {
        matches!(self.0 as u16, 100 | 101 | 121)
    }
}

/// The rows of a function, for generators of device memory and of host memory.
type Rows = [usize; 2];

/// # Safety
///
/// The slots are the arguments of the function of that row, as [`crate::forward`] requires.
unsafe fn forward(row: usize, slots: &[u64]) -> Status {
    // SAFETY: `# Safety` promises that the slots are the arguments of the function of that row.
    unsafe { crate::forward(&CURAND, row, slots) as Status }
}

/// Creates a generator that fills host memory.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandCreateGeneratorHost(place: *mut u64, kind: i32) -> Status {
    if place.is_null() {
        return NOT_INITIALIZED;
    }
    // SAFETY: these are the arguments of the row's function.
    let status = unsafe { forward_named(&CURAND, "curandCreateGeneratorHost", &[place as u64, kind as u64]) };
    // SAFETY: null or a place for a handle, as NVIDIA's function demands.
    if let (SUCCESS, Some(generator)) = (status, unsafe { place.as_ref() }) {
        CURAND.set_birth(*generator, Birth::of(*generator).0 | Birth::HOST);
    }
    status
}

/// Sets the stream of a generator. Ignored for generators of host memory.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandSetStream(generator: u64, stream: u64) -> Status {
    if Birth::of(generator).is_host() {
        return SUCCESS;
    }
    // SAFETY: these are the arguments of the row's function.
    unsafe { forward_named(&CURAND, "curandSetStream", &[generator, stream]) }
}

/// Sends a call with a generator of either kind.
///
/// # Safety
///
/// The slots are the arguments of the function of these rows.
pub(crate) unsafe fn by_place([device, host]: Rows, slots: &[u64]) -> Status {
    let row = if Birth::of(slots[0]).is_host() { host } else { device };
    // SAFETY: these are the arguments of the function of both rows.
    unsafe { forward(row, slots) }
}

/// Sets the number of dimensions of a quasi-random generator.
///
/// # Safety
///
/// The slots are the arguments of the function of these rows.
pub(crate) unsafe fn set_dimensions(rows: Rows, slots: &[u64]) -> Status {
    // SAFETY: these are the arguments of the function of both rows.
    let status = unsafe { by_place(rows, slots) };
    if status == SUCCESS {
        let (generator, dimensions) = (slots[0], slots[1] as u32);
        CURAND.set_birth(generator, Birth::of(generator).with_dimensions(dimensions).0);
    }
    status
}

/// The calls that generate a long result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// One call with that many elements. If that is not the length of the result, the library refuses the call.
    One(usize),
    /// Several calls of at most `longest` elements per line. The result has `lines` lines with `each` elements.
    Pieces { lines: usize, each: usize, longest: usize },
}

impl Calls {
    /// Returns the calls for `count` elements. `in_pairs` is set for normal numbers.
    fn of(birth: Birth, count: usize, element_bytes: usize, in_pairs: bool) -> Self {
        let lines = birth.lines();
        // Even, because normal numbers are generated in pairs.
        let longest = (PIECE_BYTES / element_bytes / lines).max(2) & !1;
        if count / lines < longest {
            return Self::One(count);
        }
        if !count.is_multiple_of(lines) {
            return Self::One(count % lines);
        }
        if in_pairs && birth.needs_pairs() && !count.is_multiple_of(2) {
            return Self::One(1);
        }
        Self::Pieces { lines, each: count / lines, longest }
    }
}

/// Fills memory with elements of `element_bytes` bytes. `in_pairs` is set for normal numbers.
///
/// # Safety
///
/// The slots are the arguments of the function of these rows: a generator, an address, the number of elements, and others.
pub(crate) unsafe fn fill(rows: Rows, slots: &[u64], element_bytes: usize, in_pairs: bool) -> Status {
    let (birth, output, count) = (Birth::of(slots[0]), slots[1], slots[2] as usize);
    let [device, host] = rows;
    if !birth.is_host() {
        // SAFETY: these are the arguments of the function of the row.
        return unsafe { forward(device, slots) };
    }
    let make = |output: u64, count: usize| {
        let mut piece: SmallVec<[u64; 5]> = SmallVec::from_slice(slots);
        (piece[1], piece[2]) = (output, count as u64);
        // SAFETY: the arguments of the function of the row by the contract of `fill`. Host memory is as long as `count`
        // says: it is the program's, or a vector.
        unsafe { forward(host, &piece) }
    };
    let is_possible = output != 0 && count.checked_mul(element_bytes).is_some();
    match Calls::of(birth, count, element_bytes, in_pairs) {
        Calls::Pieces { lines, each, longest } if is_possible => {
            let mut piece = vec![0_u8; if lines > 1 { lines * longest * element_bytes } else { 0 }];
            for start in (0..each).step_by(longest) {
                let length = longest.min(each - start);
                let place = |line: usize| output + ((line * each + start) * element_bytes) as u64;
                let target = if lines > 1 { piece.as_mut_ptr() as u64 } else { place(0) };
                let status = make(target, lines * length);
                if status != SUCCESS {
                    return status;
                }
                if lines > 1 {
                    for (line, bytes) in piece.chunks_exact(length * element_bytes).take(lines).enumerate() {
                        // SAFETY: the program has room for `count` elements at `output`, which are `lines` times
                        // `each`.
                        unsafe {
                            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place(line) as *mut u8, bytes.len())
                        };
                    }
                }
            }
            SUCCESS
        }
        Calls::One(count) => make(output, count),
        Calls::Pieces { .. } => make(output, count),
    }
}

/// Ends a distribution. Its memory is freed with the process: cuRAND follows host addresses in it, and a kernel could have changed
/// them.
#[unsafe(no_mangle)]
pub extern "C" fn curandDestroyDistribution(distribution: u64) -> Status {
    if distribution == 0 { NOT_INITIALIZED } else { SUCCESS }
}

#[cfg(test)]
mod tests {
    use cuda_library_rows::{Body, Kind, library};

    use super::*;

    const XORWOW: Birth = Birth(101 | Birth::HOST);
    const PHILOX: Birth = Birth(161 | Birth::HOST);
    const SOBOL: Birth = Birth(201 | Birth::HOST);

    #[test]
    fn short_results_are_one_call() {
        for birth in [XORWOW, PHILOX, SOBOL, SOBOL.with_dimensions(7)] {
            for count in [0, 1, 7, 1000, 1_000_001] {
                assert_eq!(Calls::of(birth, count, 8, true), Calls::One(count), "{birth:?}");
            }
        }
    }

    #[test]
    fn pieces_fit_an_answer_and_are_even() {
        for birth in [XORWOW, SOBOL.with_dimensions(3), SOBOL.with_dimensions(20_000)] {
            let count = 60_000_000;
            let Calls::Pieces { lines, each, longest } = Calls::of(birth, count, 8, true) else {
                panic!("{birth:?}")
            };
            assert!(lines * each == count && longest.is_multiple_of(2), "{birth:?}");
            assert!(lines * longest * 8 <= PIECE_BYTES.max(2 * 8 * lines), "{birth:?}");
        }
    }

    #[test]
    fn lengths_that_the_library_refuses_are_left_to_it() {
        assert_eq!(Calls::of(XORWOW, 50_000_001, 4, true), Calls::One(1));
        assert!(matches!(Calls::of(XORWOW, 50_000_001, 4, false), Calls::Pieces { .. }));
        assert!(matches!(Calls::of(PHILOX, 50_000_001, 4, true), Calls::Pieces { .. }));
        assert_eq!(Calls::of(SOBOL.with_dimensions(3), 60_000_002, 4, false), Calls::One(2));
    }

    #[test]
    fn no_row_gives_a_host_generator_an_address() {
        let (_, rows) = library("curand").expect("known");
        let host = rows.handles.iter().position(|kind| kind.name == "HostGenerator").expect("a kind");
        let mut found = 0;
        for function in rows.functions {
            let Body::Forward(call) = &function.body else { continue };
            let takes = |kind: &Kind| matches!(kind, Kind::Handle { kind, .. } if *kind == host);
            if call.parameters.iter().any(|parameter| takes(&parameter.kind)) {
                let is_address = |kind: &Kind| matches!(kind, Kind::Pointer | Kind::Stream);
                assert!(!call.parameters.iter().any(|parameter| is_address(&parameter.kind)), "{function:?}");
                found += 1;
            }
        }
        assert_eq!(found, 15);
    }
}
