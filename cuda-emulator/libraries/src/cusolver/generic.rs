// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The 64-bit API (section 2.4.4), whose functions take the types of elements as arguments, and its first form without host
//! memory, which is deprecated.

use std::ffi::{c_char, c_int};

use super::decompose::{Svd, Wanted, gesvd, has_vectors, syevd};
use super::factor::{geqrf, getrf, getrs, potrf, potrs};
use super::general::geev;
use super::given::{Given, fill};
use super::handle::{check_params, queue};
use super::range::{Problem, Range, solve};
use super::{INVALID_VALUE, Status, WORKSPACE, size, status};
use crate::cublas::operation::{Fill, is_unit, solve as solve_triangle};
use crate::handles::Handle;
use crate::memory::{Dense, set_i32};
use crate::numbers::Type;

/// The type of a matrix's elements (`cudaDataType`).
pub fn element(number: c_int) -> Result<Type, Status> {
    let kind = Type::new(number).ok_or(INVALID_VALUE)?;
    if matches!(kind, Type::F32 | Type::F64 | Type::C32 | Type::C64) { Ok(kind) } else { Err(INVALID_VALUE) }
}

/// A type that has to be a certain one.
pub fn same(number: c_int, kind: Type) -> Result<Type, Status> {
    if element(number)? == kind { Ok(kind) } else { Err(INVALID_VALUE) }
}

/// A matrix of an argument list with its type.
pub fn matrix(kind: c_int, base: usize, sizes: [i64; 3]) -> Result<Given, Status> {
    Given::new(element(kind)?, base, sizes)
}

/// A matrix whose singular values, U and V have these types.
fn decomposed(kind: c_int, base: usize, sizes: [i64; 3], [s, u, v]: [c_int; 3]) -> Result<Given, Status> {
    let a = matrix(kind, base, sizes)?;
    same(s, a.kind.real())?;
    same(u, a.kind)?;
    same(v, a.kind)?;
    Ok(a)
}

/// The workspace in bytes, on the device and on the host.
fn workspaces(handle: Handle, places: &[*mut usize]) -> Status {
    for place in places {
        // SAFETY: the caller gives a place for a size, or null.
        let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
        *place = WORKSPACE as usize;
    }
    status(super::handle::stream(handle).map(drop))
}

/// The end of an interval, in the host's memory.
///
/// # Safety
///
/// `place` is null, or has a number of that type.
unsafe fn limit(place: usize, kind: Type) -> f64 {
    // SAFETY: there is a number of that type by this function's contract.
    if place == 0 { 0.0 } else { unsafe { kind.read(place) }.re }
}

/// The inverse of a triangular matrix in its triangle.
fn trtri(
    handle: Handle,
    [uplo, diagonal]: [c_int; 2],
    a: Result<Given, Status>,
    info: usize,
) -> Result<(), Status> {
    let (fill, unit, a) = (fill(uplo)?, is_unit(diagonal).map_err(|_| INVALID_VALUE)?, a?);
    queue(handle, move || {
        let matrix = a.open()?;
        let triangle = fill.triangle(matrix, unit);
        let zero = (0..a.rows).position(|at| triangle[(at, at)].norm_sqr() == 0.0);
        if zero.is_none() {
            let mut inverse = Dense::identity(a.rows, a.rows);
            solve_triangle(&triangle, fill == Fill::Lower, &mut inverse);
            for column in 0..a.columns {
                for row in (0..a.rows).filter(|row| fill.has(*row, column) && !(unit && *row == column)) {
                    matrix.set(row, column, inverse[(row, column)]);
                }
            }
        }
        set_i32(info, 0, zero.map_or(0, |at| at as i32 + 1))
    })
}

