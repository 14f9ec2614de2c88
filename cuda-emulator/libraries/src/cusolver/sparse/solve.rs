// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Systems that one call solves (section 2.5.2).

use std::ffi::c_int;

use super::super::{INVALID_VALUE, Status, size, status};
use super::handle::{device, host};
use super::{Given, Place, answer, position};
use crate::exported::exported;
use crate::handles::Handle;
use crate::numbers::{C64, Type};
use crate::sparse::cholesky::Cholesky;
use crate::sparse::lu::Lu;
use crate::sparse::matrix::Csr;
use crate::sparse::qr::Qr;

/// A way to solve a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Lu,
    Qr,
    Cholesky,
}

/// The factors of a matrix.
#[derive(Debug)]
pub enum Factors {
    Lu(Lu),
    Qr(Qr),
    Cholesky(Cholesky),
}

impl Factors {
    /// Factorizes. The threshold for pivots is LU's.
    pub fn of(method: Method, a: &Csr, threshold: f64) -> Self {
        match method {
            Method::Lu => Self::Lu(Lu::factor(a, threshold)),
            Method::Qr => Self::Qr(Qr::factor(a)),
            Method::Cholesky => Self::Cholesky(Cholesky::factor(a)),
        }
    }

    /// The first index at which the matrix is singular.
    pub fn zero_pivot(&self, tolerance: f64) -> Option<usize> {
        match self {
            Self::Lu(lu) => lu.zero_pivot(tolerance),
            Self::Qr(qr) => qr.zero_pivot(tolerance),
            Self::Cholesky(cholesky) => cholesky.zero_pivot(tolerance),
        }
    }

    /// Solves A x = b.
    pub fn solve(&self, b: &[C64]) -> Vec<C64> {
        match self {
            Self::Lu(lu) => lu.solve(b),
            Self::Qr(qr) => qr.solve(b),
            Self::Cholesky(cholesky) => cholesky.solve(b),
        }
    }
}

/// Solves A x = b with the elements' type of `kind`.
fn solve(
    method: Method,
    given: Result<Given, Status>,
    kind: Type,
    [b, x]: [usize; 2],
    tolerance: f64,
    singularity: *mut c_int,
) -> Result<(), Status> {
    let given = given?;
    if b == 0 || x == 0 {
        return Err(INVALID_VALUE);
    }
    let rows = given.rows;
    let factors = Factors::of(method, &given.load()?, 1.0);
    let right = given.place.run(move |place| place.elements(kind, b, rows))?;
    answer(singularity, position(factors.zero_pivot(tolerance)))?;
    let solution = factors.solve(&right);
    given.place.run(move |place| place.set_elements(kind, x, &solution))
}

fn given(
    place: Result<Place, Status>,
    [n, count]: [c_int; 2],
    descriptor: Handle,
    kind: Type,
    [values, starts, indices]: [usize; 3],
) -> Result<Given, Status> {
    size(n)?;
    Given::new(place?, [n, n, count], descriptor, Some(kind.at(values)), [starts, indices])
}

exported! {
    /// Solves a system.
    pub unsafe extern "C" fn<Real>(place, kind, method) [
        cusolverSpScsrlsvluHost<f32>(host, Type::F32, Method::Lu), cusolverSpDcsrlsvluHost<f64>(host, Type::F64, Method::Lu),
        cusolverSpCcsrlsvluHost<f32>(host, Type::C32, Method::Lu), cusolverSpZcsrlsvluHost<f64>(host, Type::C64, Method::Lu),
        cusolverSpScsrlsvqrHost<f32>(host, Type::F32, Method::Qr), cusolverSpDcsrlsvqrHost<f64>(host, Type::F64, Method::Qr),
        cusolverSpCcsrlsvqrHost<f32>(host, Type::C32, Method::Qr), cusolverSpZcsrlsvqrHost<f64>(host, Type::C64, Method::Qr),
        cusolverSpScsrlsvcholHost<f32>(host, Type::F32, Method::Cholesky),
        cusolverSpDcsrlsvcholHost<f64>(host, Type::F64, Method::Cholesky),
        cusolverSpCcsrlsvcholHost<f32>(host, Type::C32, Method::Cholesky),
        cusolverSpZcsrlsvcholHost<f64>(host, Type::C64, Method::Cholesky),
        cusolverSpScsrlsvqr<f32>(device, Type::F32, Method::Qr), cusolverSpDcsrlsvqr<f64>(device, Type::F64, Method::Qr),
        cusolverSpCcsrlsvqr<f32>(device, Type::C32, Method::Qr), cusolverSpZcsrlsvqr<f64>(device, Type::C64, Method::Qr),
        cusolverSpScsrlsvchol<f32>(device, Type::F32, Method::Cholesky),
        cusolverSpDcsrlsvchol<f64>(device, Type::F64, Method::Cholesky),
        cusolverSpCcsrlsvchol<f32>(device, Type::C32, Method::Cholesky),
        cusolverSpZcsrlsvchol<f64>(device, Type::C64, Method::Cholesky),
    ]
    (
        handle: Handle, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize, indices: usize, b: usize,
        tolerance: Real, _reorder: c_int, x: usize, singularity: *mut c_int,
    ) -> Status {
        let given = given(place(handle), [n, count], descriptor, kind, [values, starts, indices]);
        status(solve(method, given, kind, [b, x], tolerance.into(), singularity))
    }
}
