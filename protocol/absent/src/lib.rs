// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that a library exports but lacks.
//!
//! Programs are often bound at load time, where one missing name is fatal, and tools take a missing name as a sign of an old library.
//! Each of our libraries therefore defines all names of the library in whose place it is loaded. A build script calls
//! `build::define` with these names. Each becomes a function that calls one function of the library with the name's position in the
//! list and the arguments of the call. It is weak: a function of the same name in the library's sources wins when the library is
//! linked. The emulator, which programs also link as a Rust crate, lists the names that it lacks instead.
//!
//! [`Refusal`] describes what NVIDIA's driver answers to a call that a library of ours refuses.

#![forbid(unsafe_code)]

#[cfg(feature = "build")]
pub mod build;

/// The number of arguments that can be checked: those in registers.
pub const ARGUMENTS: usize = 6;

/// The arguments of a call, as far as they are in general registers. Functions may have fewer; the others are then arbitrary.
pub type Arguments = [usize; ARGUMENTS];

/// The answer of NVIDIA's driver to a call that we do not serve: the code of the first failed check, or else `code`.
#[derive(Debug)]
pub struct Refusal {
    /// The name of the function.
    pub name: &'static str,
    /// The conditions that arguments must meet, in order.
    pub checks: &'static [Check],
    /// A `CUresult`.
    pub code: i32,
}

/// A condition that an argument must meet, by the number of the argument, and the `CUresult` if it does not.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// An address that is not null.
    NotNull(usize, i32),
    /// A number of 32 bits that is not 0.
    NotZero(usize, i32),
    /// A number of 32 bits with none but these bits.
    Bits(usize, u32, i32),
    /// The number of a device.
    Device(usize, i32),
    /// One of these numbers of 32 bits.
    OneOf(usize, &'static [u32], i32),
}

impl Refusal {
    /// Returns the `CUresult` for these arguments. `is_device` says whether a device has a number.
    pub fn code(&self, arguments: &Arguments, is_device: impl Fn(i32) -> bool) -> i32 {
        let failed = |check: &Check| {
            let (good, code) = match *check {
                Check::NotNull(index, code) => (arguments[index] != 0, code),
                Check::NotZero(index, code) => (arguments[index] as u32 != 0, code),
                Check::Bits(index, mask, code) => (arguments[index] as u32 & !mask == 0, code),
                Check::Device(index, code) => (is_device(arguments[index] as i32), code),
                Check::OneOf(index, values, code) => (values.contains(&(arguments[index] as u32)), code),
            };
            (!good).then_some(code)
        };
        self.checks.iter().find_map(failed).unwrap_or(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failed_check_answers() {
        let checks = &[
            Check::NotNull(0, 1),
            Check::Device(1, 101),
            Check::Bits(2, 0b101, 2),
            Check::OneOf(3, &[4, 7], 3),
        ];
        let refusal = Refusal { name: "cuX", checks, code: 801 };
        let code = |arguments| refusal.code(&arguments, |device| device == 0);
        assert_eq!(code([8, 0, 5, 7, 0, 0]), 801);
        assert_eq!(code([0, 9, 0, 0, 0, 0]), 1);
        assert_eq!(code([8, 9, 2, 0, 0, 0]), 101);
        assert_eq!(code([8, 0, 2, 0, 0, 0]), 2);
        assert_eq!(code([8, 1 << 32, 5, 1 << 32 | 5, 0, 0]), 3);
        let refusal = Refusal { name: "cuX", checks: &[Check::NotZero(5, 1)], code: 801 };
        assert_eq!(refusal.code(&[0, 0, 0, 0, 0, 1 << 32], |_| true), 1, "a number of 32 bits");
    }
}
