// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Tensors in which an element represents a group of consecutive elements of a larger tensor: a head of keys for
//! several heads of queries, for example.

/// Two tensors' sizes with some dimensions split, so that those of the first one are 1 or as large as the second one's. Nothing
/// if a dimension of the first does not divide that of the second. Splitting does not change the order of packed elements.
pub fn split(from: &[usize], to: &[usize]) -> Option<[Vec<usize>; 2]> {
    if from.len() != to.len() {
        return None;
    }
    let [mut small, mut large] = [const { Vec::new() }; 2];
    for (from, to) in from.iter().zip(to) {
        if to % from != 0 {
            return None;
        }
        small.extend([*from, 1]);
        large.extend([*from, to / from]);
    }
    Some([small, large])
}

#[cfg(test)]
mod tests {
    use super::super::super::layout::places;
    use super::*;

    #[test]
    fn neighbours_share_an_element() {
        let [from, to] = split(&[1, 2], &[2, 4]).expect("they divide");
        let found: Vec<usize> = places(&from, &to).collect();
        assert_eq!(found, [0, 0, 1, 1, 0, 0, 1, 1]);
        assert!(split(&[3], &[4]).is_none() && split(&[4], &[2]).is_none() && split(&[2], &[2, 2]).is_none());
    }
}
