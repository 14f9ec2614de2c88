// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The public functions of one release of the runtime.

use std::fmt;
use std::str::FromStr;

use crate::{ALIGNMENT, ANCHOR_BYTES, Body, ParseError};

/// Texts of all releases, made by `cargo xtask signatures`, the oldest first.
const TEXTS: &[&str] = &[
    include_str!("../releases/11.8.89.txt"),
    include_str!("../releases/12.4.127.txt"),
    include_str!("../releases/12.9.37.txt"),
    include_str!("../releases/12.9.79.txt"),
    include_str!("../releases/13.0.48.txt"),
    include_str!("../releases/13.1.80.txt"),
    include_str!("../releases/13.2.51.txt"),
    include_str!("../releases/13.3.29.txt"),
    include_str!("../releases/13.4.49.txt"),
    include_str!("../releases/13.4.92.txt"),
    include_str!("../releases/13.5.37.txt"),
];

/// The words that begin the first two lines of a text.
const VERSIONS: &str = "versions";
const ANCHOR: &str = "anchor";

/// A public function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// For example `cudaMalloc`.
    pub name: String,
    /// Its place in the archive's section of code, a multiple of [`ALIGNMENT`].
    pub offset: usize,
    /// Its code.
    pub body: Body,
}

/// A piece of a function that no linker changes, by which code is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The function, as an index of [`Release::functions`].
    pub function: usize,
    /// The place in the function, a multiple of [`ALIGNMENT`].
    pub offset: usize,
    /// The bytes there.
    pub bytes: [u8; ANCHOR_BYTES],
}

/// A release, or several whose public functions have the same code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// For example `13.0.48` and `13.0.96`.
    pub versions: Vec<String>,
    /// The anchor by which the release is found.
    pub anchor: Anchor,
    /// The functions, by their offsets.
    pub functions: Vec<Function>,
}

/// Returns all known releases, the oldest first.
///
/// # Panics
///
/// Never: a test reads all texts.
pub fn all() -> Vec<Release> {
    let parse = |text: &&str| text.parse().expect("a text of a release, which a test has read");
    TEXTS.iter().map(parse).collect()
}

/// Returns whether a name has the form of the runtime's public names: `cuda` or `__cuda` and a capital letter.
pub fn looks_public(name: &[u8]) -> bool {
    let rest = name.strip_prefix(b"__").unwrap_or(name).strip_prefix(b"cuda");
    rest.and_then(<[u8]>::first).is_some_and(u8::is_ascii_uppercase)
}

impl Release {
    /// The first number of the versions: 12 or 13.
    pub fn major(&self) -> Option<u32> {
        self.versions.first()?.split('.').next()?.parse().ok()
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{VERSIONS} {}", self.versions.join(" "))?;
        let Anchor { function, offset, bytes } = &self.anchor;
        let name = self.functions.get(*function).map_or("", |function| function.name.as_str());
        writeln!(formatter, "{ANCHOR} {name} {offset:x} {:032x}", u128::from_be_bytes(*bytes))?;
        self.functions
            .iter()
            .try_for_each(|Function { name, offset, body }| writeln!(formatter, "{name} {offset:x} {body}"))
    }
}

impl FromStr for Release {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut lines = text.lines();
        let mut headed = |word: &str| {
            let line = lines.next().unwrap_or_default();
            let rest = line.strip_prefix(word).and_then(|rest| rest.strip_prefix(' '));
            rest.ok_or_else(|| ParseError(format!("{line:?} instead of {word}")))
        };
        let versions = headed(VERSIONS)?.split(' ').map(str::to_owned).collect();
        let anchor = headed(ANCHOR)?;
        let functions: Vec<Function> = lines.map(str::parse).collect::<Result<_, _>>()?;
        if !functions.is_sorted_by_key(|function| function.offset) {
            return Err(ParseError("functions that are not sorted".to_owned()));
        }
        let anchor = parse_anchor(anchor, &functions).ok_or_else(|| ParseError(anchor.to_owned()))?;
        Ok(Self { versions, anchor, functions })
    }
}

fn parse_anchor(text: &str, functions: &[Function]) -> Option<Anchor> {
    let mut words = text.split(' ');
    let name = words.next()?;
    let function = functions.iter().position(|function| function.name == name)?;
    let offset = usize::from_str_radix(words.next()?, 16).ok()?;
    let bytes = u128::from_str_radix(words.next()?, 16).ok()?.to_be_bytes();
    let fixed = functions[function].body.is_fixed(&(offset..offset.checked_add(ANCHOR_BYTES)?));
    (fixed && offset.is_multiple_of(ALIGNMENT)).then_some(Anchor { function, offset, bytes })
}

impl FromStr for Function {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        let parts = || {
            let (name, rest) = line.split_once(' ')?;
            let (offset, body) = rest.split_once(' ')?;
            Some((
                name,
                usize::from_str_radix(offset, 16)
                    .ok()
                    .filter(|offset: &usize| offset.is_multiple_of(ALIGNMENT))?,
                body,
            ))
        };
        let (name, offset, body) = parts().ok_or_else(|| ParseError(line.to_owned()))?;
        Ok(Self { name: name.to_owned(), offset, body: body.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_is_read() {
        let all = all();
        assert!(all.len() >= 10, "{} releases", all.len());
        for release in &all {
            assert!(release.functions.len() > 390, "{:?}: {}", release.versions, release.functions.len());
            assert!(
                release.major().is_some_and(|major| (11..=13).contains(&major)),
                "{:?}",
                release.versions
            );
        }
        for (text, release) in TEXTS.iter().zip(&all) {
            assert_eq!(release.to_string(), **text);
        }
    }

    #[test]
    fn wrong_texts_are_refused() {
        let body = Body::of(&[7; 64], Vec::new());
        let line = |name: &str, offset: usize| format!("{name} {offset:x} {body}\n");
        let head = format!("versions 13.9.1\nanchor cudaA 10 {}\n", "07".repeat(16));
        let good = format!("{head}{}{}", line("cudaA", 0), line("cudaB", 64));
        assert_eq!(good.parse::<Release>().map(|release| release.to_string()), Ok(good));
        let unsorted = format!("{head}{}{}", line("cudaB", 64), line("cudaA", 0));
        let unaligned = format!("{head}{}", line("cudaA", 8));
        let of_another = format!("{head}{}", line("cudaB", 0));
        let outside = format!("{}{}", head.replace(" 10 ", " 40 "), line("cudaA", 0));
        for wrong in [unsorted, unaligned, of_another, outside, head, String::new()] {
            assert!(wrong.parse::<Release>().is_err(), "{wrong}");
        }
    }
}
