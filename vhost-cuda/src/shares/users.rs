// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The users whose daemons may connect to the arbiter.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// User ids and ranges of them, as `0,61184-65519`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users(Vec<RangeInclusive<u32>>);

impl Users {
    /// Returns whether `uid` is one of them.
    pub fn contain(&self, uid: u32) -> bool {
        self.0.iter().any(|range| range.contains(&uid))
    }
}

impl FromStr for Users {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.parse().ok()?..=last.parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        let ranges = text.split(',').map(range).collect::<Option<_>>();
        ranges.map(Self).ok_or_else(|| format!("`{text}` is not a list of user ids, as 0,61184-65519"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers_and_ranges() {
        let users: Users = "0,61184-65519".parse().unwrap();
        assert!([0, 61184, 62000, 65519].into_iter().all(|uid| users.contain(uid)));
        assert!([1, 1000, 61183, 65520, u32::MAX].into_iter().all(|uid| !users.contain(uid)));
        for bad in ["", "0,", "video", "9-1", "-1", "1-", "4294967296"] {
            assert!(bad.parse::<Users>().is_err(), "{bad}");
        }
    }
}
