// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Eigenvalues of Hermitian matrices: all or some of them, of one matrix or of a pair (sections 2.4.3.8 and following).

use std::ffi::c_int;

use super::decompose::has_vectors;
use super::factor::factor_cholesky;
use super::generalised::Form;
use super::given::{Given, fill};
use super::handle::queue_and_wait;
use super::{INVALID_VALUE, Status, size, status, workspace};
use crate::cublas::operation::Fill;
use crate::exported::exported;
use crate::handles::Handle;
use crate::lapack::eigen;
use crate::memory::{Array, Dense, set_i32};
use crate::numbers::{Type, TypedAddress};
use crate::stream::Fault;

/// The eigenvalues that a program requests.
#[derive(Clone, Copy, Debug)]
pub enum Range {
    All,
    /// The first and the last one of the ascending list, counted from 1.
    Indices(usize, usize),
    /// Values greater than the first number and at most the second.
    Interval(f64, f64),
}

impl Range {
    /// The range of that number (`cusolverEigRange_t`) for a matrix of that order.
    pub fn new<T: TryInto<usize>>(
        number: c_int,
        order: usize,
        [lower, upper]: [f64; 2],
        [first, last]: [T; 2],
    ) -> Result<Self, Status> {
        let range = match number {
            1001 => Self::All,
            1002 => Self::Indices(size(first)?, size(last)?),
            1003 => Self::Interval(lower, upper),
            _ => return Err(INVALID_VALUE),
        };
        match range {
            Self::Indices(first, last) if first < 1 || first > last || last > order => Err(INVALID_VALUE),
            Self::Interval(lower, upper) if lower.is_nan() || upper.is_nan() || lower >= upper => {
                Err(INVALID_VALUE)
            }
            _ => Ok(range),
        }
    }

    /// The places of these values in an ascending list.
    fn of(self, values: &[f64]) -> std::ops::Range<usize> {
        match self {
            Self::All => 0..values.len(),
            Self::Indices(first, last) => first - 1..last,
            Self::Interval(lower, upper) => {
                let until = |limit| values.partition_point(|value| *value <= limit);
                until(lower)..until(upper)
            }
        }
    }
}

/// Eigenvalues of an argument list.
#[derive(Clone, Copy)]
pub struct Problem {
    /// The triangle of A and B that is stored.
    pub fill: Fill,
    /// Eigenvectors replace A.
    pub vectors: bool,
    pub a: Given,
    /// The second matrix of a pair; Cholesky's factor replaces it.
    pub b: Option<(Form, Given)>,
    /// Type and address of the eigenvalues.
    pub w: TypedAddress,
}

/// The outcome of a problem.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// The number of eigenvalues.
    pub count: usize,
    /// As `info` takes it.
    pub info: i32,
}

impl Problem {
    /// Computes the eigenvalues of a range, and stores them.
    pub fn solve(&self, range: Range) -> Result<Outcome, Fault> {
        let matrix = self.a.open()?;
        let mut values = self.fill.symmetric(matrix, true);
        let mut reduced = None;
        if let Some((form, b)) = self.b {
            match factor_cholesky(b.open()?, self.fill) {
                Ok(lower) => {
                    values = form.reduce(values, &lower);
                    reduced = Some((form, lower));
                }
                Err(order) => return Ok(Outcome { count: 0, info: self.a.rows as i32 + order }),
            }
        }
        let (found, mut basis, converged) = eigen::hermitian(&values);
        if let Some((form, lower)) = reduced {
            form.restore(&mut basis, &lower);
        }
        let chosen = range.of(&found);
        let places = Array::open(self.w, chosen.len())?;
        found[chosen.clone()].iter().enumerate().for_each(|(at, value)| places.set_real(at, *value));
        if self.vectors {
            matrix.store(&Dense::from(self.a.rows, chosen.len(), |row, column| {
                basis[(row, chosen.start + column)]
            }));
        }
        Ok(Outcome { count: chosen.len(), info: i32::from(!converged) })
    }
}

