// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Compares generators with numbers that NVIDIA's library 10.4.0 printed: those of its generators for host memory, which compute
//! on the CPU. Bits and uniform numbers are the same; normal ones depend on the last bits of logarithm, sine and cosine.

use super::*;

/// A generator, and its numbers in the order of the calls. Long results are identified by their FNV-1a hash.
struct Expected {
    kind: c_int,
    /// 300,000 words: three from the beginning, the last, and all.
    words: [u64; 4],
    all: u64,
    /// 3,003 and 6,006 numbers.
    uniform: u64,
    uniform_double: u64,
    /// Four of 12 with mean 1 and deviation 2.
    normal: [f32; 4],
    normal_double: [f64; 4],
    /// Four of 12 with mean 0 and deviation 0.5.
    log: [f32; 4],
    /// 8,190 words after another seed, or another number of dimensions.
    after: u64,
    /// 8,190 words after the offset 1,000,000,007, and then 300,000 numbers.
    far: u64,
    far_double: u64,
}

const EXPECTED: [Expected; 5] = [
    Expected {
        kind: 101,
        words: [0x253d_5e15, 0xd1f7_605a, 0x8ce6_f6f8, 0x1f47_e364],
        all: 0xfdab_894f_7c3e_844c,
        uniform: 0x9d52_aca3_839c_46a5,
        uniform_double: 0x3594_3dce_aa86_0bca,
        normal: [2.580_347, 3.138_236_3, -2.182_982, -1.510_662_8],
        normal_double: [
            3.274_169_772_248_857,
            4.070_650_276_387_696,
            2.457_357_378_302_725,
            3.160_698_224_268_576_6,
        ],
        log: [0.260_331_75, 0.683_341_2, 0.733_387_77, 1.523_582_2],
        after: 0x46bb_9111_b662_335b,
        far: 0xedd0_0a4e_a75f_718c,
        far_double: 0x0fed_f09c_6bd1_b266,
    },
    Expected {
        kind: 121,
        words: [0xc968_91f0, 0x26f0_d612, 0xef26_9080, 0x4deb_0d24],
        all: 0x3d7e_d7e1_8762_18f2,
        uniform: 0x3ffb_2330_731f_3fa5,
        uniform_double: 0xae82_8d71_ecce_959a,
        normal: [6.939_14, 2.014_904_5, -0.082_229_02, -0.613_894_34],
        normal_double: [
            1.935_807_607_034_723_2,
            0.953_782_773_411_772_6,
            0.424_843_039_539_879_2,
            -1.164_130_058_439_599_5,
        ],
        log: [0.477_617_53, 1.529_880_9, 0.995_198_2, 0.986_589_9],
        after: 0x2b10_370a_322c_c39b,
        far: 0x1081_d5c3_21e9_f47e,
        far_double: 0x1404_8d3b_3934_195d,
    },
    Expected {
        kind: 161,
        words: [0x2090_b348, 0xda7c_f0ab, 0x4401_906f, 0x6f56_5f99],
        all: 0x68bf_0ad1_5bbc_3345,
        uniform: 0xcef4_8440_1ece_4cd2,
        uniform_double: 0xb6b3_ab83_ec75_4fcb,
        normal: [0.196_988_82, 0.696_303_84, 3.807_227_6, -0.545_760_6],
        normal_double: [
            0.783_758_400_867_233_4,
            -1.555_585_617_043_237_2,
            6.020_676_860_386_332,
            2.536_049_621_356_428,
        ],
        log: [0.760_190_07, 0.600_497_37, 0.995_611_8, 0.735_655_1],
        after: 0xf887_ed18_ff3f_8657,
        far: 0xf5e9_44a4_64ee_e9ec,
        far_double: 0xe9ef_a931_8606_e46f,
    },
    Expected {
        kind: 201,
        words: [0, 0x8000_0000, 0xc000_0000, 0xad8e_8000],
        all: 0x056a_3470_9e40_68e5,
        uniform: 0xb5dd_a49f_7ea2_f5c5,
        uniform_double: 0xe192_e819_5c85_5581,
        normal: [0.662_626_6, -0.002_932_31, 2.741_257_4, 1.291_909_9],
        normal_double: [
            -2.143_202_201_366_253,
            -2.447_055_946_324_768,
            1.212_946_422_373_329_3,
            2.629_529_754_825_581_4,
        ],
        log: [0.760_941_74, 0.900_973_8, 2.001_476_8, 1.241_558_9],
        after: 0x2d9d_caea_0633_164f,
        far: 0x3ff0_9e8d_12a4_5e38,
        far_double: 0xef11_9eaf_6334_5e45,
    },
    Expected {
        kind: 203,
        words: [0, 1 << 63, 3 << 62, 0xad8e_8000_0000_0000],
        all: 0x9423_21e0_b4cb_2165,
        uniform: 0xb5dd_a49f_7ea2_f5c5,
        uniform_double: 0x6708_745e_451d_5619,
        normal: [0.662_626_6, -0.002_932_31, 2.741_257_4, 1.291_909_9],
        normal_double: [
            -2.143_202_203_372_889,
            -2.447_055_948_902_135_7,
            1.212_946_421_786_392,
            2.629_529_754_012_224_4,
        ],
        log: [0.760_941_74, 0.900_973_8, 2.001_476_8, 1.241_558_9],
        after: 0x23da_d92a_cebe_d4cf,
        far: 0x74ea_c535_b73d_f8b8,
        far_double: 0xebb2_a5a4_0bd7_4b1d,
    },
];

