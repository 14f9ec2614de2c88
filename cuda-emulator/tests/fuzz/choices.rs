// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeded choices, and texts to begin with.

use std::env;

/// xorshift: the same choices everywhere.
pub struct Random(u64);

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Returns the number of runs of a body.
pub fn rounds(usual: u64) -> u64 {
    number("VHOST_CUDA_TEST_ROUNDS").unwrap_or(usual)
}

/// Returns the seed of the choices.
pub fn seed() -> u64 {
    number("VHOST_CUDA_TEST_SEED").unwrap_or(20)
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 24) as u8).collect()
    }
}

/// PTX that nvcc made, in pieces of a size that many rounds can read, and declarations of all kinds.
pub fn texts() -> Vec<Vec<u8>> {
    let whole = [
        include_str!("../data/driver.ptx"),
        include_str!("../data/texture.ptx"),
        include_str!("../data/speed.ptx"),
        include_str!("declarations.ptx"),
    ];
    let mut texts: Vec<Vec<u8>> = whole.iter().map(|text| text.as_bytes().to_vec()).collect();
    // `tour.ptx` is long: its kernels one by one.
    let tour = include_str!("../data/tour.ptx");
    if let Some((head, rest)) = tour.split_once("\n\t// .globl") {
        texts.extend(rest.split("\n\t// .globl").map(|kernel| {
            let kernel = kernel.split_once('\n').map_or("", |(_, body)| body);
            format!("{head}\n{kernel}").into_bytes()
        }));
    }
    texts
}

/// One of `sources` with some changes: bytes, lines, numbers, or a part of another source.
pub fn changed(sources: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const WORDS: [&str; 24] = [
        "0",
        "-1",
        "18446744073709551615",
        "0x7fffffffffffffff",
        "4294967296",
        "999999999999999999999999",
        "0f7fc00000",
        "0d",
        "1e999",
        "%r<4294967295>",
        "%r1",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        ".b8",
        ".align 4611686018427387904",
        ".shared",
        ".param",
        "{{{{{{{{",
        "\0",
    ];
    let mut bytes = sources[random.below(sources.len())].clone();
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(7) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes.truncate(at),
            2 => {
                let word = WORDS[random.below(WORDS.len())].bytes();
                bytes.splice(at..at, word);
            }
            3 => {
                let end = (at + random.below(80)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let other = &sources[random.below(sources.len())];
                let from = random.below(other.len());
                let piece = other[from..(from + random.below(200)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                // A number becomes another one.
                let digit = bytes[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset);
                if let Some(start) = digit {
                    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    bytes.splice(start..start + length, WORDS[random.below(9)].bytes());
                }
            }
            _ => {
                // A line again, many times.
                let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
                let length = bytes[start..].iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                let line = bytes[start..start + length].repeat(random.below(30));
                bytes.splice(start..start, line);
            }
        }
    }
    bytes
}

/// Pieces of declarations, in any order.
pub fn declarations(random: &mut Random) -> String {
    const PIECES: [&str; 50] = [
        ".global ",
        ".const ",
        ".shared ",
        ".extern ",
        ".visible ",
        ".weak ",
        ".align 8",
        ".b8 ",
        ".u64 ",
        ".v4 ",
        ".f32 ",
        "a",
        "b",
        "c",
        "d",
        "[4096]",
        "[100]",
        "[]",
        " = ",
        "{1, 2}",
        "{",
        "}",
        ",",
        ";\n",
        "(",
        ")",
        ".pragma ",
        "\"\"",
        "\"/*\";",
        "\"*/\";",
        "/*",
        "*/",
        "//",
        "\n",
        ".file 1 ",
        "\"a=b\"\n",
        ".func ",
        ".entry k {",
        "ret; }",
        "generic(a)",
        ".ptr ",
        ".texref ",
        ".attribute(.managed) ",
        "<9>",
        "8.b8 ",
        ".param ",
        "\\",
        "#",
        ".reg .b32 %r<4>;",
        ".local .b64 .ptr .global x;",
    ];
    const WHOLE: [&str; 8] = [
        ".global .b8 big[1073741824];\n",
        ".visible .global .align 8 .b64 list[] = {1, 2, 3};\n",
        ".pragma \"/*\"; ",
        ".pragma \"*/\";\n",
        ".file 1 \"x .func y\"\n",
        ".const .align 4 .f32 table[16] = {0f00000000};\n",
        ".visible .entry k(.param .u64 .ptr .global .align 4 p) { .global .u8 inside[5]; ret; }\n",
        ".extern .global .align 4 .b8 elsewhere[9];\n",
    ];
    let mut text = String::new();
    for _ in 0..1 + random.below(8) {
        if random.below(3) == 0 {
            text.push_str(WHOLE[random.below(WHOLE.len())]);
        } else {
            text.push_str(PIECES[random.below(PIECES.len())]);
        }
    }
    text
}
