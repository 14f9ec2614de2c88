// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The code of one function, without what a linker writes into it.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use twox_hash::XxHash3_64;

/// Bytes of an operand that a linker fills in, unless the text of a [`Body`] has another number.
const OPERAND_BYTES: usize = 4;
/// Separates the place of an operand from its length.
const LENGTH: char = '*';
/// Maximum size of a function in a text, in bytes. The longest function of a known runtime has some 4 KiB.
const MAX_BYTES: usize = 1 << 20;

/// A function's size, the places that a linker fills in, and a digest of all other bytes.
///
/// Its text is `SIZE DIGEST PLACE…`, all numbers hexadecimal; a place is an offset, with `*LENGTH` unless it has four bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    size: usize,
    digest: u64,
    /// Ascending, and apart from each other.
    operands: Vec<Range<usize>>,
}

/// A text that describes no release.
#[derive(Debug, PartialEq, Eq)]
pub struct ParseError(pub String);

impl Body {
    /// Describes the code of a function. `operands` are ranges of it that a linker fills in, in any order; they may overlap.
    pub fn of(code: &[u8], mut operands: Vec<Range<usize>>) -> Self {
        operands.sort_by_key(|range| range.start);
        let mut apart: Vec<Range<usize>> = Vec::new();
        for range in operands {
            let range = range.start.min(code.len())..range.end.min(code.len());
            match apart.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => apart.push(range),
            }
        }
        let mut body = Self { size: code.len(), digest: 0, operands: apart };
        body.digest = body.digest_of(code);
        body
    }

    /// Bytes of the function.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns whether `code` begins with this function.
    pub fn begins(&self, code: &[u8]) -> bool {
        code.get(..self.size).is_some_and(|code| self.digest_of(code) == self.digest)
    }

    /// Returns whether no byte of the range is a linker's.
    pub fn is_fixed(&self, range: &Range<usize>) -> bool {
        let apart = |operand: &Range<usize>| operand.end <= range.start || range.end <= operand.start;
        range.end <= self.size && self.operands.iter().all(apart)
    }

    fn digest_of(&self, code: &[u8]) -> u64 {
        let mut fixed = code.to_vec();
        for range in &self.operands {
            fixed[range.clone()].fill(0);
        }
        XxHash3_64::oneshot(&fixed)
    }
}

impl fmt::Display for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x} {:016x}", self.size, self.digest)?;
        for range in &self.operands {
            write!(formatter, " {:x}", range.start)?;
            if range.len() != OPERAND_BYTES {
                write!(formatter, "{LENGTH}{:x}", range.len())?;
            }
        }
        Ok(())
    }
}

impl FromStr for Body {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = text.split(' ');
        let mut number = || words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
        let (size, digest) = number().zip(number()).ok_or_else(|| ParseError(text.to_owned()))?;
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_BYTES);
        let size = size.ok_or_else(|| ParseError(text.to_owned()))?;
        let mut operands = Vec::new();
        let mut end = 0;
        for word in words {
            let range = operand(word).filter(|range| end <= range.start && range.end <= size);
            let range = range.ok_or_else(|| ParseError(format!("{word:?} in {text}")))?;
            end = range.end;
            operands.push(range);
        }
        Ok(Self { size, digest, operands })
    }
}

fn operand(word: &str) -> Option<Range<usize>> {
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (start, length) = match word.split_once(LENGTH) {
        Some((start, length)) => (number(start)?, number(length)?),
        None => (number(word)?, OPERAND_BYTES),
    };
    Some(start..start.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> Vec<u8> {
        (0..64).collect()
    }

    #[test]
    fn what_a_linker_fills_in_does_not_count() {
        let body = Body::of(&code(), vec![40..47, 8..12, 10..16, 62..66]);
        assert_eq!(body.operands, [8..16, 40..47, 62..64]);
        let mut linked = code();
        linked[9] = 0xff;
        linked[46] = 0xff;
        assert!(body.begins(&linked));
        linked[47] = 0xff;
        assert!(!body.begins(&linked));
        assert!(!body.begins(&code()[..63]));
        assert!(body.is_fixed(&(16..40)) && !body.is_fixed(&(15..31)) && !body.is_fixed(&(60..70)));
    }

    #[test]
    fn texts_are_read_back() {
        let body = Body::of(&code(), vec![8..12, 40..47]);
        let text = body.to_string();
        assert!(text.starts_with("40 ") && text.ends_with(" 8 28*7"), "{text}");
        assert_eq!(text.parse(), Ok(body));
        for wrong in [
            "",
            "40",
            "x 1",
            "40 1 3e",
            "40 1 8 9",
            "40 1 8*x",
            "ffffffffffffffff 1",
            "40 1 ffffffffffffffff",
        ] {
            assert!(wrong.parse::<Body>().is_err(), "{wrong}");
        }
    }
}