/// Solves a problem, whose number of eigenvalues is known when the work has run.
///
/// # Safety
///
/// `place` is null or has room for a number.
pub unsafe fn solve<N: TryFrom<usize>>(
    handle: Handle,
    problem: Problem,
    range: Range,
    place: *mut N,
    info: usize,
) -> Result<(), Status> {
    let found = queue_and_wait(handle, move || {
        let outcome = problem.solve(range)?;
        set_i32(info, 0, outcome.info)?;
        Ok(outcome.count)
    })?;
    // SAFETY: null or room for a number by this function's contract.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = found.try_into().map_err(|_| INVALID_VALUE)?;
    }
    Ok(())
}

exported! {
    /// Some eigenvalues, and eigenvectors.
    pub unsafe extern "C" fn<Real>(kind) [
        cusolverDnSsyevdx<f32>(Type::F32), cusolverDnDsyevdx<f64>(Type::F64), cusolverDnCheevdx<f32>(Type::C32),
        cusolverDnZheevdx<f64>(Type::C64),
    ]
    (
        handle: Handle, jobz: c_int, range: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, vl: Real, vu: Real, il: c_int,
        iu: c_int, found: *mut c_int, w: usize, _work: usize, _size: c_int, info: usize,
    ) -> Status {
        let compute = || {
            let vectors = has_vectors(jobz)?;
            let a = Given::new(kind, a, [n, n, lda])?;
            let range = Range::new(range, a.rows, [vl.into(), vu.into()], [il, iu])?;
            let problem = Problem { fill: fill(uplo)?, vectors, a, b: None, w: kind.real().at(w) };
            // SAFETY: the caller gives a place for a number, or null.
            unsafe { solve(handle, problem, range, found, info) }
        };
        status(compute())
    }

    /// Its workspace.
    pub extern "C" fn<Real> [
        cusolverDnSsyevdx_bufferSize<f32>, cusolverDnDsyevdx_bufferSize<f64>, cusolverDnCheevdx_bufferSize<f32>,
        cusolverDnZheevdx_bufferSize<f64>,
    ]
    (
        handle: Handle, _jobz: c_int, _range: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _vl: Real, _vu: Real,
        _il: c_int, _iu: c_int, _found: *mut c_int, _w: usize, size: *mut c_int,
    ) -> Status {
        workspace(handle, size)
    }

    /// Some eigenvalues of a pair, and eigenvectors.
    pub unsafe extern "C" fn<Real>(kind) [
        cusolverDnSsygvdx<f32>(Type::F32), cusolverDnDsygvdx<f64>(Type::F64), cusolverDnChegvdx<f32>(Type::C32),
        cusolverDnZhegvdx<f64>(Type::C64),
    ]
    (
        handle: Handle, form: c_int, jobz: c_int, range: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, b: usize,
        ldb: c_int, vl: Real, vu: Real, il: c_int, iu: c_int, found: *mut c_int, w: usize, _work: usize, _size: c_int,
        info: usize,
    ) -> Status {
        let compute = || {
            let (vectors, form) = (has_vectors(jobz)?, Form::new(form)?);
            let (a, b) = (Given::new(kind, a, [n, n, lda])?, Given::new(kind, b, [n, n, ldb])?);
            let range = Range::new(range, a.rows, [vl.into(), vu.into()], [il, iu])?;
            let problem = Problem { fill: fill(uplo)?, vectors, a, b: Some((form, b)), w: kind.real().at(w) };
            // SAFETY: the caller gives a place for a number, or null.
            unsafe { solve(handle, problem, range, found, info) }
        };
        status(compute())
    }

    /// Its workspace.
    pub extern "C" fn<Real> [
        cusolverDnSsygvdx_bufferSize<f32>, cusolverDnDsygvdx_bufferSize<f64>, cusolverDnChegvdx_bufferSize<f32>,
        cusolverDnZhegvdx_bufferSize<f64>,
    ]
    (
        handle: Handle, _form: c_int, _jobz: c_int, _range: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _b: usize,
        _ldb: c_int, _vl: Real, _vu: Real, _il: c_int, _iu: c_int, _found: *mut c_int, _w: usize, size: *mut c_int,
    ) -> Status {
        workspace(handle, size)
    }
}
