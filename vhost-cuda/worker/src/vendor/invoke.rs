// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls C functions whose parameters are known only at run time.
//!
//! The System V ABI for x86-64 (3.2.3) assigns integers and pointers independently of floats. The first six integers
//! go to registers, and the others to the stack in their order. The first eight floats go to vector registers.
//! (AAPCS64 does the same with eight and eight.) So a function of any mix of both, with at most eight floats, can be
//! called as a function of eight floats and as many integers, which ignores the last ones. A structure of more than
//! 16 bytes lies on the stack, among the integers without a register. Integers after it may still have a register.
//! Results are integers or pointers.

use cuda_library_rows::MAX_PARAMETERS;

/// The number of vector registers that hold arguments.
pub const FLOATS: usize = 8;

/// The number of integers that are passed in registers.
const REGISTERS: usize = 6;

/// The arguments of a call.
#[derive(Debug)]
pub struct Arguments {
    /// Arguments in registers, then those on the stack.
    integers: [u64; MAX_PARAMETERS],
    in_registers: usize,
    on_stack: usize,
    floats: [f64; FLOATS],
    float_count: usize,
}

impl Arguments {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self {
            integers: [0; MAX_PARAMETERS],
            in_registers: 0,
            on_stack: 0,
            floats: [0.0; FLOATS],
            float_count: 0,
        }
    }

    /// Adds an integer or a pointer. Returns `None` if there are too many.
    pub fn integer(&mut self, value: u64) -> Option<()> {
        if self.in_registers == REGISTERS {
            return self.push(value);
        }
        self.integers[self.in_registers] = value;
        self.in_registers += 1;
        Some(())
    }

    /// Adds a structure of more than 16 bytes by value. Returns `None` if there are too many.
    pub fn structure(&mut self, words: &[[u8; 8]]) -> Option<()> {
        words.iter().try_for_each(|word| self.push(u64::from_le_bytes(*word)))
    }

    fn push(&mut self, word: u64) -> Option<()> {
        *self.integers.get_mut(REGISTERS + self.on_stack)? = word;
        self.on_stack += 1;
        Some(())
    }

    /// Adds the contents of a vector register: the bits of a float, a double or a `cuComplex`. Returns `None` if
    /// there are too many.
    pub fn float(&mut self, bits: u64) -> Option<()> {
        *self.floats.get_mut(self.float_count)? = f64::from_bits(bits);
        self.float_count += 1;
        Some(())
    }

    /// Calls the function at `address`. The result has 32 or 64 meaningful bits, according to the function's type.
    ///
    /// # Safety
    ///
    /// It must be a C function of these arguments, which must be valid for its use of them.
    pub unsafe fn call(&self, address: usize) -> u64 {
        /// Calls the function with the integers of these indices.
        macro_rules! call {
            ($($index:literal)*) => {{
                type Float = f64;
                type Function = unsafe extern "C" fn(
                    Float, Float, Float, Float, Float, Float, Float, Float, $(call!(@integer $index)),*
                ) -> u64;
                let [a, b, c, d, e, f, g, h] = self.floats;
                // SAFETY: a C function of these arguments by this function's contract; further arguments are ignored
                // (see the module's documentation).
                unsafe {
                    let function = std::mem::transmute::<usize, Function>(address);
                    function(a, b, c, d, e, f, g, h, $(self.integers[$index]),*)
                }
            }};
            (@integer $index:literal) => { u64 };
        }
        match REGISTERS + self.on_stack {
            0..=6 => call!(0 1 2 3 4 5),
            7..=14 => call!(0 1 2 3 4 5 6 7 8 9 10 11 12 13),
            15..=22 => call!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21),
            _ => call!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                       32 33 34 35 36 37 38 39),
        }
    }
}

