// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answer of a worker to [`crate::link::TO_RECIPE`]: the length of its session's recipe, and whether that is complete.

use zerocopy::{FromBytes, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The maximum length of a reason in bytes. Bounds the memory of the daemon for what a worker says.
const MAX_REASON: usize = 256;

/// The description of a session's recipe that its worker sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The number of calls.
    pub calls: u64,
    /// Its length in the worker's memory, in bytes.
    pub bytes: u64,
    /// The first reason for which the session cannot be made again by it, in printable characters.
    pub obstacle: Option<String>,
}

/// The head of an answer. The reason follows, in UTF-8: nothing if the recipe is complete.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    calls: u64,
    bytes: u64,
}

impl Description {
    /// Encodes an answer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let reason = self.obstacle.as_deref().unwrap_or_default();
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
        [Head { calls: self.calls, bytes: self.bytes }.as_bytes(), reason.as_bytes()].concat()
    }

    /// Decodes an answer of a worker, which is not trusted. `None` for one that is malformed.
    pub fn read(answer: &[u8]) -> Option<Self> {
        let (Head { calls, bytes }, reason) = Head::read_from_prefix(answer).ok()?;
        let reason = std::str::from_utf8(reason).ok().filter(|reason| reason.len() <= MAX_REASON)?;
        let reason = reason.replace(char::is_control, "?");
        Some(Self { calls, bytes, obstacle: (!reason.is_empty()).then_some(reason) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_checked() {
        let complete = Description { calls: 3, bytes: 900, obstacle: None };
        assert_eq!(Description::read(&complete.to_bytes()), Some(complete.clone()));
        let long = Description { obstacle: Some("ä".repeat(MAX_REASON)), ..complete };
        assert_eq!(Description::read(&long.to_bytes()).unwrap().obstacle, Some("ä".repeat(MAX_REASON / 2)));
        let mut answer = long.to_bytes();
        answer[20] = b'\n';
        assert_eq!(Description::read(&answer), None, "no UTF-8");
        answer.truncate(17);
        answer[16] = b'\n';
        assert_eq!(Description::read(&answer).unwrap().obstacle.as_deref(), Some("?"));
        answer.resize(17 + MAX_REASON, b'x');
        assert_eq!(Description::read(&answer), None, "too long");
        assert_eq!(Description::read(&answer[..15]), None);
    }
}
