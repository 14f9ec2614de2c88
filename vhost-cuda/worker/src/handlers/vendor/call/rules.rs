// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules for numbers in host memory that libraries follow without a check. A row pointer or column of a sparse matrix
//! that points outside of its arrays would make the library read and write outside of the call's memory.

use cuda_library_rows::block::PRESENT;
use cuda_library_rows::{Check, Host, Kind, library};

use super::attempt::Attempt;
use super::memory::Memory;
use crate::gpu::CudaError;
use crate::vendor::invoke::call_with_integers;
use crate::vendor::refusal::Refusal;

/// The index of the option that sets the first number of a graph in METIS (0 or 1).
const METIS_OPTION_NUMBERING: usize = 17;

impl Attempt<'_> {
    /// Checks the arrays of a call.
    ///
    /// Errors: the library's status for a wrong argument.
    pub(super) fn check_rules(&self, slots: &[u64], memory: &Memory) -> Result<(), Refusal> {
        let wrong = Refusal::Status(self.loaded.rows.statuses.invalid_value);
        // The row pointers of the columns that follow.
        let mut starts: Option<usize> = None;
        for &index in self.call.roles.checked {
            let Kind::Host(Host { check: Some(check), .. }) = &self.call.parameters[index].kind else {
                continue;
            };
            if slots[index] != PRESENT {
                continue;
            }
            let (base, range) = match check {
                Check::Rising { span: range, base } | Check::Below { limit: range, base } => {
                    (self.base(*base, slots)?, range.value(&|index| self.call.integer(index, slots)))
                }
                Check::Permutation | Check::Metis => (0, Some(0)),
            };
            let numbers = memory.contents(index).as_chunks().0;
            let mut is_good = range.is_some_and(|range| keeps(check, numbers, base, range));
            match (check, starts) {
                (Check::Rising { .. }, _) => starts = Some(index),
                (Check::Below { .. }, Some(starts)) => {
                    is_good = is_good && are_distinct(memory.contents(starts).as_chunks().0, numbers, base);
                }
                _ => {}
            }
            if !is_good {
                return Err(wrong);
            }
        }
        Ok(())
    }

    /// Returns a digest of the matrix of a call: its row pointers, columns and index base. The digest is not
    /// shortened, because a guest that finds two matrices with one digest could exchange them.
    pub(super) fn pattern(&self, slots: &[u64], memory: &Memory) -> Result<blake3::Hash, Refusal> {
        let mut hasher = blake3::Hasher::new();
        for &index in self.call.roles.checked {
            let Kind::Host(Host { check: Some(check), .. }) = &self.call.parameters[index].kind else {
                continue;
            };
            let (Check::Rising { base, .. } | Check::Below { base, .. }) = check else { continue };
            let contents = memory.contents(index);
            hasher.update(&self.base(*base, slots)?.to_le_bytes());
            hasher.update(&(contents.len() as u64).to_le_bytes());
            hasher.update(contents);
        }
        Ok(hasher.finalize())
    }

    /// Returns the index base of a matrix descriptor (`cusparseIndexBase_t`), or 0 without one.
    fn base(&self, descriptor: Option<usize>, slots: &[u64]) -> Result<i128, Refusal> {
        let Some(index) = descriptor else { return Ok(0) };
        let Kind::Handle { kind, nullable } = self.call.parameters[index].kind else {
            return Err(CudaError::INVALID_VALUE.into());
        };
        let descriptor = self.handle(kind, slots[index], nullable)?;
        let (number, _) = library("cusparse").ok_or(CudaError::NOT_FOUND)?;
        let owner = self.cx.session.vendor.get(number)?;
        let address = owner.named("cusparseGetMatIndexBase").ok_or(CudaError::NOT_FOUND)?;
        // SAFETY: cuSPARSE's function takes a descriptor, which the call keeps alive, and returns the number in it.
        let base = unsafe { call_with_integers(address, &[descriptor]) };
        // The library would use other values as they are, or as one of these.
        base.filter(|base| matches!(base, 0 | 1))
            .map(i128::from)
            .ok_or(Refusal::Status(self.loaded.rows.statuses.invalid_value))
    }
}

