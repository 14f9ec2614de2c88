// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions for many matrices: at addresses in device memory, or at equal distances.

use std::ffi::c_int;

use super::decompose::{Columns, Svd, Wanted, has_vectors, syevd};
use super::factor::{factor_cholesky, solve_cholesky};
use super::given::{Given, fill};
use super::handle::{queue, queue_and_wait};
use super::{INVALID_VALUE, Status, size, status, workspace};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::{address_at, moved, set_i32};
use crate::numbers::Type;

/// Cholesky's factors.
fn potrf(
    handle: Handle,
    uplo: c_int,
    a: Result<Given, Status>,
    info: usize,
    count: c_int,
) -> Result<(), Status> {
    let (fill, a, count) = (fill(uplo)?, a?, size(count)?);
    queue(handle, move || {
        for index in 0..count {
            let matrix = a.at(address_at(a.base, index)?).open()?;
            set_i32(info, index, factor_cholesky(matrix, fill).err().unwrap_or(0))?;
        }
        Ok(())
    })
}

/// Solutions by Cholesky's factors. As NVIDIA's: one right side per matrix, and one `info` for all.
fn potrs(
    handle: Handle,
    uplo: c_int,
    [a, b]: [Result<Given, Status>; 2],
    info: usize,
    count: c_int,
) -> Result<(), Status> {
    let (fill, a, b, count) = (fill(uplo)?, a?, b?, size(count)?);
    if b.columns != 1 {
        return Err(INVALID_VALUE);
    }
    queue(handle, move || {
        for index in 0..count {
            let right = b.at(address_at(b.base, index)?).open()?;
            let mut values = right.load();
            solve_cholesky(a.at(address_at(a.base, index)?).open()?, fill, &mut values);
            right.store(&values);
        }
        set_i32(info, 0, 0)
    })
}

/// Decompositions whose U and V are square.
fn gesvdj(handle: Handle, svd: Result<Svd, Status>, info: usize, count: c_int) -> Result<(), Status> {
    let (svd, count) = (svd?, size(count)?);
    let far = |leading: usize, order: usize| leading.wrapping_mul(order) as i64;
    let (u, v) = (far(svd.u.leading, svd.a.rows), far(svd.v.leading, svd.a.columns));
    let distances = [far(svd.a.leading, svd.a.columns), svd.rank as i64, u, v];
    queue(handle, move || {
        for index in 0..count {
            set_i32(info, index, behind(&svd, distances, index).run()?.0)?;
        }
        Ok(())
    })
}

/// Decompositions that keep only the largest singular values. The norms of the remainders of the matrices are in host
/// memory.
///
/// # Safety
///
/// `norms` is null, or has a number per matrix.
#[expect(clippy::too_many_arguments, reason = "the arguments of a C function, in groups")]
unsafe fn gesvda(
    handle: Handle,
    svd: Result<Svd, Status>,
    rank: c_int,
    distances: [i64; 4],
    info: usize,
    norms: *mut f64,
    count: c_int,
) -> Result<(), Status> {
    let (mut svd, rank, count) = (svd?, size(rank)?, size(count)?);
    if rank > svd.rank {
        return Err(INVALID_VALUE);
    }
    svd.rank = rank;
    let work = move || {
        let mut left = Vec::new();
        for index in 0..count {
            let (failed, norm) = behind(&svd, distances, index).run()?;
            set_i32(info, index, failed)?;
            left.push(norm);
        }
        Ok(left)
    };
    if norms.is_null() {
        return queue(handle, move || work().map(drop));
    }
    for (index, norm) in queue_and_wait(handle, work)?.into_iter().enumerate() {
        // SAFETY: there is a number per matrix by this function's contract.
        unsafe { norms.add(index).write(norm) };
    }
    Ok(())
}

/// The decomposition of that index, by the distances of A, S, U and V in elements.
fn behind(svd: &Svd, [a, s, u, v]: [i64; 4], index: usize) -> Svd {
    let kind = svd.a.kind;
    let far = |base, distance: i64, kind| moved(base, distance.wrapping_mul(index as i64), kind);
    Svd {
        a: svd.a.at(far(svd.a.base, a, kind)),
        s: far(svd.s, s, kind.real()),
        u: Columns { address: far(svd.u.address, u, kind), ..svd.u },
        v: Columns { address: far(svd.v.address, v, kind), ..svd.v },
        ..*svd
    }
}

