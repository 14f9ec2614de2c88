// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address modes: which texel an index outside of the texture means.

/// CUaddress_mode
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressMode {
    /// The texture repeats.
    Wrap,
    /// The edge goes on.
    Clamp,
    /// The texture repeats, every second one mirrored.
    Mirror,
    /// The border colour is outside.
    Border,
}

impl AddressMode {
    /// The texel that `index` means in a row of `size` (at least 1) texels; none is the border.
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

/// A float as an index: huge values and NaN end at the edges of what is far outside of any texture.
pub(super) fn index_of(value: f32) -> i64 {
    const FAR: f32 = 1_099_511_627_776.0;
    if value.is_nan() { 0 } else { value.clamp(-FAR, FAR).floor() as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

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
