// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Eigenvalues and singular values (section 2.4.3).

use std::ffi::{c_char, c_int};

use super::given::{Given, fill};
use super::handle::queue;
use super::range::{Problem, Range};
use super::{INVALID_VALUE, Status, size, status, workspace};
use crate::exported::exported;
use crate::handles::Handle;
use crate::lapack::svd;
use crate::memory::{Array, Matrix, moved, set_i32};
use crate::numbers::{Type, TypedAddress};
use crate::stream::Fault;

/// The eigenvalues of `count` matrices in ascending order; if the program requests them, eigenvectors replace A.
pub fn syevd(
    handle: Handle,
    [vectors, uplo]: [c_int; 2],
    a: Result<Given, Status>,
    w: TypedAddress,
    count: usize,
    info: usize,
) -> Result<(), Status> {
    let (vectors, fill, a) = (has_vectors(vectors)?, fill(uplo)?, a?);
    queue(handle, move || {
        for index in 0..count {
            let TypedAddress { kind, address } = w;
            let w = kind.at(moved(address, a.rows.wrapping_mul(index) as i64, kind));
            let problem = Problem { fill, vectors, a: a.of_batch(index), b: None, w };
            set_i32(info, index, problem.solve(Range::All)?.info)?;
        }
        Ok(())
    })
}

/// The program requests eigenvectors (`cusolverEigMode_t`).
pub fn has_vectors(mode: c_int) -> Result<bool, Status> {
    match mode {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(INVALID_VALUE),
    }
}

/// The part of U or V that a program requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    All,
    Thin,
    /// In A.
    Overwrite,
    Nothing,
}