exported! {
    /// A = L L of each matrix.
    pub extern "C" fn(kind) [
        cusolverDnSpotrfBatched(Type::F32), cusolverDnDpotrfBatched(Type::F64), cusolverDnCpotrfBatched(Type::C32),
        cusolverDnZpotrfBatched(Type::C64),
    ]
    (handle: Handle, uplo: c_int, n: c_int, a: usize, lda: c_int, info: usize, count: c_int) -> Status {
        status(potrf(handle, uplo, Given::new(kind, a, [n, n, lda]), info, count))
    }

    /// Solves A X = B with each matrix.
    pub extern "C" fn(kind) [
        cusolverDnSpotrsBatched(Type::F32), cusolverDnDpotrsBatched(Type::F64), cusolverDnCpotrsBatched(Type::C32),
        cusolverDnZpotrsBatched(Type::C64),
    ]
    (
        handle: Handle, uplo: c_int, n: c_int, columns: c_int, a: usize, lda: c_int, b: usize, ldb: c_int, info: usize,
        count: c_int,
    ) -> Status {
        let (a, b) = (Given::new(kind, a, [n, n, lda]), Given::new(kind, b, [n, columns, ldb]));
        status(potrs(handle, uplo, [a, b], info, count))
    }

    /// Eigenvalues, and eigenvectors.
    pub extern "C" fn(kind) [
        cusolverDnSsyevjBatched(Type::F32), cusolverDnDsyevjBatched(Type::F64), cusolverDnCheevjBatched(Type::C32),
        cusolverDnZheevjBatched(Type::C64),
    ]
    (
        handle: Handle, jobz: c_int, uplo: c_int, n: c_int, a: usize, lda: c_int, w: usize, _work: usize, _size: c_int,
        info: usize, _params: Handle, count: c_int,
    ) -> Status {
        let a = Given::new(kind, a, [n, n, lda]);
        let compute = || syevd(handle, [jobz, uplo], a, kind.real().at(w), size(count)?, info);
        status(compute())
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSsyevjBatched_bufferSize, cusolverDnDsyevjBatched_bufferSize, cusolverDnCheevjBatched_bufferSize,
        cusolverDnZheevjBatched_bufferSize,
    ]
    (
        handle: Handle, _jobz: c_int, _uplo: c_int, _n: c_int, _a: usize, _lda: c_int, _w: usize, size: *mut c_int,
        _params: Handle, _count: c_int,
    ) -> Status {
        workspace(handle, size)
    }

    /// A = U S V; V is not transposed.
    pub extern "C" fn(kind) [
        cusolverDnSgesvdjBatched(Type::F32), cusolverDnDgesvdjBatched(Type::F64), cusolverDnCgesvdjBatched(Type::C32),
        cusolverDnZgesvdjBatched(Type::C64),
    ]
    (
        handle: Handle, jobz: c_int, m: c_int, n: c_int, a: usize, lda: c_int, s: usize, u: usize, ldu: c_int, v: usize,
        ldv: c_int, _work: usize, _size: c_int, info: usize, _params: Handle, count: c_int,
    ) -> Status {
        let compute = || {
            let a = Given::new(kind, a, [m, n, lda]);
            let wanted = [Wanted::of_mode(jobz, 0)?; 2];
            gesvdj(handle, Svd::new(a, wanted, s, [u, v], [ldu, ldv], false), info, count)
        };
        status(compute())
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSgesvdjBatched_bufferSize, cusolverDnDgesvdjBatched_bufferSize, cusolverDnCgesvdjBatched_bufferSize,
        cusolverDnZgesvdjBatched_bufferSize,
    ]
    (
        handle: Handle, _jobz: c_int, _m: c_int, _n: c_int, _a: usize, _lda: c_int, _s: usize, _u: usize, _ldu: c_int,
        _v: usize, _ldv: c_int, size: *mut c_int, _params: Handle, _count: c_int,
    ) -> Status {
        workspace(handle, size)
    }

    /// The largest singular values, and their vectors.
    pub unsafe extern "C" fn(kind) [
        cusolverDnSgesvdaStridedBatched(Type::F32), cusolverDnDgesvdaStridedBatched(Type::F64),
        cusolverDnCgesvdaStridedBatched(Type::C32), cusolverDnZgesvdaStridedBatched(Type::C64),
    ]
    (
        handle: Handle, jobz: c_int, rank: c_int, m: c_int, n: c_int, a: usize, lda: c_int, stride_a: i64, s: usize,
        stride_s: i64, u: usize, ldu: c_int, stride_u: i64, v: usize, ldv: c_int, stride_v: i64, _work: usize, _size: c_int,
        info: usize, norms: *mut f64, count: c_int,
    ) -> Status {
        let compute = || {
            let a = Given::new(kind, a, [m, n, lda]);
            let wanted = if has_vectors(jobz)? { Wanted::Thin } else { Wanted::Nothing };
            let svd = Svd::new(a, [wanted; 2], s, [u, v], [ldu, ldv], false);
            let distances = [stride_a, stride_s, stride_u, stride_v];
            // SAFETY: the caller gives null, or room for a number per matrix.
            unsafe { gesvda(handle, svd, rank, distances, info, norms, count) }
        };
        status(compute())
    }

    /// Its workspace.
    pub extern "C" fn [
        cusolverDnSgesvdaStridedBatched_bufferSize, cusolverDnDgesvdaStridedBatched_bufferSize,
        cusolverDnCgesvdaStridedBatched_bufferSize, cusolverDnZgesvdaStridedBatched_bufferSize,
    ]
    (
        handle: Handle, _jobz: c_int, _rank: c_int, _m: c_int, _n: c_int, _a: usize, _lda: c_int, _stride_a: i64, _s: usize,
        _stride_s: i64, _u: usize, _ldu: c_int, _stride_u: i64, _v: usize, _ldv: c_int, _stride_v: i64, size: *mut c_int,
        _count: c_int,
    ) -> Status {
        workspace(handle, size)
    }
}