/// The FNV-1a of numbers, which have as many bytes each.
fn sum(numbers: impl IntoIterator<Item = u64>, bytes: usize) -> u64 {
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    numbers.into_iter().fold(0xcbf2_9ce4_8422_2325, |sum, number| {
        number.to_le_bytes()[..bytes].iter().fold(sum, |sum, byte| step(sum, *byte))
    })
}

/// A generator of host memory.
struct Host(Handle);

impl Host {
    fn new(kind: c_int) -> Self {
        let mut handle = 0;
        // SAFETY: the place is a local.
        assert_eq!(unsafe { curandCreateGeneratorHost(&raw mut handle, kind) }, SUCCESS, "{kind}");
        Self(handle)
    }

    fn fill<T: Copy + Default>(
        &self,
        count: usize,
        fill: impl FnOnce(Handle, usize, usize) -> Status,
    ) -> Vec<T> {
        let mut places = vec![T::default(); count];
        assert_eq!(fill(self.0, places.as_mut_ptr() as usize, count), SUCCESS);
        places
    }

    fn words(&self, kind: c_int, count: usize) -> Vec<u64> {
        if kind == 203 {
            return self.fill(count, |a, b, c| curandGenerateLongLong(a, b, c));
        }
        let words = self.fill::<u32>(count, |a, b, c| curandGenerate(a, b, c));
        words.into_iter().map(u64::from).collect()
    }

    fn doubles(&self, count: usize) -> Vec<u64> {
        let numbers = self.fill::<f64>(count, |a, b, c| curandGenerateUniformDouble(a, b, c));
        numbers.into_iter().map(f64::to_bits).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        assert_eq!(curandDestroyGenerator(self.0), SUCCESS);
    }
}

fn assert_close<T: Into<f64> + Copy>(kind: c_int, found: &[T], expected: [T; 4], error: f64) {
    for (found, expected) in found.iter().zip(expected) {
        let (found, expected): (f64, f64) = ((*found).into(), expected.into());
        assert!(
            (found - expected).abs() <= error * expected.abs().max(1.0),
            "{kind}: {found} is not {expected}"
        );
    }
}

#[test]
fn numbers_are_those_of_nvidias_library() {
    for expected in &EXPECTED {
        let kind = expected.kind;
        let (host, is_quasi, bytes) = (Host::new(kind), kind >= 200, if kind == 203 { 8 } else { 4 });
        let begin = |seed: u64, dimensions: u32| match is_quasi {
            true => curandSetQuasiRandomGeneratorDimensions(host.0, dimensions),
            false => curandSetPseudoRandomGeneratorSeed(host.0, seed),
        };
        assert_eq!(begin(1234, 3), SUCCESS);
        let words = host.words(kind, 300_000);
        assert_eq!([words[0], words[1], words[2], words[299_999]], expected.words, "{kind}");
        assert_eq!(sum(words, bytes), expected.all, "{kind}: words");
        let uniform = host.fill::<f32>(3003, |a, b, c| curandGenerateUniform(a, b, c));
        assert_eq!(
            sum(uniform.iter().map(|number| u64::from(number.to_bits())), 4),
            expected.uniform,
            "{kind}"
        );
        assert_eq!(sum(host.doubles(6006), 8), expected.uniform_double, "{kind}: doubles");
        let normal = host.fill::<f32>(12, |a, b, c| curandGenerateNormal(a, b, c, 1.0, 2.0));
        assert_close(kind, &normal, expected.normal, 1e-6);
        let normal = host.fill::<f64>(12, |a, b, c| curandGenerateNormalDouble(a, b, c, 1.0, 2.0));
        assert_close(kind, &normal, expected.normal_double, 1e-15);
        let log = host.fill::<f32>(12, |a, b, c| curandGenerateLogNormal(a, b, c, 0.0, 0.5));
        assert_close(kind, &log, expected.log, 1e-6);
        host.fill::<u32>(12, |a, b, c| curandGeneratePoisson(a, b, c, 7.0));
        assert_eq!(begin(99, 2), SUCCESS);
        assert_eq!(sum(host.words(kind, 8190), bytes), expected.after, "{kind}: another seed");
        assert_eq!(curandSetGeneratorOffset(host.0, 1_000_000_007), SUCCESS);
        assert_eq!(sum(host.words(kind, 8190), bytes), expected.far, "{kind}: an offset");
        assert_eq!(sum(host.doubles(300_000), 8), expected.far_double, "{kind}: doubles behind an offset");
    }
}