impl Wanted {
    /// Parses the letter of LAPACK's `gesvd`.
    pub fn new(letter: c_char) -> Result<Self, Status> {
        match letter as u8 {
            b'A' => Ok(Self::All),
            b'S' => Ok(Self::Thin),
            b'O' => Ok(Self::Overwrite),
            b'N' => Ok(Self::Nothing),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Parses the arguments `jobz` and `econ` of Jacobi's functions.
    pub fn of_mode(mode: c_int, econ: c_int) -> Result<Self, Status> {
        match (has_vectors(mode)?, econ) {
            (false, _) => Ok(Self::Nothing),
            (true, 0) => Ok(Self::All),
            (true, _) => Ok(Self::Thin),
        }
    }
}

/// The place of a matrix whose shape is known: the address of its first column, and the elements from one column to the next.
#[derive(Clone, Copy)]
pub struct Columns {
    pub address: usize,
    pub leading: usize,
}

/// A singular value decomposition of an argument list.
#[derive(Clone, Copy)]
pub struct Svd {
    pub a: Given,
    /// The parts of U and V.
    pub wanted: [Wanted; 2],
    /// The number of singular values, of which the largest are stored, and of columns of a thin U or V.
    pub rank: usize,
    pub s: usize,
    pub u: Columns,
    pub v: Columns,
    /// V is stored transposed and conjugated.
    pub is_adjoint: bool,
}

impl Svd {
    /// All singular values of a matrix. U and V are given by their addresses and leading dimensions.
    pub fn new<T: TryInto<usize>>(
        a: Result<Given, Status>,
        wanted: [Wanted; 2],
        s: usize,
        [u, v]: [usize; 2],
        [of_u, of_v]: [T; 2],
        is_adjoint: bool,
    ) -> Result<Self, Status> {
        let a = a?;
        if wanted == [Wanted::Overwrite; 2] {
            return Err(INVALID_VALUE);
        }
        let u = Columns { address: u, leading: size(of_u)? };
        let v = Columns { address: v, leading: size(of_v)? };
        Ok(Self { a, wanted, rank: a.rows.min(a.columns), s, u, v, is_adjoint })
    }

    /// Decomposes the matrix, and stores the parts that the program requests. Returns the value for `info`, and the
    /// norm of the singular values that are not stored.
    pub fn run(&self) -> Result<(i32, f64), Fault> {
        let Given { kind, rows, columns, .. } = self.a;
        let matrix = self.a.open()?;
        let values = Array::new(kind.real(), self.s, self.rank)?;
        let count = |wanted, all| match wanted {
            Wanted::All => all,
            Wanted::Thin | Wanted::Overwrite => self.rank,
            Wanted::Nothing => 0,
        };
        let [of_u, of_v] = self.wanted;
        let found = svd::decompose(&matrix.load(), [count(of_u, rows), count(of_v, columns)]);
        let (stored, rest) = found.values.split_at(self.rank);
        stored.iter().enumerate().for_each(|(at, value)| values.set_real(at, *value));
        let v = if self.is_adjoint { found.v.adjoint() } else { found.v };
        for (wanted, values, place) in [(of_u, found.u, self.u), (of_v, v, self.v)] {
            match wanted {
                Wanted::Nothing => {}
                Wanted::Overwrite => matrix.store(&values),
                _ => Matrix::new(kind, place.address, values.rows, values.columns, place.leading)?
                    .store(&values),
            }
        }
        Ok((i32::from(!found.converged), rest.iter().map(|value| value * value).sum::<f64>().sqrt()))
    }
}

/// Queues one decomposition.
pub fn gesvd(handle: Handle, svd: Result<Svd, Status>, info: usize) -> Result<(), Status> {
    let svd = svd?;
    queue(handle, move || set_i32(info, 0, svd.run()?.0))
}

exported! {
    /// Eigenvalues, and eigenvectors.
    pub extern "C" fn(kind) [
        cusolverDnSsyevd(Type::F32), cusolverDnDsyevd(Type::F64), cusolverDnCheevd(Type::C32), cusolverDnZheevd(Type::C64),
    ]
    (
        handle: Handle, jobz: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, w: usize, _work: usize, _size: c_int,
        info: usize,
    ) -> Status {
        let a = Given::new(kind, a, [n, n, lda]);
        status(syevd(handle, [jobz, uplo], a, kind.real().at(w), 1, info))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSsyevd_bufferSize, cusolverDnDsyevd_bufferSize, cusolverDnCheevd_bufferSize, cusolverDnZheevd_bufferSize,
    ]
    (handle: Handle, _jobz: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _w: usize, size: *mut c_int) -> Status {
        workspace(handle, size)
    }

    /// The same by Jacobi's method, which all of them use here.
    pub extern "C" fn(kind) [
        cusolverDnSsyevj(Type::F32), cusolverDnDsyevj(Type::F64), cusolverDnCheevj(Type::C32), cusolverDnZheevj(Type::C64),
    ]
    (
        handle: Handle, jobz: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, w: usize, _work: usize, _size: c_int,
        info: usize, _params: Handle,
    ) -> Status {
        let a = Given::new(kind, a, [n, n, lda]);
        status(syevd(handle, [jobz, uplo], a, kind.real().at(w), 1, info))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSsyevj_bufferSize, cusolverDnDsyevj_bufferSize, cusolverDnCheevj_bufferSize, cusolverDnZheevj_bufferSize,
    ]
    (
        handle: Handle, _jobz: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _w: usize, size: *mut c_int,
        _params: Handle,
    ) -> Status {
        workspace(handle, size)
    }

    /// A = U S V, of which V is stored transposed.
    pub extern "C" fn(kind) [
        cusolverDnSgesvd(Type::F32), cusolverDnDgesvd(Type::F64), cusolverDnCgesvd(Type::C32), cusolverDnZgesvd(Type::C64),
    ]
    (
        handle: Handle, jobu: c_char, jobv: c_char, m: c_int, n: c_int, a: usize, lda: c_int, s: usize, u: usize, ldu: c_int,
        v: usize, ldv: c_int, _work: usize, _size: c_int, _rwork: usize, info: usize,
    ) -> Status {
        let decompose = || {
            // As NVIDIA's.
            if m < n {
                return Err(INVALID_VALUE);
            }
            let a = Given::new(kind, a, [m, n, lda]);
            let wanted = [Wanted::new(jobu)?, Wanted::new(jobv)?];
            gesvd(handle, Svd::new(a, wanted, s, [u, v], [ldu, ldv], true), info)
        };
        status(decompose())
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSgesvd_bufferSize, cusolverDnDgesvd_bufferSize, cusolverDnCgesvd_bufferSize, cusolverDnZgesvd_bufferSize,
    ]
    (handle: Handle, _m: c_int, _n: c_int, size: *mut c_int) -> Status {
        workspace(handle, size)
    }

    /// A = U S V by Jacobi's method; V is not transposed.
    pub extern "C" fn(kind) [
        cusolverDnSgesvdj(Type::F32), cusolverDnDgesvdj(Type::F64), cusolverDnCgesvdj(Type::C32), cusolverDnZgesvdj(Type::C64),
    ]
    (
        handle: Handle, jobz: c_int, econ: c_int, m: c_int, n: c_int, a: usize, lda: c_int, s: usize, u: usize, ldu: c_int,
        v: usize, ldv: c_int, _work: usize, _size: c_int, info: usize, _params: Handle,
    ) -> Status {
        let decompose = || {
            let a = Given::new(kind, a, [m, n, lda]);
            let wanted = [Wanted::of_mode(jobz, econ)?; 2];
            gesvd(handle, Svd::new(a, wanted, s, [u, v], [ldu, ldv], false), info)
        };
        status(decompose())
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSgesvdj_bufferSize, cusolverDnDgesvdj_bufferSize, cusolverDnCgesvdj_bufferSize, cusolverDnZgesvdj_bufferSize,
    ]
    (
        handle: Handle, _jobz: c_int, _econ: c_int, _m: c_int, _n: c_int, _a: usize, _lda: c_int, _s: usize, _u: usize,
        _ldu: c_int, _v: usize, _ldv: c_int, size: *mut c_int, _params: Handle,
    ) -> Status {
        workspace(handle, size)
    }
}
