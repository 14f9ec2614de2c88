// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device printf formatting: the format is split here, the C library formats each number.

use std::ffi::CString;

/// Widths and precisions beyond this are cut off: one call must not fill the host's memory.
const MAX_WIDTH: i64 = 4096;

/// The source of the arguments.
pub(super) trait Arguments {
    /// The next argument of 4 bytes.
    fn word(&mut self) -> Option<u32>;
    /// The next argument of 8 bytes, aligned to 8.
    fn double_word(&mut self) -> Option<u64>;
    /// The string at a device address; `None` when it cannot be read.
    fn string(&mut self, address: u64) -> Option<Vec<u8>>;
}

/// The output of `printf(format, arguments)`; `None` when an argument cannot be read.
pub(super) fn format(format: &[u8], arguments: &mut impl Arguments) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(format.len() + 16);
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        output.extend_from_slice(&rest[..at]);
        let start = &rest[at..];
        let (specification, length) = Specification::parse(&start[1..], arguments)?;
        match specification {
            Some(specification) => specification.format(arguments, &mut output)?,
            // Not a conversion: as it is written.
            None => output.extend_from_slice(&start[..=length]),
        }
        rest = &start[length + 1..];
    }
    output.extend_from_slice(rest);
    Some(output)
}

/// One conversion, `%` not included.
struct Specification {
    flags: Vec<u8>,
    width: Option<i64>,
    precision: Option<i64>,
    /// The argument has 8 bytes.
    wide: bool,
    conversion: u8,
}

impl Specification {
    /// Parses a conversion. Returns it with its length, with `None` inside when it is invalid.
    fn parse(text: &[u8], arguments: &mut impl Arguments) -> Option<(Option<Specification>, usize)> {
        let mut at = 0;
        let mut flags = Vec::new();
        while let Some(flag) = text.get(at).filter(|byte| b"-+ #0".contains(byte)) {
            if !flags.contains(flag) {
                flags.push(*flag);
            }
            at += 1;
        }
        let mut width = number(text, &mut at, arguments)?;
        if let Some(negative) = width.filter(|width| *width < 0) {
            flags.push(b'-');
            width = Some(-negative);
        }
        let mut precision = None;
        if text.get(at) == Some(&b'.') {
            at += 1;
            // A negative precision counts as none.
            precision = Some(number(text, &mut at, arguments)?.unwrap_or(0)).filter(|digits| *digits >= 0);
        }
        let mut wide = false;
        while let Some(modifier) = text.get(at).filter(|byte| b"hlLqjzt".contains(byte)) {
            wide |= *modifier != b'h';
            at += 1;
        }
        let Some(&conversion) = text.get(at).filter(|byte| b"diouxXcspfFeEgGaA%".contains(byte)) else {
            return Some((None, at.min(text.len())));
        };
        let specification = Specification { flags, width, precision, wide, conversion };
        Some((Some(specification), at + 1))
    }

    fn format(&self, arguments: &mut impl Arguments, output: &mut Vec<u8>) -> Option<()> {
        match self.conversion {
            b'%' => output.push(b'%'),
            b'c' => {
                let byte = if self.wide { arguments.double_word()? as u8 } else { arguments.word()? as u8 };
                self.pad(&[byte], output);
            }
            b's' => {
                let address = arguments.double_word()?;
                let text = if address == 0 { b"(null)".to_vec() } else { arguments.string(address)? };
                let limit = self.precision.and_then(|digits| usize::try_from(digits).ok());
                self.pad(&text[..limit.unwrap_or(text.len()).min(text.len())], output);
            }
            b'p' => self.number(output, "", Number::Pointer(arguments.double_word()?)),
            b'd' | b'i' => {
                let value = if self.wide {
                    arguments.double_word()?.cast_signed()
                } else {
                    i64::from(arguments.word()?.cast_signed())
                };
                self.number(output, "ll", Number::Signed(value));
            }
            b'o' | b'u' | b'x' | b'X' => {
                let value = if self.wide { arguments.double_word()? } else { u64::from(arguments.word()?) };
                self.number(output, "ll", Number::Unsigned(value));
            }
            _ => self.number(output, "", Number::Float(f64::from_bits(arguments.double_word()?))),
        }
        Some(())
    }

    fn pad(&self, text: &[u8], output: &mut Vec<u8>) {
        let width = self.width.unwrap_or(0).clamp(0, MAX_WIDTH) as usize;
        let padding = width.saturating_sub(text.len());
        let left = self.flags.contains(&b'-');
        if !left {
            output.resize(output.len() + padding, b' ');
        }
        output.extend_from_slice(text);
        if left {
            output.resize(output.len() + padding, b' ');
        }
    }

