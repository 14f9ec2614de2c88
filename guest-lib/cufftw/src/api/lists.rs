// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Lists of the program.

use std::ffi::c_int;

use crate::error::{Error, Result};
use crate::problem::{Dimension, MAX_RANK};

/// A dimension with its strides in both arrays (`fftw_iodim`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ShortDimension {
    n: c_int,
    is: c_int,
    os: c_int,
}

impl From<ShortDimension> for Dimension {
    fn from(short: ShortDimension) -> Self {
        Self { n: short.n as isize, is: short.is as isize, os: short.os as isize }
    }
}

/// Returns a copy of a list.
///
/// Errors: its length is not that of a transform's dimensions, or it is NULL.
///
/// # Safety
///
/// `list` is NULL or has `rank` elements.
pub unsafe fn list<T: Copy, To: From<T>>(list: *const T, rank: c_int) -> Result<Vec<To>> {
    let length = usize::try_from(rank).ok().filter(|length| (1..=MAX_RANK).contains(length));
    let length = length.ok_or(Error::Arguments("cuFFT has transforms of one to three dimensions only"))?;
    if list.is_null() {
        return Err(Error::Arguments("the list of sizes is NULL"));
    }
    // SAFETY: not NULL, so there are `rank` elements by this function's contract. C does not promise their alignment.
    Ok((0..length).map(|at| To::from(unsafe { list.add(at).read_unaligned() })).collect())
}

/// Returns a copy of a list that may be NULL.
///
/// Errors: those of [`list`].
///
/// # Safety
///
/// The contract of [`list`].
pub unsafe fn optional_list<T: Copy, To: From<T>>(values: *const T, rank: c_int) -> Result<Option<Vec<To>>> {
    if values.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, so there are `rank` elements by this function's contract.
    unsafe { list(values, rank) }.map(Some)
}

/// Returns the dimension over which transforms are repeated, if there is one.
///
/// Errors: there are several.
///
/// # Safety
///
/// `list` is NULL or has `rank` elements.
pub unsafe fn batch<T: Copy + Into<Dimension>>(list: *const T, rank: c_int) -> Result<Option<Dimension>> {
    match rank {
        0 => Ok(None),
        1 if !list.is_null() => {
            // SAFETY: not NULL, so there is one element by this function's contract.
            Ok(Some(unsafe { list.read_unaligned() }.into()))
        }
        1 => Err(Error::Arguments("the list of batches is NULL")),
        _ => Err(Error::Arguments("batches have one dimension at most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_wrong_lengths_are_not_read() {
        for rank in [-1, 0, 4, c_int::MAX] {
            // SAFETY: nothing is read for such a rank.
            assert!(unsafe { list::<c_int, i64>([1].as_ptr(), rank) }.is_err());
        }
        // SAFETY: there are two numbers.
        assert_eq!(unsafe { list::<c_int, i64>([5, 6].as_ptr(), 2) }, Ok(vec![5, 6]));
        // SAFETY: nothing is read at NULL.
        assert!(unsafe { list::<c_int, i64>(std::ptr::null(), 1) }.is_err());
    }

    #[test]
    fn batches_have_one_dimension() {
        let short = [ShortDimension { n: 1, is: 2, os: 3 }; 2];
        // SAFETY: there are two elements.
        let of = |rank| unsafe { batch(short.as_ptr(), rank) };
        assert!(of(2).is_err());
        assert!(of(-1).is_err());
        assert!(of(0).is_ok_and(|batch| batch.is_none()));
        assert!(
            of(1).is_ok_and(|batch| batch.is_some_and(|batch| (batch.n, batch.is, batch.os) == (1, 2, 3)))
        );
    }
}
