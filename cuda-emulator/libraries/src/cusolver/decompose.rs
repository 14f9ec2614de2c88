// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Eigenvalues and singular values (section 2.4.3).

use std::ffi::{c_char, c_int};

use super::handle::queue;
use super::{INVALID_VALUE, Status, size, status, workspace};
use crate::cublas::operation::Fill;
use crate::handles::Handle;
use crate::lapack::{eigen, svd};
use crate::memory::{Array, Dense, Matrix, set_i32};
use crate::numbers::Type;

/// Eigenvalues in ascending order; with `vectors` eigenvectors replace A.
fn syevd(
    handle: Handle,
    kind: Type,
    [vectors, uplo, n, lda]: [c_int; 4],
    [a, w, info]: [usize; 3],
) -> Result<(), Status> {
    let fill = Fill::new(uplo).map_err(|_| INVALID_VALUE)?;
    let (n, lda) = (size(n)?, size(lda)?);
    if lda < n.max(1) || !(0..=1).contains(&vectors) {
        return Err(INVALID_VALUE);
    }
    queue(handle, move || {
        let matrix = Matrix::new(kind, a, n, n, lda)?;
        let values = Array::new(kind.real(), w, n)?;
        let (found, basis, converged) = eigen::hermitian(&fill.symmetric(matrix, true));
        found.iter().enumerate().for_each(|(at, value)| values.set_real(at, *value));
        if vectors == 1 {
            matrix.store(&basis);
        }
        set_i32(info, 0, i32::from(!converged))
    })
}

/// The part of U or V that a program requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    Thin,
    /// In A.
    Overwrite,
    Nothing,
}