/// Returns whether numbers satisfy a rule, given the index base and the value of the rule's expression.
fn keeps(check: &Check, numbers: &[[u8; 4]], base: i128, range: i128) -> bool {
    let mut values = numbers.iter().map(|bytes| i128::from(i32::from_le_bytes(*bytes)));
    match check {
        // An array without elements has no first one, and the library does not follow any number.
        Check::Rising { .. } => {
            let ends = values.clone().next().zip(values.clone().next_back());
            ends.is_none_or(|ends| ends == (base, base + range)) && values.is_sorted()
        }
        Check::Below { .. } => values.all(|value| (base..base + range).contains(&value)),
        Check::Metis => {
            let numbering = numbers.as_flattened().as_chunks().0.get(METIS_OPTION_NUMBERING);
            // Without the option METIS behaves as with -1.
            numbering.is_none_or(|bytes| matches!(i64::from_le_bytes(*bytes), 0 | -1))
        }
        Check::Permutation => {
            let mut seen = vec![false; numbers.len()];
            values.all(|value| {
                let place = usize::try_from(value).ok().and_then(|index| seen.get_mut(index));
                place.is_some_and(|place| !std::mem::replace(place, true))
            })
        }
    }
}

/// Returns whether no column occurs twice in a row, given increasing row pointers and columns, both counted from the
/// index base. Libraries allocate for each row as many elements as it has columns.
fn are_distinct(starts: &[[u8; 4]], columns: &[[u8; 4]], base: i128) -> bool {
    let place = |start: &[u8; 4]| usize::try_from(i128::from(i32::from_le_bytes(*start)) - base).ok();
    let mut sorted: Vec<i32> = Vec::new();
    starts.windows(2).all(|ends| {
        let range = place(&ends[0]).zip(place(&ends[1]));
        let Some(row) = range.and_then(|(start, end)| columns.get(start..end)) else { return false };
        let row = row.iter().map(|bytes| i32::from_le_bytes(*bytes));
        // Most programs' columns are sorted already.
        row.clone().is_sorted_by(|one, next| one < next) || {
            sorted.clear();
            sorted.extend(row);
            sorted.sort_unstable();
            sorted.is_sorted_by(|one, next| one < next)
        }
    })
}

#[cfg(test)]
mod tests {
    use cuda_library_rows::expression::Expression;

    use super::*;

    fn kept(check: &Check, numbers: &[i32], base: i128, range: i128) -> bool {
        let bytes: Vec<[u8; 4]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
        keeps(check, &bytes, base, range)
    }

    #[test]
    fn numbers_that_lead_out_of_an_array_are_found() {
        let any = Expression::Constant(0);
        let rising = Check::Rising { span: any.clone(), base: None };
        assert!(kept(&rising, &[0, 2, 2, 5], 0, 5) && kept(&rising, &[1, 3, 6], 1, 5));
        assert!(kept(&rising, &[], 0, 5));
        for bad in [&[0, 2, 2, 6][..], &[1, 2, 5], &[0, 3, 2, 5], &[0, -1, 5], &[0], &[0, i32::MAX, 5]] {
            assert!(!kept(&rising, bad, 0, 5), "{bad:?}");
        }
        let below = Check::Below { limit: any, base: None };
        assert!(kept(&below, &[0, 2, 1, 2], 0, 3) && kept(&below, &[1, 3], 1, 3));
        for bad in [&[3][..], &[-1], &[0, i32::MIN]] {
            assert!(!kept(&below, bad, 0, 3), "{bad:?}");
        }
        assert!(!kept(&below, &[0], 1, 3) && !kept(&below, &[4], 1, 3));
        let order = Check::Permutation;
        assert!(kept(&order, &[2, 0, 1], 0, 0));
        for bad in [&[0, 0, 1][..], &[1, 2, 3], &[-1, 0, 1]] {
            assert!(!kept(&order, bad, 0, 0), "{bad:?}");
        }
    }
    #[test]
    fn a_column_occurs_once_in_a_row() {
        let are = |starts: &[i32], columns: &[i32], base: i128| {
            let [starts, columns] = [starts, columns]
                .map(|numbers| numbers.iter().map(|number| number.to_le_bytes()).collect::<Vec<_>>());
            are_distinct(&starts, &columns, base)
        };
        assert!(are(&[0, 2, 2, 4], &[0, 1, 1, 0], 0) && are(&[1, 3, 4], &[2, 1, 1], 1) && are(&[], &[], 0));
        assert!(!are(&[0, 2], &[1, 1], 0) && !are(&[0, 1, 4], &[0, 2, 0, 2], 0) && !are(&[1, 3], &[1, 1], 1));
        assert!(!are(&[0, 3], &[0, 1], 0), "behind the columns");
    }

    #[test]
    fn metis_numbers_from_0() {
        for (numbering, good) in [(0_i64, true), (-1, true), (1, false), (1 << 32, false), (i64::MIN, false)]
        {
            let mut options = [-1_i64; 40];
            options[17] = numbering;
            let bytes: Vec<u8> = options.iter().flat_map(|option| option.to_le_bytes()).collect();
            assert_eq!(keeps(&Check::Metis, bytes.as_chunks().0, 0, 0), good, "{numbering}");
        }
    }
}