/// Writes a function, the one that returns its workspace, and both in their first form if they have one. The functions differ in
/// their last arguments, and in those between semicolons. It cannot be a function: each name is a symbol with parameters of its
/// own.
macro_rules! generic {
    ($($(#[$doc:meta])* $name:ident $name_size:ident $([$old:ident $old_size:ident])? |$handle:ident, $info:ident|
       $arguments:tt $body:expr;)*) => { $(
        generic! { @one $(#[$doc])* $name $name_size ($handle $info) [_device _on_device _host _on_host] [on_device on_host]
                   $arguments $body }
        $(
            generic! { @one /** Its first form. */ $old $old_size ($handle $info) [_buffer _bytes] [bytes] $arguments $body }
        )?
    )* };
    (@one $(#[$doc:meta])* $name:ident $name_size:ident ($handle:ident $info:ident) [$($buffer:ident)*] [$($place:ident)*]
     ($($argument:ident: $type:ty),* $(; $($only:ident: $of_only:ty),*; $($after:ident: $of_after:ty),*)?) $body:expr) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $handle: Handle, params: Handle, $($argument: $type,)* $($($only: $of_only,)* $($after: $of_after,)*)?
            $($buffer: usize,)* $info: usize,
        ) -> Status {
            let run = || {
                check_params(params)?;
                $body
            };
            status(run())
        }

        /// Its workspace.
        #[unsafe(no_mangle)]
        #[allow(unused_variables)]
        pub extern "C" fn $name_size(
            handle: Handle, _params: Handle, $($argument: $type,)* $($($after: $of_after,)*)? $($place: *mut usize,)*
        ) -> Status {
            workspaces(handle, &[$($place),*])
        }
    };
}

generic! {
    /// A = L L.
    cusolverDnXpotrf cusolverDnXpotrf_bufferSize [cusolverDnPotrf cusolverDnPotrf_bufferSize] |handle, info|
    (uplo: c_int, n: i64, kind: c_int, a: usize, lda: i64, _compute: c_int)
        potrf(handle, uplo, matrix(kind, a, [n, n, lda]), info);

    /// A = Q R.
    cusolverDnXgeqrf cusolverDnXgeqrf_bufferSize [cusolverDnGeqrf cusolverDnGeqrf_bufferSize] |handle, info|
    (m: i64, n: i64, kind: c_int, a: usize, lda: i64, of_tau: c_int, tau: usize, _compute: c_int) {
        same(of_tau, element(kind)?)?;
        geqrf(handle, matrix(kind, a, [m, n, lda]), tau, info)
    };

    /// P A = L U.
    cusolverDnXgetrf cusolverDnXgetrf_bufferSize [cusolverDnGetrf cusolverDnGetrf_bufferSize] |handle, info|
    (m: i64, n: i64, kind: c_int, a: usize, lda: i64; pivots: usize; _compute: c_int)
        getrf(handle, matrix(kind, a, [m, n, lda]), Type::I64.at(pivots), info);

    /// Eigenvalues, and eigenvectors.
    cusolverDnXsyevd cusolverDnXsyevd_bufferSize [cusolverDnSyevd cusolverDnSyevd_bufferSize] |handle, info|
    (jobz: c_int, uplo: c_int, n: i64, kind: c_int, a: usize, lda: i64, of_w: c_int, w: usize, _compute: c_int) {
        let of_w = same(of_w, element(kind)?.real())?;
        syevd(handle, [jobz, uplo], matrix(kind, a, [n, n, lda]), of_w.at(w), 1, info)
    };

    /// Some eigenvalues, and eigenvectors.
    cusolverDnXsyevdx cusolverDnXsyevdx_bufferSize [cusolverDnSyevdx cusolverDnSyevdx_bufferSize] |handle, info|
    (jobz: c_int, range: c_int, uplo: c_int, n: i64, kind: c_int, a: usize, lda: i64, vl: usize, vu: usize, il: i64,
     iu: i64, found: *mut i64, of_w: c_int, w: usize, _compute: c_int) {
        let (a, real) = (matrix(kind, a, [n, n, lda])?, same(of_w, element(kind)?.real())?);
        // SAFETY: the caller gives numbers of the eigenvalues' type, or null.
        let limits = unsafe { [limit(vl, real), limit(vu, real)] };
        let range = Range::new(range, a.rows, limits, [il, iu])?;
        let problem = Problem { fill: fill(uplo)?, vectors: has_vectors(jobz)?, a, b: None, w: real.at(w) };
        // SAFETY: the caller gives a place for a number, or null.
        unsafe { solve(handle, problem, range, found, info) }
    };

    /// Eigenvalues of any square matrix, and right eigenvectors.
    cusolverDnXgeev cusolverDnXgeev_bufferSize |handle, info|
    (left: c_int, right: c_int, n: i64, kind: c_int, a: usize, lda: i64, of_w: c_int, w: usize, _of_vl: c_int,
     _vl: usize, _ldvl: i64, of_vr: c_int, vr: usize, ldvr: i64, _compute: c_int) {
        let (a, of_w) = (matrix(kind, a, [n, n, lda])?, element(of_w)?);
        // As NVIDIA's.
        if has_vectors(left)? {
            return Err(INVALID_VALUE);
        }
        let vectors = match has_vectors(right)? {
            true => Some(Given::new(same(of_vr, a.kind)?, vr, [n, n, ldvr])?),
            false => None,
        };
        geev(handle, a, of_w.at(w), vectors, info)
    };

    /// A = U S V, of which V is stored transposed.
    cusolverDnXgesvd cusolverDnXgesvd_bufferSize [cusolverDnGesvd cusolverDnGesvd_bufferSize] |handle, info|
    (jobu: c_char, jobv: c_char, m: i64, n: i64, kind: c_int, a: usize, lda: i64, of_s: c_int, s: usize, of_u: c_int,
     u: usize, ldu: i64, of_v: c_int, v: usize, ldv: i64, _compute: c_int) {
        let a = decomposed(kind, a, [m, n, lda], [of_s, of_u, of_v])?;
        // As NVIDIA's.
        if m < n {
            return Err(INVALID_VALUE);
        }
        let wanted = [Wanted::new(jobu)?, Wanted::new(jobv)?];
        gesvd(handle, Svd::new(Ok(a), wanted, s, [u, v], [ldu, ldv], true), info)
    };

    /// The largest singular values, and their vectors; V is not transposed. The random numbers of NVIDIA's are not needed.
    cusolverDnXgesvdr cusolverDnXgesvdr_bufferSize |handle, info|
    (jobu: c_char, jobv: c_char, m: i64, n: i64, k: i64, _oversampling: i64, _iterations: i64, kind: c_int, a: usize,
     lda: i64, of_s: c_int, s: usize, of_u: c_int, u: usize, ldu: i64, of_v: c_int, v: usize, ldv: i64, _compute: c_int) {
        let a = decomposed(kind, a, [m, n, lda], [of_s, of_u, of_v])?;
        let wanted = [Wanted::new(jobu)?, Wanted::new(jobv)?];
        let mut svd = Svd::new(Ok(a), wanted, s, [u, v], [ldu, ldv], false)?;
        let rank = size(k)?;
        if rank > svd.rank || wanted.iter().any(|part| !matches!(part, Wanted::Thin | Wanted::Nothing)) {
            return Err(INVALID_VALUE);
        }
        svd.rank = rank;
        gesvd(handle, Ok(svd), info)
    };
}

/// Solves A X = B with Cholesky's factor.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnXpotrs(
    handle: Handle,
    params: Handle,
    uplo: c_int,
    n: i64,
    columns: i64,
    of_a: c_int,
    a: usize,
    lda: i64,
    of_b: c_int,
    b: usize,
    ldb: i64,
    info: usize,
) -> Status {
    let solve = || {
        check_params(params)?;
        same(of_b, element(of_a)?)?;
        potrs(handle, uplo, matrix(of_a, a, [n, n, lda]), matrix(of_b, b, [n, columns, ldb]), info)
    };
    status(solve())
}