    fn number(&self, output: &mut Vec<u8>, length: &str, value: Number) {
        let mut specification = b"%".to_vec();
        specification.extend_from_slice(&self.flags);
        if let Some(width) = self.width {
            specification.extend(width.min(MAX_WIDTH).to_string().bytes());
        }
        if let Some(precision) = self.precision {
            specification.push(b'.');
            specification.extend(precision.min(MAX_WIDTH).to_string().bytes());
        }
        specification.extend(length.bytes());
        specification.push(self.conversion);
        let Ok(specification) = CString::new(specification) else { return };
        // 309 digits before the point of the largest double, the precision, the width.
        let mut buffer = vec![0_u8; 2 * MAX_WIDTH as usize + 512];
        let (start, size) = (buffer.as_mut_ptr().cast(), buffer.len());
        let format = specification.as_ptr();
        // SAFETY: the format has exactly one conversion, of the type that is passed; the buffer's size is given.
        let written = unsafe {
            match value {
                Number::Signed(value) => libc::snprintf(start, size, format, value),
                Number::Unsigned(value) => libc::snprintf(start, size, format, value),
                Number::Float(value) => libc::snprintf(start, size, format, value),
                Number::Pointer(value) => libc::snprintf(start, size, format, value as *const u8),
            }
        };
        let written = usize::try_from(written).unwrap_or(0).min(size - 1);
        output.extend_from_slice(&buffer[..written]);
    }
}

enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Pointer(u64),
}

/// A width or precision: digits or `*`. The outer `None` is an argument that cannot be read.
#[allow(clippy::option_option, reason = "absent and unreadable are different")]
fn number(text: &[u8], at: &mut usize, arguments: &mut impl Arguments) -> Option<Option<i64>> {
    if text.get(*at) == Some(&b'*') {
        *at += 1;
        return Some(Some(i64::from(arguments.word()?.cast_signed())));
    }
    let mut value = None;
    while let Some(digit) = text.get(*at).filter(|byte| byte.is_ascii_digit()) {
        value = Some((value.unwrap_or(0) * 10 + i64::from(digit - b'0')).min(MAX_WIDTH));
        *at += 1;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<u64>);

    impl Arguments for Fixed {
        fn word(&mut self) -> Option<u32> {
            self.double_word().map(|value| value as u32)
        }
        fn double_word(&mut self) -> Option<u64> {
            (!self.0.is_empty()).then(|| self.0.remove(0))
        }
        fn string(&mut self, address: u64) -> Option<Vec<u8>> {
            (address == 1).then(|| b"text".to_vec())
        }
    }

    #[test]
    fn formats_like_c() {
        let f = |value: f64| value.to_bits();
        let cases: &[(&str, &[u64], &str)] = &[
            ("plain 100%%\n", &[], "plain 100%\n"),
            ("%d %i|%5d|%-5d|%05d|%+d", &[7, -3_i64 as u64, 42, 42, 42, 42], "7 -3|   42|42   |00042|+42"),
            ("%u %x %X %#x %o", &[u64::MAX, 255, 255, 255, 8], "4294967295 ff FF 0xff 10"),
            (
                "%lld %llu %lx",
                &[-1_i64 as u64, u64::MAX, u64::MAX],
                "-1 18446744073709551615 ffffffffffffffff",
            ),
            (
                "%f %.2f %8.3f %e %g",
                &[f(1.5), f(2.0 / 3.0), f(3.25), f(1e10), f(1e-5)],
                "1.500000 0.67    3.250 1.000000e+10 1e-05",
            ),
            ("%f %f %f", &[f(f64::INFINITY), f(f64::NEG_INFINITY), f(f64::NAN)], "inf -inf nan"),
            ("%s|%6s|%-6s|%.2s|%s", &[1, 1, 1, 1, 0], "text|  text|text  |te|(null)"),
            ("%c%c|%3c", &[65, 66, 67], "AB|  C"),
            ("%p", &[0x7000], "0x7000"),
            ("%*d|%-*d|%.*f", &[4, 7, 4, 7, 1, f(2.25)], "   7|7   |2.2"),
            ("%*d", &[-4_i64 as u64, 7], "7   "),
            ("%", &[], "%"),
            ("%y %5", &[], "%y %5"),
        ];
        for (text, arguments, wanted) in cases {
            let output = format(text.as_bytes(), &mut Fixed(arguments.to_vec())).unwrap();
            assert_eq!(String::from_utf8_lossy(&output), *wanted, "{text}");
        }
    }

    #[test]
    fn bad_arguments_are_none_and_widths_are_bounded() {
        assert_eq!(format(b"%d", &mut Fixed(vec![])), None);
        assert_eq!(format(b"%s", &mut Fixed(vec![2])), None);
        let wide =
            format(b"%999999999999999999999d%.999999999f%*s", &mut Fixed(vec![1, 0, 1 << 30, 1])).unwrap();
        assert!(wide.len() < 20_000);
    }
}