/// Calls a function that returns a status or another number of 32 bits. Returns `None` if there are too many
/// arguments.
///
/// # Safety
///
/// It must be a C function of these integers and addresses, which must be valid for its use of them.
pub unsafe fn call_with_integers(function: usize, integers: &[u64]) -> Option<i32> {
    let mut arguments = Arguments::new();
    integers.iter().try_for_each(|value| arguments.integer(*value))?;
    // SAFETY: `# Safety` promises a C function of these integers, which are all of its arguments.
    Some(unsafe { arguments.call(function) } as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::too_many_arguments)]
    extern "C" fn mixed(
        a: i32,
        b: f32,
        c: u64,
        d: f64,
        e: i64,
        f: i32,
        g: i32,
        h: i32,
        i: u64,
        j: f32,
        k: i32,
    ) -> i32 {
        let integers =
            [i64::from(a), c as i64, e, i64::from(f), i64::from(g), i64::from(h), i as i64, i64::from(k)];
        assert_eq!(integers, [-1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!([f64::from(b), d, f64::from(j)], [0.5, 0.25, 0.125]);
        -7
    }

    #[test]
    fn integers_and_floats_find_their_places() {
        let mut arguments = Arguments::new();
        arguments.integer(u64::from(-1_i32 as u32)).unwrap();
        for value in 2..=8 {
            arguments.integer(value).unwrap();
        }
        for bits in [u64::from(0.5_f32.to_bits()), 0.25_f64.to_bits(), u64::from(0.125_f32.to_bits())] {
            arguments.float(bits).unwrap();
        }
        // SAFETY: the function has these parameters.
        let answer = unsafe { arguments.call(mixed as *const () as usize) };
        assert_eq!(answer as i32, -7);
    }

    #[test]
    fn long_lists_arrive() {
        extern "C" fn last(
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            _: u64,
            x: u64,
        ) -> u64 {
            x
        }
        let mut arguments = Arguments::new();
        for value in 1..=25 {
            arguments.integer(value).unwrap();
        }
        // SAFETY: the function has these parameters.
        assert_eq!(unsafe { arguments.call(last as *const () as usize) }, 25);
    }

    #[test]
    fn a_structure_lies_on_the_stack() {
        #[repr(C)]
        struct Id([u64; 16]);
        extern "C" fn init(
            place: u64,
            ranks: i32,
            id: Id,
            rank: i32,
            a: u64,
            b: u64,
            c: u64,
            last: u64,
        ) -> u64 {
            let sum: u64 = id.0.iter().sum();
            assert_eq!((place, ranks, rank, a, b, c, last), (7, 2, 1, 10, 11, 12, 13));
            sum
        }
        let mut arguments = Arguments::new();
        arguments.integer(7).unwrap();
        arguments.integer(2).unwrap();
        let words: Vec<[u8; 8]> = (1..=16_u64).map(u64::to_le_bytes).collect();
        arguments.structure(&words).unwrap();
        for value in [1, 10, 11, 12, 13] {
            arguments.integer(value).unwrap();
        }
        // SAFETY: the function has these parameters.
        assert_eq!(unsafe { arguments.call(init as *const () as usize) }, 136);
    }

    #[test]
    fn a_complex_double_fills_two_vector_registers() {
        #[repr(C)]
        struct Complex(f64, f64);
        extern "C" fn tolerance(n: i32, x: f32, value: Complex, last: f64) -> u64 {
            assert_eq!((n, x, last), (3, 0.5, 4.0));
            (value.0 + 10.0 * value.1) as u64
        }
        let mut arguments = Arguments::new();
        arguments.integer(3).unwrap();
        for bits in [u64::from(0.5_f32.to_bits()), 1.0_f64.to_bits(), 2.0_f64.to_bits(), 4.0_f64.to_bits()] {
            arguments.float(bits).unwrap();
        }
        // SAFETY: the function has these parameters.
        assert_eq!(unsafe { arguments.call(tolerance as *const () as usize) }, 21);
    }

    #[test]
    fn too_many_are_refused() {
        let mut arguments = Arguments::new();
        assert!((0..=MAX_PARAMETERS).any(|_| arguments.integer(1).is_none()));
        assert!((0..=FLOATS).any(|_| arguments.float(1).is_none()));
    }
}