impl Wanted {
    fn new(letter: c_char) -> Result<Self, Status> {
        match letter as u8 {
            b'A' => Ok(Self::All),
            b'S' => Ok(Self::Thin),
            b'O' => Ok(Self::Overwrite),
            b'N' => Ok(Self::Nothing),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// The addresses of U, S and V.
#[derive(Clone, Copy)]
struct Places {
    a: (usize, usize),
    s: usize,
    u: (usize, usize),
    v: (usize, usize),
    info: usize,
}

fn gesvd(
    handle: Handle,
    kind: Type,
    [of_u, of_v]: [Wanted; 2],
    [m, n]: [c_int; 2],
    places: Places,
    is_adjoint: bool,
) -> Result<(), Status> {
    let (m, n) = (size(m)?, size(n)?);
    let smaller = m.min(n);
    if places.a.1 < m.max(1) || (of_u == Wanted::Overwrite && of_v == Wanted::Overwrite) {
        return Err(INVALID_VALUE);
    }
    queue(handle, move || {
        let matrix = Matrix::new(kind, places.a.0, m, n, places.a.1)?;
        let values = Array::new(kind.real(), places.s, smaller)?;
        let found = svd::decompose(&matrix.load());
        found.values.iter().enumerate().for_each(|(at, value)| values.set_real(at, *value));
        let count = |wanted, all| if wanted == Wanted::All { all } else { smaller };
        let u = Dense::from(m, count(of_u, m), |row, column| found.u[(row, column)]);
        let v = Dense::from(n, count(of_v, n), |row, column| found.v[(row, column)]);
        let v = if is_adjoint { v.adjoint() } else { v };
        for (wanted, values, place) in [(of_u, u, places.u), (of_v, v, places.v)] {
            match wanted {
                Wanted::Nothing => {}
                Wanted::Overwrite => matrix.store(&values),
                _ => Matrix::new(kind, place.0, values.rows, values.columns, place.1)?.store(&values),
            }
        }
        set_i32(places.info, 0, i32::from(!found.converged))
    })
}

macro_rules! decompositions {
    ($($kind:ident $syevd:ident $syevd_size:ident $syevj:ident $syevj_size:ident $gesvd:ident $gesvd_size:ident $gesvdj:ident
       $gesvdj_size:ident;)*) => { $(
        /// Eigenvalues, and eigenvectors.
        #[unsafe(no_mangle)]
        pub extern "C" fn $syevd(
            handle: Handle, jobz: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, w: usize, _work: usize, _size: c_int,
            info: usize,
        ) -> Status {
            status(syevd(handle, Type::$kind, [jobz, uplo, n, lda], [a, w, info]))
        }

        /// Its workspace.
        #[unsafe(no_mangle)]
        pub extern "C" fn $syevd_size(
            handle: Handle, _jobz: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _w: usize, size: *mut c_int,
        ) -> Status {
            workspace(handle, size)
        }

        /// The same by Jacobi's method, which all of them use here.
        #[unsafe(no_mangle)]
        pub extern "C" fn $syevj(
            handle: Handle, jobz: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, w: usize, _work: usize, _size: c_int,
            info: usize, _params: Handle,
        ) -> Status {
            status(syevd(handle, Type::$kind, [jobz, uplo, n, lda], [a, w, info]))
        }

        /// Its workspace.
        #[unsafe(no_mangle)]
        pub extern "C" fn $syevj_size(
            handle: Handle, _jobz: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _w: usize, size: *mut c_int,
            _params: Handle,
        ) -> Status {
            workspace(handle, size)
        }

        /// A = U S V, of which V is stored transposed.
        #[unsafe(no_mangle)]
        pub extern "C" fn $gesvd(
            handle: Handle, jobu: c_char, jobv: c_char, m: c_int, n: c_int, a: usize, lda: c_int, s: usize, u: usize,
            ldu: c_int, v: usize, ldv: c_int, _work: usize, _size: c_int, _rwork: usize, info: usize,
        ) -> Status {
            let decompose = || {
                let places = Places { a: (a, size(lda)?), s, u: (u, size(ldu)?), v: (v, size(ldv)?), info };
                let wanted = [Wanted::new(jobu)?, Wanted::new(jobv)?];
                // As NVIDIA's.
                if m < n {
                    return Err(INVALID_VALUE);
                }
                gesvd(handle, Type::$kind, wanted, [m, n], places, true)
            };
            status(decompose())
        }

        /// Its workspace.
        #[unsafe(no_mangle)]
        pub extern "C" fn $gesvd_size(handle: Handle, _m: c_int, _n: c_int, size: *mut c_int) -> Status {
            workspace(handle, size)
        }

        /// A = U S V by Jacobi's method; V is not transposed.
        #[unsafe(no_mangle)]
        pub extern "C" fn $gesvdj(
            handle: Handle, jobz: c_int, econ: c_int, m: c_int, n: c_int, a: usize, lda: c_int, s: usize, u: usize,
            ldu: c_int, v: usize, ldv: c_int, _work: usize, _size: c_int, info: usize, _params: Handle,
        ) -> Status {
            let decompose = || {
                let places = Places { a: (a, size(lda)?), s, u: (u, size(ldu)?), v: (v, size(ldv)?), info };
                let wanted = match (jobz, econ) {
                    (0, _) => Wanted::Nothing,
                    (1, 0) => Wanted::All,
                    (1, _) => Wanted::Thin,
                    _ => return Err(INVALID_VALUE),
                };
                gesvd(handle, Type::$kind, [wanted, wanted], [m, n], places, false)
            };
            status(decompose())
        }

        /// Its workspace.
        #[unsafe(no_mangle)]
        pub extern "C" fn $gesvdj_size(
            handle: Handle, _jobz: c_int, _econ: c_int, _m: c_int, _n: c_int, _a: usize, _lda: c_int, _s: usize, _u: usize,
            _ldu: c_int, _v: usize, _ldv: c_int, size: *mut c_int, _params: Handle,
        ) -> Status {
            workspace(handle, size)
        }
    )* };
}

decompositions! {
    F32 cusolverDnSsyevd cusolverDnSsyevd_bufferSize cusolverDnSsyevj cusolverDnSsyevj_bufferSize cusolverDnSgesvd
        cusolverDnSgesvd_bufferSize cusolverDnSgesvdj cusolverDnSgesvdj_bufferSize;
    F64 cusolverDnDsyevd cusolverDnDsyevd_bufferSize cusolverDnDsyevj cusolverDnDsyevj_bufferSize cusolverDnDgesvd
        cusolverDnDgesvd_bufferSize cusolverDnDgesvdj cusolverDnDgesvdj_bufferSize;
    C32 cusolverDnCheevd cusolverDnCheevd_bufferSize cusolverDnCheevj cusolverDnCheevj_bufferSize cusolverDnCgesvd
        cusolverDnCgesvd_bufferSize cusolverDnCgesvdj cusolverDnCgesvdj_bufferSize;
    C64 cusolverDnZheevd cusolverDnZheevd_bufferSize cusolverDnZheevj cusolverDnZheevj_bufferSize cusolverDnZgesvd
        cusolverDnZgesvd_bufferSize cusolverDnZgesvdj cusolverDnZgesvdj_bufferSize;
}
