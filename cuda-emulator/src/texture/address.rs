// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address modes: which texel an index outside of the texture means.

/// CUaddress_mode
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressMode {
    /// The texture repeats.
    Wrap,
    /// The edge is repeated.
    Clamp,
    /// The texture repeats, every second one mirrored.
    Mirror,
    /// The border colour is outside.
    Border,
}

impl AddressMode {
    /// Returns the texel for `index` in a row of `size` (at least 1) texels; `None` is the border.
    #[inline(always)]
    pub(super) fn resolve(self, index: i64, size: u32) -> Option<u32> {
        let size = i64::from(size);
        let resolved = match self {
            AddressMode::Wrap => index.rem_euclid(size),
            AddressMode::Clamp => index.clamp(0, size - 1),
            AddressMode::Mirror => {
                let place = index.rem_euclid(2 * size);
                if place < size { place } else { 2 * size - 1 - place }
            }
            AddressMode::Border => Some(index).filter(|index| (0..size).contains(index))?,
        };
        Some(resolved as u32)
    }
}

/// Converts a float to an index. Huge values and NaN are limited to indices far outside of any texture.
#[inline(always)]
pub(super) fn index_of(value: f32) -> i64 {
    const FAR: f32 = 1_099_511_627_776.0;
    if value.is_nan() {
        return 0;
    }
    let value = value.clamp(-FAR, FAR);
    let towards_zero = value as i64;
    towards_zero - i64::from(towards_zero as f32 > value)
}

/// As [`f32::floor`] except for the sign of zero: one or two instructions on every x86-64 instead of a call.
#[inline(always)]
pub(super) fn floor(value: f32) -> f32 {
    // From here on, all are integers, or not finite.
    const INTEGERS: f32 = 8_388_608.0;
    if value.abs() < INTEGERS {
        let towards_zero = value as i32 as f32;
        towards_zero - f32::from(u8::from(towards_zero > value))
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_is_the_one_of_the_library() {
        let values = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 8_388_607.5, -8_388_607.5, 1e9, -1e9, 1e-40, -1e-40];
        let infinite = [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN];
        for value in values.into_iter().chain(infinite) {
            assert_eq!(floor(value), value.floor());
            let clamped = value.clamp(-1_099_511_627_776.0, 1_099_511_627_776.0);
            assert_eq!(index_of(value), clamped.floor() as i64);
        }
        assert!(floor(f32::NAN).is_nan());
    }

    #[test]
    fn modes_differ_outside() {
        let row = |mode: AddressMode| (-5..8).map(|index| mode.resolve(index, 3)).collect::<Vec<_>>();
        let some = |values: [u32; 13]| values.map(Some).to_vec();
        assert_eq!(row(AddressMode::Wrap), some([1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]));
        assert_eq!(row(AddressMode::Clamp), some([0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2]));
        assert_eq!(row(AddressMode::Mirror), some([1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1]));
        assert_eq!(row(AddressMode::Border).iter().flatten().count(), 3);
        assert_eq!(AddressMode::Mirror.resolve(index_of(f32::INFINITY), 1), Some(0));
        assert_eq!(AddressMode::Wrap.resolve(index_of(f32::NAN), 7), Some(0));
    }
}
