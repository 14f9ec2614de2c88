// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

fn form(kind: Kind) -> Form {
    Form { kind, precision: Precision::Double }
}

fn layout(axes: &[(usize, usize)], element: usize) -> Layout {
    let axes: Vec<Axis> =
        axes.iter().map(|(count, stride)| Axis { count: *count, stride: *stride }).collect();
    Layout::new(&axes, element).expect("it is short")
}

fn plain(stride: i64, distance: i64) -> Side {
    Side { embed: None, stride, distance }
}

#[test]
fn rows_of_real_numbers_are_padded_in_place() {
    let sides = || [plain(1, 0), plain(1, 0)];
    let apart = Problem::many(form(Kind::Forward), &[3, 5], 1, false, sides()).expect("it is a plan");
    assert_eq!(apart.layouts, [layout(&[(15, 1)], 8), layout(&[(9, 1)], 16)]);
    let in_place = Problem::many(form(Kind::Forward), &[3, 5], 1, true, sides()).expect("it is a plan");
    assert_eq!(in_place.layouts, [layout(&[(3, 6), (5, 1)], 8), layout(&[(9, 1)], 16)]);
    let inverse = Problem::many(form(Kind::Inverse), &[3, 4], 1, true, sides()).expect("it is a plan");
    assert_eq!(inverse.layouts, [layout(&[(9, 1)], 16), layout(&[(3, 6), (4, 1)], 8)]);
}

#[test]
fn parts_of_arrays_have_the_arrays_strides() {
    let part = Side { embed: Some(vec![7, 9]), stride: 2, distance: 1 };
    let problem = Problem::many(form(Kind::Complex(-1)), &[3, 4], 2, false, [part, plain(1, 12)]);
    let problem = problem.expect("it is a plan");
    assert_eq!(problem.layouts, [layout(&[(2, 1), (3, 18), (4, 2)], 16), layout(&[(24, 1)], 16)]);
}

#[test]
fn guru_dimensions_have_their_own_strides() {
    let dimensions = [Dimension { n: 3, is: 1, os: 4 }, Dimension { n: 6, is: 3, os: 1 }];
    let batch = Dimension { n: 2, is: 18, os: 12 };
    let problem = Problem::guru(form(Kind::Forward), &dimensions, Some(batch)).expect("it is a plan");
    assert_eq!(problem.sizes, [3, 6]);
    assert_eq!(problem.layouts, [layout(&[(2, 18), (3, 1), (6, 3)], 8), layout(&[(24, 1)], 16)]);
}

#[test]
fn wrong_arguments_are_refused() {
    let sides = || [plain(1, 0), plain(1, 0)];
    let many = |kind, sizes: &[i64], batch| Problem::many(form(kind), sizes, batch, false, sides());
    assert!(many(Kind::Complex(0), &[4], 1).is_err());
    assert!(many(Kind::Complex(1), &[], 1).is_err());
    assert!(many(Kind::Complex(1), &[2, 2, 2, 2], 1).is_err());
    assert!(many(Kind::Complex(1), &[0], 1).is_err());
    assert!(many(Kind::Complex(1), &[-4], 1).is_err());
    assert!(many(Kind::Complex(1), &[4], 0).is_err());
    assert!(many(Kind::Complex(1), &[i64::MAX, 4], 1).is_err());
    let negative = [Dimension { n: 4, is: -1, os: 1 }];
    assert!(Problem::guru(form(Kind::Complex(1)), &negative, None).is_err());
    let one = [Dimension { n: 1, is: -1, os: -1 }];
    assert!(Problem::guru(form(Kind::Complex(1)), &one, None).is_ok());
    let long = [Dimension { n: 2, is: isize::MAX, os: 1 }];
    assert!(Problem::guru(form(Kind::Complex(1)), &long, None).is_err());
}

#[test]
fn numbers_of_cufft() {
    let number = |kind, precision| Form { kind, precision }.number();
    assert_eq!(number(Kind::Complex(1), Precision::Double), 0x69);
    assert_eq!(number(Kind::Forward, Precision::Single), 0x2a);
    assert_eq!(number(Kind::Inverse, Precision::Double), 0x6c);
}
