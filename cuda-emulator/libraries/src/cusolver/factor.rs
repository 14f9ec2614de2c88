// SPDX-License-Identifier: Apache-2.0 OR MIT

//! LU, Cholesky and QR (section 2.4.2).

use std::ffi::c_int;

use super::given::{Given, fill, operation};
use super::handle::queue;
use super::{INVALID_VALUE, Status, size, status, workspace};
use crate::cublas::operation::{Fill, Operation, is_right, solve};
use crate::exported::exported;
use crate::handles::Handle;
use crate::lapack::{cholesky, lu, qr};
use crate::memory::{Array, Dense, Matrix, set_i32};
use crate::numbers::{Type, TypedAddress};
use crate::stream::{Done, Fault};

/// P A = L U; without a place for pivots no rows are exchanged.
pub fn getrf(
    handle: Handle,
    a: Result<Given, Status>,
    pivots: TypedAddress,
    info: usize,
) -> Result<(), Status> {
    let a = a?;
    queue(handle, move || {
        let matrix = a.open()?;
        let mut values = matrix.load();
        let (exchanged, zero) = lu::factor(&mut values, pivots.address != 0);
        matrix.store(&values);
        if pivots.address != 0 {
            let numbers = Array::open(pivots, exchanged.len())?;
            exchanged.iter().enumerate().for_each(|(row, other)| numbers.set_real(row, (other + 1) as f64));
        }
        set_i32(info, 0, zero as i32)
    })
}

/// Solves op(A) X = B with the factors of A.
pub fn getrs(
    handle: Handle,
    number: c_int,
    a: Result<Given, Status>,
    b: Result<Given, Status>,
    pivots: TypedAddress,
    info: usize,
) -> Result<(), Status> {
    let (operation, a, b) = (operation(number)?, a?, b?);
    queue(handle, move || {
        let exchanged: Vec<usize> = match pivots.address {
            0 => (0..a.rows).collect(),
            _ => {
                let numbers = Array::open(pivots, a.rows)?;
                let read =
                    |row| Some(numbers.real(row) as usize).filter(|number| (1..=a.rows).contains(number));
                (0..a.rows).map(|row| Ok(read(row).ok_or(Fault)? - 1)).collect::<Result<_, _>>()?
            }
        };
        let (factors, right) = (a.open()?.load(), b.open()?);
        let mut values = right.load();
        lu::solve_with(&factors, &exchanged, operation, &mut values);
        right.store(&values);
        set_i32(info, 0, 0)
    })
}

/// A = L Lᴴ, or Uᴴ U.
pub fn potrf(handle: Handle, number: c_int, a: Result<Given, Status>, info: usize) -> Result<(), Status> {
    let (fill, a) = (fill(number)?, a?);
    queue(handle, move || set_i32(info, 0, factor_cholesky(a.open()?, fill).err().unwrap_or(0)))
}

/// Replaces a triangle by Cholesky's factor, and returns L. Errors: the order of the first leading part that is not positive.
pub fn factor_cholesky(matrix: Matrix, fill: Fill) -> Result<Dense, i32> {
    let lower = cholesky::factor(&fill.symmetric(matrix, true)).map_err(|order| order as i32)?;
    if fill == Fill::Lower {
        store_triangle(matrix, &lower, fill);
    } else {
        store_triangle(matrix, &lower.adjoint(), fill);
    }
    Ok(lower)
}

fn store_triangle(matrix: Matrix, values: &Dense, fill: Fill) {
    for column in 0..matrix.columns {
        for row in (0..matrix.rows).filter(|row| fill.has(*row, column)) {
            matrix.set(row, column, values[(row, column)]);
        }
    }
}

/// Solves with Cholesky's factor of A, of which one triangle is stored.
pub fn solve_cholesky(matrix: Matrix, fill: Fill, right: &mut Dense) {
    let triangle = fill.triangle(matrix, false);
    let lower = if fill == Fill::Lower { triangle } else { triangle.adjoint() };
    solve(&lower, true, right);
    solve(&lower.adjoint(), false, right);
}

/// Solves A X = B with Cholesky's factor of A.
pub fn potrs(
    handle: Handle,
    number: c_int,
    a: Result<Given, Status>,
    b: Result<Given, Status>,
    info: usize,
) -> Result<(), Status> {
    let (fill, a, b) = (fill(number)?, a?, b?);
    queue(handle, move || {
        let right = b.open()?;
        let mut values = right.load();
        solve_cholesky(a.open()?, fill, &mut values);
        right.store(&values);
        set_i32(info, 0, 0)
    })
}

/// The inverse from Cholesky's factor.
fn potri(handle: Handle, number: c_int, a: Result<Given, Status>, info: usize) -> Result<(), Status> {
    let (fill, a) = (fill(number)?, a?);
    queue(handle, move || {
        let matrix = a.open()?;
        let mut inverse = Dense::identity(a.rows, a.rows);
        solve_cholesky(matrix, fill, &mut inverse);
        store_triangle(matrix, &inverse, fill);
        set_i32(info, 0, 0)
    })
}

