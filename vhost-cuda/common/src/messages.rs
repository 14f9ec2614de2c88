// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The letters that say how important a worker's message is.

use log::Level;

/// The marks for the level of a worker's line: the first letter, followed by a space.
pub const LETTERS: [(char, Level); 5] =
    [('E', Level::Error), ('W', Level::Warn), ('I', Level::Info), ('D', Level::Debug), ('T', Level::Trace)];

/// Returns the letter that a worker writes before a message.
pub fn letter(level: Level) -> char {
    LETTERS.iter().find(|(_, known)| *known == level).map_or('W', |&(letter, _)| letter)
}
