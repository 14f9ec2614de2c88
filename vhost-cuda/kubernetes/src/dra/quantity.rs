// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quantities of the apiserver, as `8Gi`.

/// Suffixes of powers of 1024 and of 1000, from the first power on.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];

/// Parses a quantity in the apiserver's canonical form, which has no fraction. `None` for other text, for fractions of one (the
/// suffixes n, u and m), and for 2^64 and more.
pub fn parse(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let power = |suffixes: [&str; 6]| suffixes.iter().position(|of| *of == suffix).map(|at| at as u32 + 1);
    let factor = if suffix.is_empty() {
        1
    } else if let Some(power) = power(BINARY) {
        1024_u64.checked_pow(power)?
    } else if let Some(power) = power(DECIMAL) {
        1000_u64.checked_pow(power)?
    } else {
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        10_u64.checked_pow(exponent.parse().ok()?)?
    };
    number.checked_mul(factor)
}

/// The canonical form of bytes, with the largest suffix of a power of 1024 that leaves no fraction.
pub fn bytes(mut number: u64) -> String {
    let mut suffix = "";
    for next in BINARY {
        if number == 0 || !number.is_multiple_of(1024) {
            break;
        }
        (number, suffix) = (number / 1024, next);
    }
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed() {
        let cases =
            [("0", 0), ("25", 25), ("8Gi", 8 << 30), ("8G", 8_000_000_000), ("3k", 3000), ("2e3", 2000)];
        for (text, number) in cases {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for bad in
            ["", "Gi", "-1", "+1", "1.5Gi", "500m", "1gi", "1 Gi", "1e", "1e-3", "1e99", "16Ei", "x", "1Gi2"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse(&"9".repeat(1 << 20)), None);
    }

    #[test]
    fn bytes_are_canonical() {
        for (number, text) in
            [(0, "0"), (1, "1"), (80 << 30, "80Gi"), (81559 << 20, "81559Mi"), ((1 << 20) + 1, "1048577")]
        {
            assert_eq!(bytes(number), text);
            assert_eq!(parse(text), Some(number));
        }
    }
}
