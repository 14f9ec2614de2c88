// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Byte counts of the command line, written as for the daemon.

/// Parses a byte count of at least 1 MiB with an optional K, M or G (powers of 1024).
///
/// Errors: not such a number, or less. A shard below the granularity of a GPU's allocations (2 MiB) has no use; 1 MiB keeps the
/// number of shards of a GPU finite.
pub fn parse(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("`{text}` is not a number of bytes, as 512M or 8G"))?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is more than 2^64 bytes"))?;
    if bytes < 1 << 20 { Err(format!("`{text}` is less than 1M")) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn byte_counts_take_a_suffix_and_have_a_minimum() {
        assert_eq!(parse("8G"), Ok(8 << 30));
        assert_eq!(parse("1048576"), Ok(1 << 20));
        for bad in ["", "G", "1023K", "0", "-1G", "99999999999G", "1,5G"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
