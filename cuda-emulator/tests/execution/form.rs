// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forms of instructions: one kernel for each, its input values, and the encoding of its results.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::harness::Device;

/// Threads that run each form.
pub const COUNT: usize = 2048;

/// PTX with `{d}`, `{a}`, `{b}`, `{c}` for its operands, their types (`d` first), and whether it runs in clusters of two.
pub struct Form {
    pub text: String,
    pub kinds: Vec<&'static str>,
    pub cluster: bool,
}

pub fn form(text: impl Into<String>, kinds: &[&'static str]) -> Form {
    Form { text: text.into(), kinds: kinds.to_vec(), cluster: false }
}

/// `opcode d, a, b…`
pub fn plain(opcode: &str, kinds: &[&'static str]) -> Form {
    let operands = ["{d}", "{a}", "{b}", "{c}"][..kinds.len()].join(", ");
    form(format!("{opcode} {operands};"), kinds)
}

impl Form {
    /// Returns the indices of its input arrays: three for each class of values.
    fn parameters(&self) -> [usize; 3] {
        let mut indices = [0, 1, 2];
        for (which, kind) in self.kinds.iter().skip(1).enumerate() {
            indices[which] = class(kind).2 * 3 + which;
        }
        indices
    }

    /// Returns the key of its results in some files.
    pub fn digest(&self) -> String {
        format!("{:016x}", hash_bytes(self.text.bytes()))
    }
}

/// Register type, bytes in memory, and the index of the inputs it takes.
pub fn class(kind: &str) -> (&'static str, u32, usize) {
    match kind {
        "pred" => ("pred", 0, 0),
        "u8" | "s8" => ("b16", 1, 0),
        "b16" | "u16" | "s16" => ("b16", 2, 0),
        "f16" => ("b16", 2, 3),
        "bf16" => ("b16", 2, 4),
        "f16x2" => ("b32", 4, 3),
        "bf16x2" => ("b32", 4, 4),
        "f32" => ("f32", 4, 1),
        "f64" => ("f64", 8, 2),
        "b32" | "u32" | "s32" => ("b32", 4, 0),
        _ => ("b64", 8, 0),
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn edges(class: usize) -> Vec<u64> {
    let f32s = [
        0.0_f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        1e10,
        -1e10,
        1e-40,
        -1e-40,
        3.4e38,
        -3.4e38,
        1e-20,
        0.1,
        255.5,
        65504.0,
        65520.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        4_294_967_296.0,
        9.3e18,
        -9.3e18,
        1.9e19,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::EPSILON,
        1.0 - f32::EPSILON / 2.0,
        6e-8,
        8388607.5,
    ];
    match class {
        0 => {
            let mut list: Vec<u64> = (0..10).collect();
            list.extend([15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7fff, 0x8000, 0xffff]);
            list.extend([
                0x7fff_ffff,
                0x8000_0000,
                0xffff_ffff,
                0x1_0000_0000,
                i64::MAX as u64,
                i64::MIN as u64,
            ]);
            list.extend([
                u64::MAX,
                u64::MAX - 1,
                0xffff_ffff_ffff_ff80,
                0x00ff_00ff_00ff_00ff,
                0x0102_0304_0506_0708,
            ]);
            list
        }
        1 => {
            let mut list: Vec<u64> = f32s.iter().map(|value| u64::from(value.to_bits())).collect();
            list.extend([1, 0x8000_0001, 0x007f_ffff, 0x7fc0_0000, 0x7f80_0001, 0xffc1_2345]);
            list
        }
        2 => {
            let mut list: Vec<u64> = f32s.iter().map(|value| f64::from(*value).to_bits()).collect();
            list.extend(
                [1.0e300_f64, -1.0e300, 1e-310, 5e-324, f64::MAX, f64::MIN_POSITIVE, 1.0 + f64::EPSILON]
                    .map(f64::to_bits),
            );
            list.extend([
                0x7ff8_0000_0000_0000,
                0x7ff0_0000_0000_0001,
                0xfff8_0000_0001_2345,
                0x000f_ffff_ffff_ffff,
            ]);
            list
        }
        3 => [
            0x0000, 0x8000, 0x3c00, 0xbc00, 0x3800, 0x3e00, 0x4100, 0xc100, 0x0001, 0x8001, 0x03ff, 0x0400,
            0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x3555, 0x5bf8, 0x6400, 0x6401, 0x3bff, 0x3c01,
            0x1400, 0x2e66,
        ]
        .into(),
        _ => [
            0x0000, 0x8000, 0x3f80, 0xbf80, 0x3f00, 0x3fc0, 0x4020, 0xc020, 0x0001, 0x8001, 0x007f, 0x0080,
            0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x3eab, 0x4380, 0x4b00, 0x3f7f, 0x3f81, 0x0d80,
            0x3dcc, 0x7e80,
        ]
        .into(),
    }
}

/// Operand `which` (0 to 2) of class `class`: every pair of edges, then random values.
pub fn inputs(class: usize, which: usize) -> Vec<u64> {
    let edges = edges(class);
    let count = edges.len();
    let mut random = Random((class * 3 + which) as u64);
    (0..COUNT)
        .map(|index| {
            let pair = |low: u64, high: u64| if class >= 3 { low | high << 16 } else { low };
            let edge = |index: usize| pair(edges[index % count], edges[(index * 7 + 3) % count]);
            match which {
                0 if index < count * count => edge(index),
                1 if index < count * count => edge(index / count),
                _ if index % 3 == 0 => edge(random.next() as usize % count),
                _ => {
                    let bits = random.next();
                    // Half of the floating-point numbers near one, where rounding happens.
                    match (class, bits >> 63) {
                        (1, 0) => bits & 0x81ff_ffff | 0x3e00_0000,
                        (2, 0) => bits & 0x803f_ffff_ffff_ffff | 0x3fe0_0000_0000_0000,
                        (3, 0) => bits & 0x87ff_87ff | 0x3800_3800,
                        (4, 0) => bits & 0x81ff_81ff | 0x3e00_3e00,
                        (0, 0) => bits >> (bits >> 56 & 63),
                        _ => bits,
                    }
                }
            }
        })
        .collect()
}

/// The input arrays.
fn arrays() -> impl Iterator<Item = Vec<u64>> {
    (0..15).map(|index| inputs(index / 3, index % 3))
}

/// The results of the forms of a module on the emulator.
pub fn run(module: &str, forms: &[Form]) -> Vec<Vec<u64>> {
    let device = Device::new(module);
    let arrays: Vec<u64> = arrays().map(|array| device.upload(&array)).collect();
    let out = device.upload(&[0_u64; COUNT]);
    let mut results = Vec::new();
    for (index, form) in forms.iter().enumerate() {
        device.memory.fill(out, &[0], 8 * COUNT as u64).unwrap();
        let [a, b, c] = form.parameters().map(|index| arrays[index]);
        let grid = [COUNT as u32 / 256, 1, 1];
        device
            .run(&format!("k{index}"), grid, [256, 1, 1], &[a, b, c, out])
            .unwrap_or_else(|fault| panic!("{}: {fault}", form.text));
        results.push(device.download::<u64>(out, COUNT));
    }
    results
}

/// FNV-1a of all result bytes.
pub fn hash(results: &[u64]) -> u64 {
    hash_bytes(results.iter().flat_map(|value| value.to_le_bytes()))
}

/// FNV-1a.
pub fn hash_bytes(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Hashes of results by the digests of their forms.
pub fn known(file: &'static str) -> HashMap<&'static str, &'static str> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.get(..16).zip(line.get(17..33))).collect()
}

/// Writes module, inputs and the list of kernels for a machine with a GPU to `forms` in cargo's folder for temporary files.
pub fn write_files(module: &str, forms: &[Form]) {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("forms");
    std::fs::create_dir_all(&dir).unwrap();
    let bytes = |words: Vec<u64>| words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    let list = forms.iter().map(Form::parameters).map(|[a, b, c]| format!("{a} {b} {c}\n"));
    let digests = forms.iter().map(|form| form.digest() + "\n");
    std::fs::write(dir.join("forms.ptx"), module).unwrap();
    std::fs::write(dir.join("inputs.bin"), bytes(arrays().flatten().collect())).unwrap();
    std::fs::write(dir.join("list.txt"), list.collect::<String>()).unwrap();
    std::fs::write(dir.join("names.txt"), digests.collect::<String>()).unwrap();
    let results = run(module, forms).into_iter().flatten().collect();
    std::fs::write(dir.join("emulated.bin"), bytes(results)).unwrap();
}