/// Solves op(A) X = B with the factors L and U.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnXgetrs(
    handle: Handle,
    params: Handle,
    trans: c_int,
    n: i64,
    columns: i64,
    of_a: c_int,
    a: usize,
    lda: i64,
    pivots: usize,
    of_b: c_int,
    b: usize,
    ldb: i64,
    info: usize,
) -> Status {
    let solve = || {
        check_params(params)?;
        same(of_b, element(of_a)?)?;
        let (a, b) = (matrix(of_a, a, [n, n, lda]), matrix(of_b, b, [n, columns, ldb]));
        getrs(handle, trans, a, b, Type::I64.at(pivots), info)
    };
    status(solve())
}

/// The first form of [`cusolverDnXpotrs`].
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnPotrs(
    handle: Handle,
    params: Handle,
    uplo: c_int,
    n: i64,
    columns: i64,
    of_a: c_int,
    a: usize,
    lda: i64,
    of_b: c_int,
    b: usize,
    ldb: i64,
    info: usize,
) -> Status {
    cusolverDnXpotrs(handle, params, uplo, n, columns, of_a, a, lda, of_b, b, ldb, info)
}

/// The first form of [`cusolverDnXgetrs`].
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnGetrs(
    handle: Handle,
    params: Handle,
    trans: c_int,
    n: i64,
    columns: i64,
    of_a: c_int,
    a: usize,
    lda: i64,
    pivots: usize,
    of_b: c_int,
    b: usize,
    ldb: i64,
    info: usize,
) -> Status {
    cusolverDnXgetrs(handle, params, trans, n, columns, of_a, a, lda, pivots, of_b, b, ldb, info)
}

