// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Functions of NVIDIA's management library that describe a card, one row per function, in
//! `protocol/nvml/getters.rows`. The row `nvml_get` of the call
//! table carries the number of a row here, and its inputs. A guest cannot call a function without a row, and cannot choose
//! the size or the version of a structure.

mod rows;
#[cfg(test)]
mod tests;

/// The maximum number of inputs per row.
pub const MAX_INPUTS: usize = 3;
/// The maximum number of parameters per row, without the device.
pub const MAX_PARAMETERS: usize = 5;

/// A parameter of a function after the device, as C has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Input: a number, at most this one.
    Up(u32),
    /// Input: one of these numbers.
    Only(&'static [u32]),
    /// Input: any number.
    Number,
    /// Input: the number of another device.
    Peer,
    /// Output of this many bytes.
    Out(u32),
    /// Output of this many bytes; its pointer may be NULL.
    Maybe(u32),
    /// Output: a text of at most this many bytes, with its NUL.
    Text(u32),
    /// Input: the size of the buffer of the text before.
    Room,
    /// In: the number of [`Parameter::Entries`] that fit. Out: the number that there are, at most this one.
    Count(u32),
    /// Output: the counted entries, of this many bytes each.
    Entries(u32),
    /// A structure: its bytes, the version that its first word states, and the maximum values of its next words, which
    /// are inputs.
    Struct(u32, u32, &'static [u32]),
}

/// A function of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Getter {
    /// The number on the wire.
    pub number: u32,
    /// NVIDIA's name.
    pub name: &'static str,
    /// True if the first parameter is a device.
    pub of_device: bool,
    /// The other parameters.
    pub parameters: &'static [Parameter],
}

/// An input that the function does not have, or a value that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// The place of a result in the bulk output: the parameter's index, the first byte, the number of bytes.
pub type Place = (usize, usize, usize);

impl Parameter {
    /// Returns whether an input may have that value.
    fn admits(self, value: u64) -> bool {
        match self {
            Self::Up(last) => value <= u64::from(last),
            Self::Only(values) => values.iter().any(|&known| u64::from(known) == value),
            Self::Peer => u32::try_from(value).is_ok(),
            _ => true,
        }
    }
}

impl Getter {
    /// Returns the function with this number.
    pub fn of(number: u32) -> Option<&'static Self> {
        rows::GETTERS.iter().find(|getter| getter.number == number)
    }

    /// Returns all functions.
    pub fn all() -> &'static [Self] {
        rows::GETTERS
    }

    /// Returns an error if an input has a value that is not allowed, or if there are more inputs than the function has.
    pub fn check(&self, inputs: [u64; MAX_INPUTS]) -> Result<(), Refused> {
        let mut rest = inputs.iter().copied();
        let mut take = |parameter: Parameter| match rest.next() {
            Some(value) if parameter.admits(value) => Ok(()),
            _ => Err(Refused),
        };
        for &parameter in self.parameters {
            match parameter {
                Parameter::Up(_) | Parameter::Only(_) | Parameter::Number | Parameter::Peer => {
                    take(parameter)?
                }
                Parameter::Struct(_, _, lasts) => {
                    lasts.iter().try_for_each(|&last| take(Parameter::Up(last)))?;
                }
                _ => {}
            }
        }
        if rest.all(|value| value == 0) {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    /// Returns the place of each result in the bulk output; all begin at a multiple of 8.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let mut next = 0;
        self.parameters.iter().enumerate().filter_map(move |(index, &parameter)| {
            let bytes = self.bytes_of(parameter)?;
            let first = next;
            next += bytes.next_multiple_of(8);
            Some((index, first, bytes))
        })
    }

    /// Returns the bytes of the bulk output.
    pub fn bytes(&self) -> usize {
        self.places().map(|(_, _, bytes)| bytes.next_multiple_of(8)).sum()
    }

    /// Returns the maximum number of entries of a list.
    pub fn most_entries(&self) -> u32 {
        let counts = self.parameters.iter().find_map(|parameter| match parameter {
            Parameter::Count(most) => Some(*most),
            _ => None,
        });
        counts.unwrap_or(0)
    }

    fn bytes_of(&self, parameter: Parameter) -> Option<usize> {
        let bytes = match parameter {
            Parameter::Out(bytes) | Parameter::Maybe(bytes) | Parameter::Text(bytes) => bytes,
            Parameter::Struct(bytes, ..) => bytes,
            Parameter::Count(_) => 4,
            Parameter::Entries(bytes) => bytes * self.most_entries(),
            _ => return None,
        };
        Some(bytes as usize)
    }
}
