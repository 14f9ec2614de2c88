// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cubemaps: converts a direction to a face and a position on it, according to the table of the CUDA programming
//! guide.

/// The face, 0..=5, and the place on it, 0.0..=1.0 in both directions.
pub(super) fn face([x, y, z]: [f32; 3]) -> (u32, [f32; 2]) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    let (face, m, s, t) = if ax >= ay && ax >= az {
        if x >= 0.0 { (0, x, -z, -y) } else { (1, -x, z, -y) }
    } else if ay >= az {
        if y >= 0.0 { (2, y, x, z) } else { (3, -y, x, -z) }
    } else if z >= 0.0 {
        (4, z, x, -y)
    } else {
        (5, -z, -x, -y)
    };
    let place = |value: f32| if m > 0.0 { (value / m + 1.0) / 2.0 } else { 0.5 };
    (face, [place(s), place(t)])
}

#[cfg(test)]
mod tests {
    use super::face;

    #[test]
    fn each_axis_meets_the_middle_of_its_face() {
        let axes = [[1., 0., 0.], [-1., 0., 0.], [0., 1., 0.], [0., -1., 0.], [0., 0., 1.], [0., 0., -1.]];
        for (index, axis) in axes.into_iter().enumerate() {
            assert_eq!(face(axis), (index as u32, [0.5, 0.5]));
        }
        assert_eq!(face([2.0, 1.0, -1.0]), (0, [0.75, 0.25]));
        assert_eq!(face([0.0; 3]).1, [0.5, 0.5]);
    }
}
