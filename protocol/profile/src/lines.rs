// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the lines of a recording, which come in pieces.

use serde_json::from_slice;

use crate::event::{Batch, Failure};

/// The maximum length of a line in bytes. Limits the reader's memory.
const MAX_LINE: usize = 4 << 20;

/// A recording that is being read.
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Lines {
    /// Adds bytes, and returns the lines that are complete.
    ///
    /// Errors: the reason that the recording gives for its end, or a line that is too long or cannot be read.
    pub fn add(&mut self, bytes: &[u8]) -> Result<Vec<Batch>, String> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            let fits = self.rest.len() <= MAX_LINE;
            return if fits { Ok(Vec::new()) } else { Err("a line of the recording has no end".into()) };
        };
        let rest = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, rest);
        lines[..end].split(|byte| *byte == b'\n').map(read).collect()
    }
}

fn read(line: &[u8]) -> Result<Batch, String> {
    from_slice(line).map_err(|error| match from_slice::<Failure>(line) {
        Ok(failure) => failure.error,
        Err(_) => format!("a line of the recording cannot be read: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces() {
        let batch = |session| Batch { session, ..Batch::default() };
        let text: String =
            [1, 2, 3].map(|session| serde_json::to_string(&batch(session)).unwrap() + "\n").concat();
        let (first, second) = text.as_bytes().split_at(text.len() - 5);
        let mut lines = Lines::default();
        assert_eq!(lines.add(first), Ok(vec![batch(1), batch(2)]));
        assert_eq!((lines.add(second), lines.add(b"")), (Ok(vec![batch(3)]), Ok(Vec::new())));
        assert_eq!(lines.add(b"{\"error\":\"its worker\"}\n"), Err("its worker".into()));
        assert!(lines.add(b"{}\n").is_err() && lines.add(b"\xff\n").is_err());
        assert!((0..5).any(|_| lines.add(&[b' '; 1 << 20]).is_err()));
    }
}
