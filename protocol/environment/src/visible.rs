// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `CUDA_VISIBLE_DEVICES`.

use crate::leading_number;

/// The beginning of a device's name by its UUID.
const UUID_PREFIX: &[u8] = b"GPU-";

/// Bytes of a whole UUID behind that.
const UUID_TEXT_BYTES: usize = 36;

/// The devices that a process sees, and their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleDevices {
    /// The variable is not set.
    All,
    /// Numbers of devices. The list ends before the first entry that is not such a number.
    Numbers(Vec<u64>),
    /// Beginnings of UUIDs as `nvidia-smi -L` prints them, in lower case. The list ends before the first other entry.
    Uuids(Vec<Vec<u8>>),
}

impl VisibleDevices {
    /// Reads the value of the variable. The first entry decides whether it is a list of numbers or of UUIDs.
    pub(crate) fn new(value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return Self::All };
        let entries = || value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        if value.trim_ascii_start().starts_with(UUID_PREFIX) {
            let uuids = entries().take_while(|entry| entry.starts_with(UUID_PREFIX));
            return Self::Uuids(uuids.map(uuid_of).collect());
        }
        let number = |entry| leading_number(entry).and_then(|number| u64::try_from(number).ok());
        Self::Numbers(entries().map_while(number).collect())
    }

    /// Returns whether [`Self::choose`] reads UUIDs.
    pub fn needs_uuids(&self) -> bool {
        matches!(self, Self::Uuids(_))
    }

    /// The visible ones of `count` devices, in the order in which the process sees them. An entry that identifies no
    /// device, or several, hides itself and all entries behind it.
    ///
    /// Errors: a device is named twice (`cuInit` answers CUDA_ERROR_INVALID_DEVICE; measured on an H200, driver 580).
    pub fn choose(&self, count: usize, uuids: &[[u8; 16]]) -> Result<Vec<usize>, NamedTwice> {
        match self {
            Self::All => Ok((0..count).collect()),
            Self::Numbers(numbers) => {
                let existing = |&number| usize::try_from(number).ok().filter(|&number| number < count);
                distinct(numbers.iter().map_while(existing))
            }
            Self::Uuids(prefixes) => {
                let texts: Vec<_> = uuids.iter().take(count).map(uuid_text).collect();
                distinct(prefixes.iter().map_while(|prefix| only_match(&texts, prefix)))
            }
        }
    }
}

/// A device is named twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTwice;

fn distinct(devices: impl Iterator<Item = usize>) -> Result<Vec<usize>, NamedTwice> {
    let mut seen = Vec::new();
    for device in devices {
        if seen.contains(&device) {
            return Err(NamedTwice);
        }
        seen.push(device);
    }
    Ok(seen)
}

/// The part of a UUID in an entry. Characters after a complete UUID are ignored.
fn uuid_of(entry: &[u8]) -> Vec<u8> {
    let text = &entry[UUID_PREFIX.len()..];
    text[..text.len().min(UUID_TEXT_BYTES)].to_ascii_lowercase()
}

/// The one text that begins with `prefix`.
fn only_match(texts: &[String], prefix: &[u8]) -> Option<usize> {
    let mut matches =
        texts.iter().enumerate().filter(|(_, text)| text.as_bytes().starts_with(prefix)).map(|(at, _)| at);
    matches.next().filter(|_| matches.next().is_none())
}

/// A UUID as `nvidia-smi -L` prints it, behind its `GPU-`.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(value: &str, count: usize) -> Vec<usize> {
        VisibleDevices::new(Some(value.as_bytes())).choose(count, &[]).expect("distinct devices")
    }

    fn choose_uuids(value: &str) -> Result<Vec<usize>, NamedTwice> {
        let mut all = [[0x89; 16], [0x89; 16], [0xab; 16]];
        all[0][15] = 1;
        VisibleDevices::new(Some(value.as_bytes())).choose(3, &all)
    }

    fn uuids(value: &str) -> Vec<usize> {
        choose_uuids(value).expect("distinct devices")
    }

    #[test]
    fn numbers_choose_and_order() {
        assert_eq!(numbers("2,1", 3), [2, 1]);
        assert_eq!(numbers(" 1 , 0", 2), [1, 0]);
        assert_eq!(numbers("1gpu,0", 2), [1, 0]);
    }

    #[test]
    fn an_entry_that_is_none_hides_the_rest() {
        assert_eq!(numbers("0,2,-1,1", 3), [0, 2]);
        assert_eq!(numbers("0,7,1", 3), [0]);
        assert_eq!(numbers("0,,1", 3), [0]);
        assert_eq!(numbers("0,GPU-ab,1", 3), [0]);
        for nothing in ["", "-1", "none", "NoDevFiles", ",0", "99999999999999999999"] {
            assert_eq!(numbers(nothing, 3), [0usize; 0], "{nothing}");
        }
    }

    #[test]
    fn a_device_twice_is_an_error() {
        assert_eq!(VisibleDevices::new(Some(b"0,1,0")).choose(3, &[]), Err(NamedTwice));
        assert_eq!(numbers("0,7,0", 3), [0], "what is behind the end of the list does not count");
        assert_eq!(choose_uuids("GPU-ab,GPU-abab"), Err(NamedTwice));
    }

    #[test]
    fn uuids_may_be_cut_short_but_not_ambiguous() {
        let whole = "GPU-89898989-8989-8989-8989-898989898901";
        assert_eq!(uuids(whole), [0]);
        assert_eq!(uuids("GPU-AB,GPU-89898989-8989-8989-8989-898989898989"), [2, 1]);
        assert_eq!(uuids("GPU-ab,GPU-89"), [2]);
        assert_eq!(uuids("GPU-ab,0"), [2]);
        assert_eq!(uuids("GPU-cd,GPU-ab"), [0usize; 0]);
        assert_eq!(uuids(&format!("{whole}9")), [0]);
        assert_eq!(uuids("MIG-89898989"), [0usize; 0]);
    }
}