/// A = Q R.
pub fn geqrf(handle: Handle, a: Result<Given, Status>, tau: usize, info: usize) -> Result<(), Status> {
    let a = a?;
    queue(handle, move || {
        let matrix = a.open()?;
        let factors = Array::new(a.kind, tau, a.rows.min(a.columns))?;
        let mut values = matrix.load();
        qr::factor(&mut values).into_iter().enumerate().for_each(|(step, tau)| factors.set(step, tau));
        matrix.store(&values);
        set_i32(info, 0, 0)
    })
}

fn load_tau(kind: Type, tau: usize, count: usize) -> Result<Vec<crate::numbers::C64>, Fault> {
    let array = Array::new(kind, tau, count)?;
    Ok((0..count).map(|step| array.get(step)).collect())
}

/// The first columns of Q.
fn orgqr(handle: Handle, a: Result<Given, Status>, k: c_int, tau: usize, info: usize) -> Result<(), Status> {
    let (a, k) = (a?, size(k)?);
    if k > a.columns || a.columns > a.rows {
        return Err(INVALID_VALUE);
    }
    queue(handle, move || {
        let matrix = a.open()?;
        let reflections = matrix.load();
        let mut q = Dense::identity(a.rows, a.columns);
        qr::apply(&reflections, &load_tau(a.kind, tau, k)?, false, &mut q);
        matrix.store(&q);
        set_i32(info, 0, 0)
    })
}

/// C = op(Q) C, or C op(Q).
fn ormqr(
    handle: Handle,
    [side, number, m, n, k, lda]: [c_int; 6],
    a: TypedAddress,
    c: Result<Given, Status>,
    tau: usize,
    info: usize,
) -> Result<(), Status> {
    let right = is_right(side).map_err(|_| INVALID_VALUE)?;
    let (operation, c, k) = (operation(number)?, c?, size(k)?);
    let order = if right { n } else { m };
    let kind = a.kind;
    let a = Given::new(kind, a.address, [order, k as c_int, lda])?;
    if k > a.rows {
        return Err(INVALID_VALUE);
    }
    queue(handle, move || -> Done {
        let (reflections, tau) = (a.open()?.load(), load_tau(kind, tau, k)?);
        let matrix = c.open()?;
        let is_adjoint = operation != Operation::None;
        if right {
            // (C Q)ᴴ = Qᴴ Cᴴ.
            let mut turned = matrix.load().adjoint();
            qr::apply(&reflections, &tau, !is_adjoint, &mut turned);
            matrix.store(&turned.adjoint());
        } else {
            let mut values = matrix.load();
            qr::apply(&reflections, &tau, is_adjoint, &mut values);
            matrix.store(&values);
        }
        set_i32(info, 0, 0)
    })
}