/// Eigenvalues of many matrices, and eigenvectors.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnXsyevBatched(
    handle: Handle,
    params: Handle,
    jobz: c_int,
    uplo: c_int,
    n: i64,
    kind: c_int,
    a: usize,
    lda: i64,
    of_w: c_int,
    w: usize,
    _compute: c_int,
    _device: usize,
    _on_device: usize,
    _host: usize,
    _on_host: usize,
    info: usize,
    count: i64,
) -> Status {
    let compute = || {
        check_params(params)?;
        let of_w = same(of_w, element(kind)?.real())?;
        syevd(handle, [jobz, uplo], matrix(kind, a, [n, n, lda]), of_w.at(w), size(count)?, info)
    };
    status(compute())
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnXsyevBatched_bufferSize(
    handle: Handle,
    _params: Handle,
    _jobz: c_int,
    _uplo: c_int,
    _n: i64,
    _kind: c_int,
    _a: usize,
    _lda: i64,
    _of_w: c_int,
    _w: usize,
    _compute: c_int,
    on_device: *mut usize,
    on_host: *mut usize,
    _count: i64,
) -> Status {
    workspaces(handle, &[on_device, on_host])
}

/// A = U S V by polar decomposition on a GPU; V is not transposed. The error that is left is 0: no small singular values are
/// replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverDnXgesvdp(
    handle: Handle,
    params: Handle,
    jobz: c_int,
    econ: c_int,
    m: i64,
    n: i64,
    kind: c_int,
    a: usize,
    lda: i64,
    of_s: c_int,
    s: usize,
    of_u: c_int,
    u: usize,
    ldu: i64,
    of_v: c_int,
    v: usize,
    ldv: i64,
    _compute: c_int,
    _device: usize,
    _on_device: usize,
    _host: usize,
    _on_host: usize,
    info: usize,
    error: *mut f64,
) -> Status {
    let compute = || {
        check_params(params)?;
        let a = decomposed(kind, a, [m, n, lda], [of_s, of_u, of_v])?;
        let wanted = [Wanted::of_mode(jobz, econ)?; 2];
        gesvd(handle, Svd::new(Ok(a), wanted, s, [u, v], [ldu, ldv], false), info)
    };
    let result = status(compute());
    // SAFETY: the caller gives a place for a number, or null.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = 0.0;
    }
    result
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnXgesvdp_bufferSize(
    handle: Handle,
    _params: Handle,
    _jobz: c_int,
    _econ: c_int,
    _m: i64,
    _n: i64,
    _kind: c_int,
    _a: usize,
    _lda: i64,
    _of_s: c_int,
    _s: usize,
    _of_u: c_int,
    _u: usize,
    _ldu: i64,
    _of_v: c_int,
    _v: usize,
    _ldv: i64,
    _compute: c_int,
    on_device: *mut usize,
    on_host: *mut usize,
) -> Status {
    workspaces(handle, &[on_device, on_host])
}

/// The inverse of a triangular matrix.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnXtrtri(
    handle: Handle,
    uplo: c_int,
    diag: c_int,
    n: i64,
    kind: c_int,
    a: usize,
    lda: i64,
    _device: usize,
    _on_device: usize,
    _host: usize,
    _on_host: usize,
    info: usize,
) -> Status {
    status(trtri(handle, [uplo, diag], matrix(kind, a, [n, n, lda]), info))
}

/// Its workspace.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnXtrtri_bufferSize(
    handle: Handle,
    _uplo: c_int,
    _diag: c_int,
    _n: i64,
    _kind: c_int,
    _a: usize,
    _lda: i64,
    on_device: *mut usize,
    on_host: *mut usize,
) -> Status {
    workspaces(handle, &[on_device, on_host])
}
