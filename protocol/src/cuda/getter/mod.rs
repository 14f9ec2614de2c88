// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! What NVIDIA's management library tells of a card, one row a function of its: the row `nvml_get` of the call table
//! carries the number of a row here, and its inputs. What has no row cannot be asked for, and no guest names a size or a
//! version of a structure.

mod rows;

/// Most inputs of a row.
pub const MAX_INPUTS: usize = 3;
/// Most parameters of a row, without the device.
pub const MAX_PARAMETERS: usize = 5;

/// A parameter of a function after the device, as C has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// A number from 0 to the last; an input.
    Up(u32),
    /// One of these numbers; an input.
    Only(&'static [u32]),
    /// Any number; an input.
    Number,
    /// Another device; an input, its number.
    Peer,
    /// A place for so many bytes.
    Out(u32),
    /// A place for so many bytes, or NULL.
    Maybe(u32),
    /// A place for a text, with its NUL of so many bytes at most.
    Text(u32),
    /// The room of the text before.
    Room,
    /// A place for a number: how many [`Parameter::Entries`] fit, then how many there are; so many at most.
    Count(u32),
    /// A place for the entries that are counted, of so many bytes each.
    Entries(u32),
    /// A structure of so many bytes, of a version that it begins with; what its next words may be up to, which are
    /// inputs.
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
    /// The others.
    pub parameters: &'static [Parameter],
}

/// Inputs that a function does not have, or values that they may not have.
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
    /// The function of a number.
    pub fn of(number: u32) -> Option<&'static Self> {
        rows::GETTERS.iter().find(|getter| getter.number == number)
    }

    /// Every function.
    pub fn all() -> &'static [Self] {
        rows::GETTERS
    }

    /// Refuses inputs of which one has a value that it may not have, and more than there are.
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

    /// Bytes of the bulk output.
    pub fn bytes(&self) -> usize {
        self.places().map(|(_, _, bytes)| bytes.next_multiple_of(8)).sum()
    }

    /// Most entries of a list.
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
