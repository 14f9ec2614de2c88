// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors in a program's memory.

use cuda_api_description::libraries::attributes::parse;
use cuda_library_rows::attributes::{Scalars, alignment};

const TEXT: &str = "# comment\ndescriptor d 64 init set\nd 0 A_SCALE_TYPE 4 given\nd 3 A_POINTER_MODE 4 0\n\
                    d 5 A_POINTER 8 0 pointer\nother 1 B 4 0\n";

#[test]
fn contents_have_what_was_set() {
    let descriptor = parse(TEXT).expect("valid").remove(0);
    let mut contents = vec![0; descriptor.bytes];
    let (index, attribute) = descriptor.attribute(5).expect("known");
    assert_eq!((attribute.offset, descriptor.bytes), (8, 24), "the longest comes first");
    assert_eq!(descriptor.value(index, &contents), None);
    descriptor.set(index, 0x7000, &mut contents);
    descriptor.set(0, 1, &mut contents);
    assert_eq!(descriptor.value(index, &contents), Some(0x7000));
    assert_eq!(
        descriptor.scalars(&[], &contents),
        Some(Scalars { bytes: 8, host_alpha: true, host_beta: true }),
        "CUDA_R_64F"
    );
    descriptor.set(1, 4, &mut contents);
    assert_eq!(
        descriptor.scalars(&[], &contents),
        Some(Scalars { bytes: 8, host_alpha: false, host_beta: true })
    );
    descriptor.forget_addresses(&[], &mut contents);
    assert_eq!(descriptor.value(index, &contents), Some(256));
    assert_eq!([0, 0x7000, 0x7080, 0x7004, 0x7001].map(alignment), [0, 256, 128, 4, 1]);
}

#[test]
fn parts_and_other_descriptors_have_their_places() {
    let text = "object part 64\npart 0 X_ALPHA_VECTOR_SCALING 4 0\npart 1 X_BETA_VECTOR_SCALING 4 0\n\
                part 2 P 8 0 pointer\nobject whole 64\nwhole 9 GIVEN 4 given\npart whole A part\npart whole B part\n\
                descriptor d 64 init set\nd 1 OTHER 8 0 descriptor:part\n";
    let all = parse(text).expect("valid");
    let [part, whole, d] = &all[..] else { panic!("{all:?}") };
    assert_eq!((part.bytes, whole.bytes, whole.crossing_bytes), (24, 16 + 2 * 24, 16 + 2 * 24));
    assert_eq!((whole.part(&all, 1), d.bytes, d.crossing_bytes), (40..64, 16, 40));
    let mut contents = vec![0xff; whole.bytes];
    whole.make(&[5], &mut contents);
    assert!(whole.is_made(&contents) && !whole.is_made(&[0; 64]));
    assert_eq!(whole.value(0, &contents), Some(5));
    let scalars = |contents: &[u8]| whole.scalars(&all, contents).expect("floats");
    assert_eq!(scalars(&contents), Scalars { bytes: 4, host_alpha: true, host_beta: true });
    part.set(0, 1, &mut contents[16..40]);
    part.set(2, 0x7000, &mut contents[16..40]);
    assert_eq!(scalars(&contents), Scalars { bytes: 4, host_alpha: false, host_beta: true });
    whole.forget_addresses(&all, &mut contents);
    assert_eq!(part.value(2, &contents[16..40]), Some(256));
}

#[test]
fn real_descriptors_fit_their_structures() {
    for library in cuda_library_rows::libraries() {
        for descriptor in library.descriptors {
            assert!(descriptor.bytes <= descriptor.public_bytes, "{descriptor:?}");
            assert!(descriptor.attributes.iter().filter(|known| known.descriptor.is_some()).count() <= 1);
            assert!(descriptor.attributes.len() <= 64 && !descriptor.attributes.is_empty(), "{descriptor:?}");
            assert!(descriptor.attributes.iter().all(|attribute| attribute.bytes <= 8), "{descriptor:?}");
        }
    }
}