exported! {
    /// P A = L U.
    pub extern "C" fn(kind) [
        cusolverDnSgetrf(Type::F32), cusolverDnDgetrf(Type::F64), cusolverDnCgetrf(Type::C32), cusolverDnZgetrf(Type::C64),
    ]
    (handle: Handle, m: c_int, n: c_int, a: usize, lda: c_int, _work: usize, pivots: usize, info: usize) -> Status {
        status(getrf(handle, Given::new(kind, a, [m, n, lda]), Type::I32.at(pivots), info))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSgetrf_bufferSize, cusolverDnDgetrf_bufferSize, cusolverDnCgetrf_bufferSize, cusolverDnZgetrf_bufferSize,
    ]
    (handle: Handle, _m: c_int, _n: c_int, _a: usize, _lda: c_int, size: *mut c_int) -> Status {
        workspace(handle, size)
    }

    /// Solves op(A) X = B.
    pub extern "C" fn(kind) [
        cusolverDnSgetrs(Type::F32), cusolverDnDgetrs(Type::F64), cusolverDnCgetrs(Type::C32), cusolverDnZgetrs(Type::C64),
    ]
    (
        handle: Handle, trans: c_int, n: c_int, columns: c_int, a: usize, lda: c_int, pivots: usize, b: usize, ldb: c_int,
        info: usize,
    ) -> Status {
        let (a, b) = (Given::new(kind, a, [n, n, lda]), Given::new(kind, b, [n, columns, ldb]));
        status(getrs(handle, trans, a, b, Type::I32.at(pivots), info))
    }

    /// A = L L.
    pub extern "C" fn(kind) [
        cusolverDnSpotrf(Type::F32), cusolverDnDpotrf(Type::F64), cusolverDnCpotrf(Type::C32), cusolverDnZpotrf(Type::C64),
    ]
    (handle: Handle, uplo: c_int, n: c_int, a: usize, lda: c_int, _work: usize, _size: c_int, info: usize) -> Status {
        status(potrf(handle, uplo, Given::new(kind, a, [n, n, lda]), info))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSpotrf_bufferSize, cusolverDnDpotrf_bufferSize, cusolverDnCpotrf_bufferSize, cusolverDnZpotrf_bufferSize,
    ]
    (handle: Handle, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, size: *mut c_int) -> Status {
        workspace(handle, size)
    }

    /// Solves A X = B.
    pub extern "C" fn(kind) [
        cusolverDnSpotrs(Type::F32), cusolverDnDpotrs(Type::F64), cusolverDnCpotrs(Type::C32), cusolverDnZpotrs(Type::C64),
    ]
    (
        handle: Handle, uplo: c_int, n: c_int, columns: c_int, a: usize, lda: c_int, b: usize, ldb: c_int, info: usize,
    ) -> Status {
        let (a, b) = (Given::new(kind, a, [n, n, lda]), Given::new(kind, b, [n, columns, ldb]));
        status(potrs(handle, uplo, a, b, info))
    }

    /// The inverse.
    pub extern "C" fn(kind) [
        cusolverDnSpotri(Type::F32), cusolverDnDpotri(Type::F64), cusolverDnCpotri(Type::C32), cusolverDnZpotri(Type::C64),
    ]
    (handle: Handle, uplo: c_int, n: c_int, a: usize, lda: c_int, _work: usize, _size: c_int, info: usize) -> Status {
        status(potri(handle, uplo, Given::new(kind, a, [n, n, lda]), info))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSpotri_bufferSize, cusolverDnDpotri_bufferSize, cusolverDnCpotri_bufferSize, cusolverDnZpotri_bufferSize,
    ]
    (handle: Handle, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, size: *mut c_int) -> Status {
        workspace(handle, size)
    }

    /// A = Q R.
    pub extern "C" fn(kind) [
        cusolverDnSgeqrf(Type::F32), cusolverDnDgeqrf(Type::F64), cusolverDnCgeqrf(Type::C32), cusolverDnZgeqrf(Type::C64),
    ]
    (
        handle: Handle, m: c_int, n: c_int, a: usize, lda: c_int, tau: usize, _work: usize, _size: c_int, info: usize,
    ) -> Status {
        status(geqrf(handle, Given::new(kind, a, [m, n, lda]), tau, info))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSgeqrf_bufferSize, cusolverDnDgeqrf_bufferSize, cusolverDnCgeqrf_bufferSize, cusolverDnZgeqrf_bufferSize,
    ]
    (handle: Handle, _m: c_int, _n: c_int, _a: usize, _lda: c_int, size: *mut c_int) -> Status {
        workspace(handle, size)
    }

    /// Q.
    pub extern "C" fn(kind) [
        cusolverDnSorgqr(Type::F32), cusolverDnDorgqr(Type::F64), cusolverDnCungqr(Type::C32), cusolverDnZungqr(Type::C64),
    ]
    (
        handle: Handle, m: c_int, n: c_int, k: c_int, a: usize, lda: c_int, tau: usize, _work: usize, _size: c_int,
        info: usize,
    ) -> Status {
        status(orgqr(handle, Given::new(kind, a, [m, n, lda]), k, tau, info))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSorgqr_bufferSize, cusolverDnDorgqr_bufferSize, cusolverDnCungqr_bufferSize, cusolverDnZungqr_bufferSize,
    ]
    (handle: Handle, _m: c_int, _n: c_int, _k: c_int, _a: usize, _lda: c_int, _tau: usize, size: *mut c_int) -> Status {
        workspace(handle, size)
    }

    /// C = op(Q) C.
    pub extern "C" fn(kind) [
        cusolverDnSormqr(Type::F32), cusolverDnDormqr(Type::F64), cusolverDnCunmqr(Type::C32), cusolverDnZunmqr(Type::C64),
    ]
    (
        handle: Handle, side: c_int, trans: c_int, m: c_int, n: c_int, k: c_int, a: usize, lda: c_int, tau: usize, c: usize,
        ldc: c_int, _work: usize, _size: c_int, info: usize,
    ) -> Status {
        let c = Given::new(kind, c, [m, n, ldc]);
        status(ormqr(handle, [side, trans, m, n, k, lda], kind.at(a), c, tau, info))
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSormqr_bufferSize, cusolverDnDormqr_bufferSize, cusolverDnCunmqr_bufferSize, cusolverDnZunmqr_bufferSize,
    ]
    (
        handle: Handle, _side: c_int, _trans: c_int, _m: c_int, _n: c_int, _k: c_int, _a: usize, _lda: c_int, _tau: usize,
        _c: usize, _ldc: c_int, size: *mut c_int,
    ) -> Status {
        workspace(handle, size)
    }
}
