// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Eigenvalues of pairs of Hermitian matrices, of which B is positive (section 2.4.3.10).

use std::ffi::c_int;

use super::decompose::has_vectors;
use super::given::{Given, fill};
use super::handle::queue;
use super::range::{Problem, Range};
use super::{INVALID_VALUE, Status, status, workspace};
use crate::cublas::operation::solve;
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::{Dense, set_i32};
use crate::numbers::Type;

/// The equation (`cusolverEigType_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A x = λ B x
    One,
    /// A B x = λ x
    Two,
    /// B A x = λ x
    Three,
}

impl Form {
    /// The form of that number.
    pub fn new(number: c_int) -> Result<Self, Status> {
        match number {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            3 => Ok(Self::Three),
            _ => Err(INVALID_VALUE),
        }
    }

    /// The matrix that has the same eigenvalues, with B = L Lᴴ.
    pub fn reduce(self, mut a: Dense, lower: &Dense) -> Dense {
        if self != Self::One {
            return lower.adjoint().times(&a).times(lower);
        }
        solve(lower, true, &mut a);
        let mut turned = a.adjoint();
        solve(lower, true, &mut turned);
        turned
    }

    /// Makes eigenvectors of the pair from those of that matrix.
    pub fn restore(self, vectors: &mut Dense, lower: &Dense) {
        match self {
            Self::One | Self::Two => solve(&lower.adjoint(), false, vectors),
            Self::Three => *vectors = lower.times(vectors),
        }
    }
}

fn sygvd(
    handle: Handle,
    kind: Type,
    [form, vectors, uplo]: [c_int; 3],
    [a, b]: [Result<Given, Status>; 2],
    [w, info]: [usize; 2],
) -> Result<(), Status> {
    let (form, vectors, fill) = (Form::new(form)?, has_vectors(vectors)?, fill(uplo)?);
    let problem = Problem { fill, vectors, a: a?, b: Some((form, b?)), w: kind.real().at(w) };
    queue(handle, move || set_i32(info, 0, problem.solve(Range::All)?.info))
}

exported! {
    /// All eigenvalues, and eigenvectors.
    pub extern "C" fn(kind) [
        cusolverDnSsygvd(Type::F32), cusolverDnDsygvd(Type::F64), cusolverDnChegvd(Type::C32), cusolverDnZhegvd(Type::C64),
    ]
    (
        handle: Handle, form: c_int, jobz: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, b: usize, ldb: c_int, w: usize,
        _work: usize, _size: c_int, info: usize,
    ) -> Status {
        let pair = [Given::new(kind, a, [n, n, lda]), Given::new(kind, b, [n, n, ldb])];
        status(sygvd(handle, kind, [form, jobz, uplo], pair, [w, info]))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSsygvd_bufferSize, cusolverDnDsygvd_bufferSize, cusolverDnChegvd_bufferSize, cusolverDnZhegvd_bufferSize,
    ]
    (
        handle: Handle, _form: c_int, _jobz: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _b: usize, _ldb: c_int,
        _w: usize, size: *mut c_int,
    ) -> Status {
        workspace(handle, size)
    }

    /// The same by Jacobi's method, which all of them use here.
    pub extern "C" fn(kind) [
        cusolverDnSsygvj(Type::F32), cusolverDnDsygvj(Type::F64), cusolverDnChegvj(Type::C32), cusolverDnZhegvj(Type::C64),
    ]
    (
        handle: Handle, form: c_int, jobz: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, b: usize, ldb: c_int, w: usize,
        _work: usize, _size: c_int, info: usize, _params: Handle,
    ) -> Status {
        let pair = [Given::new(kind, a, [n, n, lda]), Given::new(kind, b, [n, n, ldb])];
        status(sygvd(handle, kind, [form, jobz, uplo], pair, [w, info]))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSsygvj_bufferSize, cusolverDnDsygvj_bufferSize, cusolverDnChegvj_bufferSize, cusolverDnZhegvj_bufferSize,
    ]
    (
        handle: Handle, _form: c_int, _jobz: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _b: usize, _ldb: c_int,
        _w: usize, size: *mut c_int, _params: Handle,
    ) -> Status {
        workspace(handle, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapack::qr::tests::{distance, random};
    use crate::lapack::{cholesky, eigen};
    use crate::numbers::C64;

    #[test]
    fn vectors_solve_each_form() {
        let (half, root) = (random(6, 6, 21), random(6, 6, 22));
        let a = Dense::from(6, 6, |row, column| half[(row, column)] + half[(column, row)].conj());
        let mut b = root.times(&root.adjoint());
        (0..6).for_each(|at| b[(at, at)] += 1.0);
        let lower = cholesky::factor(&b).expect("positive");
        for form in [Form::One, Form::Two, Form::Three] {
            let (values, mut x, converged) = eigen::hermitian(&form.reduce(a.clone(), &lower));
            assert!(converged);
            form.restore(&mut x, &lower);
            let scaled = |matrix: &Dense| {
                Dense::from(6, 6, |row, column| C64::new(values[column], 0.0) * matrix[(row, column)])
            };
            let (left, right) = match form {
                Form::One => (a.times(&x), scaled(&b.times(&x))),
                Form::Two => (a.times(&b).times(&x), scaled(&x)),
                Form::Three => (b.times(&a).times(&x), scaled(&x)),
            };
            assert!(distance(&left, &right) < 1e-10, "{form:?}");
        }
    }
}