#[test]
fn calls_go_on_where_the_last_one_has_ended() {
    for kind in [101, 121, 141, 142, 161, 201, 203] {
        let (whole, pieces) = (Host::new(kind), Host::new(kind));
        let expected = whole.words(kind, 10_000);
        let found: Vec<u64> =
            [1, 4095, 2, 3, 5000, 899].iter().flat_map(|count| pieces.words(kind, *count)).collect();
        assert_eq!(found, expected, "{kind}");
        let normals = |host: &Host, count: usize| {
            host.fill::<f32>(count, |a, b, c| curandGenerateNormal(a, b, c, 0.0, 1.0))
        };
        let expected = normals(&whole, 10_000);
        let found: Vec<f32> = [2, 9000, 998].iter().flat_map(|count| normals(&pieces, *count)).collect();
        assert_eq!(found, expected, "{kind}");
    }
}

#[test]
fn statuses_are_nvidias() {
    let mut place = 0;
    for (kind, expected) in [(7, TYPE_ERROR), (205, TYPE_ERROR), (202, NOT_SUPPORTED), (204, NOT_SUPPORTED)] {
        // SAFETY: the place is a local.
        assert_eq!(unsafe { curandCreateGeneratorHost(&raw mut place, kind) }, expected, "{kind}");
    }
    let mut numbers = [0_f32; 8];
    let at = numbers.as_mut_ptr() as usize;
    for (kind, seed, offset, dimensions, odd, orders) in [
        (101, 0, 0, TYPE_ERROR, LENGTH_NOT_MULTIPLE, &[100, 101, 102, 103][..]),
        (121, 0, 0, TYPE_ERROR, LENGTH_NOT_MULTIPLE, &[100, 101, 103]),
        (141, 0, TYPE_ERROR, TYPE_ERROR, 0, &[100, 101, 103]),
        (142, 0, TYPE_ERROR, TYPE_ERROR, 0, &[101, 103]),
        (161, 0, 0, TYPE_ERROR, 0, &[100, 101, 103]),
        (201, TYPE_ERROR, 0, 0, 0, &[201]),
        (203, TYPE_ERROR, 0, 0, 0, &[201]),
    ] {
        let host = Host::new(kind);
        assert_eq!(curandSetPseudoRandomGeneratorSeed(host.0, 7), seed, "{kind}");
        assert_eq!(curandSetGeneratorOffset(host.0, 7), offset, "{kind}");
        assert_eq!(curandSetQuasiRandomGeneratorDimensions(host.0, 1), dimensions, "{kind}");
        assert_eq!(curandGenerateNormal(host.0, at, 7, 0.0, 1.0), odd, "{kind}");
        let taken: Vec<c_int> =
            (99..=201).filter(|order| curandSetGeneratorOrdering(host.0, *order) == SUCCESS).collect();
        assert_eq!(taken, orders, "{kind}");
        for (mean, expected) in
            [(-1.0, OUT_OF_RANGE), (0.0, OUT_OF_RANGE), (1e6, OUT_OF_RANGE), (7.0, SUCCESS)]
        {
            assert_eq!(curandGeneratePoisson(host.0, at, 8, mean), expected, "{kind}: {mean}");
        }
    }
    let host = Host::new(201);
    for (dimensions, expected) in [(0, OUT_OF_RANGE), (20_001, OUT_OF_RANGE), (20_000, SUCCESS), (3, SUCCESS)]
    {
        assert_eq!(curandSetQuasiRandomGeneratorDimensions(host.0, dimensions), expected, "{dimensions}");
    }
    assert_eq!(curandGenerate(host.0, at, 7), LENGTH_NOT_MULTIPLE);
    assert_eq!(curandGenerate(host.0, at, 6), SUCCESS);
    assert_eq!(curandGenerateLongLong(host.0, at, 3), TYPE_ERROR);
    assert_eq!(curandGenerate(Host::new(203).0, at, 3), TYPE_ERROR);
}

#[test]
fn direction_numbers_are_those_of_joe_and_kuo() {
    let mut place = std::ptr::null();
    // SAFETY: the place is a local.
    unsafe {
        assert_eq!(curandGetDirectionVectors32(&raw mut place, 101), SUCCESS);
        assert_eq!(curandGetDirectionVectors32(&raw mut place, 102), NOT_SUPPORTED);
        assert_eq!(curandGetDirectionVectors32(&raw mut place, 103), OUT_OF_RANGE);
    }
    // SAFETY: a table of 20,000 dimensions.
    let table = unsafe { std::slice::from_raw_parts(place, 20_000 * 32) };
    // NVIDIA's table has this sum.
    assert_eq!(sum(table.iter().map(|number| u64::from(*number)), 4), 0x977d_0241_e397_4985);
}
