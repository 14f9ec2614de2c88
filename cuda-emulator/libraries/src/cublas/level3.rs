// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on matrices (sections 2.7 and 2.8), without the general product.

use std::ffi::c_int;

use super::handle::{Scalar, queue, settings};
use super::operation::{Fill, Operation, is_right, is_unit, solve};
use super::{Status, size, status};
use crate::exported::exported;
use crate::handles::Handle;
use crate::memory::{Dense, Matrix, Strided, address_at};
use crate::numbers::{C64, Type};
use crate::stream::Done;

/// C = alpha A + beta C in a triangle; where beta is 0, C is not read.
fn add(c: Matrix, alpha: C64, product: &Dense, beta: C64, fill: Fill, is_hermitian: bool) {
    for column in 0..c.columns {
        for row in (0..c.rows).filter(|row| fill.has(*row, column)) {
            let old = if beta == C64::default() { beta } else { beta * c.get(row, column) };
            let value = alpha * product[(row, column)] + old;
            // The diagonal of a Hermitian matrix is real.
            let is_real = is_hermitian && row == column;
            c.set(row, column, if is_real { C64::new(value.re, 0.0) } else { value });
        }
    }
}

/// The form of a product of a matrix with its own transpose, or with that of another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// A Aᵀ
    One,
    /// A Bᵀ + B Aᵀ
    Two,
    /// A Bᵀ
    Mixed,
}

/// The product that is added to C, whose factors are conjugated where C is Hermitian.
struct Update {
    fill: c_int,
    operation: c_int,
    rank: Rank,
    is_hermitian: bool,
}

/// C = alpha A Aᵀ + beta C and its relatives, in one triangle.
fn syrk(
    handle: Handle,
    [kind, alpha_kind, beta_kind]: [Type; 3],
    [n, k, lda, ldb, ldc]: [c_int; 5],
    [alpha, beta]: [usize; 2],
    [a, b, c]: [usize; 3],
    Update { fill, operation, rank, is_hermitian }: Update,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (fill, operation) = (Fill::new(fill)?, Operation::new(operation)?);
    let [n, k, lda, ldb, ldc] = [size(n)?, size(k)?, size(lda)?, size(ldb)?, size(ldc)?];
    let alpha = Scalar::new(&settings, alpha_kind, alpha)?;
    let beta = Scalar::new(&settings, beta_kind, beta)?;
    let (rows, columns) = operation.stored(n, k);
    queue(settings.stream, move || {
        let (alpha, beta) = (alpha.get()?, beta.get()?);
        let open = |base, ld| Ok(operation.of(&Matrix::new(kind, base, rows, columns, ld)?.load()));
        let a = open(a, lda)?;
        let b = if rank == Rank::One { a.clone() } else { open(b, ldb)? };
        let turned = |matrix: &Dense| {
            if is_hermitian { matrix.adjoint() } else { Operation::Transpose.of(matrix) }
        };
        let first = a.times(&turned(&b));
        let product = if rank == Rank::Two {
            let second = turned(&first);
            let factor = if is_hermitian { alpha.conj() } else { alpha };
            Dense::from(n, n, |row, column| alpha * first[(row, column)] + factor * second[(row, column)])
        } else {
            Dense::from(n, n, |row, column| alpha * first[(row, column)])
        };
        add(Matrix::new(kind, c, n, n, ldc)?, C64::new(1.0, 0.0), &product, beta, fill, is_hermitian);
        Ok(())
    })
}

/// The side of a symmetric or Hermitian factor, and its stored triangle.
struct Factor {
    side: c_int,
    fill: c_int,
    is_hermitian: bool,
}

/// C = alpha A B + beta C, or alpha B A, with a symmetric or Hermitian A.
fn symm(
    handle: Handle,
    kind: Type,
    Factor { side, fill, is_hermitian }: Factor,
    [m, n, lda, ldb, ldc]: [c_int; 5],
    [alpha, beta]: [usize; 2],
    [a, b, c]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (right, fill) = (is_right(side)?, Fill::new(fill)?);
    let [m, n, lda, ldb, ldc] = [size(m)?, size(n)?, size(lda)?, size(ldb)?, size(ldc)?];
    let (alpha, beta) = (Scalar::new(&settings, kind, alpha)?, Scalar::new(&settings, kind, beta)?);
    queue(settings.stream, move || {
        let order = if right { n } else { m };
        let a = fill.symmetric(Matrix::new(kind, a, order, order, lda)?, is_hermitian);
        let b = Matrix::new(kind, b, m, n, ldb)?.load();
        let product = if right { b.times(&a) } else { a.times(&b) };
        add(Matrix::new(kind, c, m, n, ldc)?, alpha.get()?, &product, beta.get()?, Fill::Full, false);
        Ok(())
    })
}

/// The parameters of an operation with a triangular matrix.
#[derive(Clone, Copy)]
struct Triangular {
    kind: Type,
    right: bool,
    fill: Fill,
    operation: Operation,
    unit: bool,
    rows: usize,
    columns: usize,
    lda: usize,
    ldb: usize,
}

impl Triangular {
    fn new(
        kind: Type,
        [side, fill, operation, diagonal]: [c_int; 4],
        [m, n, lda, ldb]: [c_int; 4],
    ) -> Result<Self, Status> {
        Ok(Self {
            kind,
            right: is_right(side)?,
            fill: Fill::new(fill)?,
            operation: Operation::new(operation)?,
            unit: is_unit(diagonal)?,
            rows: size(m)?,
            columns: size(n)?,
            lda: size(lda)?,
            ldb: size(ldb)?,
        })
    }

    /// op(A), and B.
    fn open(&self, a: usize, b: usize) -> Result<(Dense, Matrix), crate::stream::Fault> {
        let order = if self.right { self.columns } else { self.rows };
        let a = self.fill.triangle(Matrix::new(self.kind, a, order, order, self.lda)?, self.unit);
        Ok((self.operation.of(&a), Matrix::new(self.kind, b, self.rows, self.columns, self.ldb)?))
    }

    /// Solves op(A) X = alpha B, or X op(A) = alpha B; X replaces B.
    fn solve(&self, alpha: C64, a: usize, b: usize) -> Done {
        let (a, b) = self.open(a, b)?;
        let is_lower = (self.fill == Fill::Lower) == (self.operation == Operation::None);
        let scaled = Dense::from(b.rows, b.columns, |row, column| {
            if alpha == C64::default() { alpha } else { alpha * b.get(row, column) }
        });
        let turn = |matrix: &Dense| Operation::Transpose.of(matrix);
        if self.right {
            let mut right = turn(&scaled);
            solve(&turn(&a), !is_lower, &mut right);
            b.store(&turn(&right));
        } else {
            let mut right = scaled;
            solve(&a, is_lower, &mut right);
            b.store(&right);
        }
        Ok(())
    }
}

fn trsm(
    handle: Handle,
    shape: Result<Triangular, Status>,
    alpha: usize,
    [a, b]: [usize; 2],
    batch: Option<c_int>,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let shape = shape?;
    let alpha = Scalar::new(&settings, shape.kind, alpha)?;
    let count = batch.map(size).transpose()?;
    queue(settings.stream, move || {
        let alpha = alpha.get()?;
        let Some(count) = count else { return shape.solve(alpha, a, b) };
        (0..count).try_for_each(|index| shape.solve(alpha, address_at(a, index)?, address_at(b, index)?))
    })
}

fn trmm(
    handle: Handle,
    shape: Result<Triangular, Status>,
    alpha: usize,
    [a, b, c]: [usize; 3],
    ldc: c_int,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let (shape, ldc) = (shape?, size(ldc)?);
    let alpha = Scalar::new(&settings, shape.kind, alpha)?;
    queue(settings.stream, move || {
        let alpha = alpha.get()?;
        let (a, b) = shape.open(a, b)?;
        let b = b.load();
        let product = if shape.right { b.times(&a) } else { a.times(&b) };
        let c = Matrix::new(shape.kind, c, shape.rows, shape.columns, ldc)?;
        add(c, alpha, &product, C64::default(), Fill::Full, false);
        Ok(())
    })
}

/// C = alpha op(A) + beta op(B).
fn geam(
    handle: Handle,
    kind: Type,
    operations: [c_int; 2],
    [m, n, lda, ldb, ldc]: [c_int; 5],
    [alpha, beta]: [usize; 2],
    [a, b, c]: [usize; 3],
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let [of_a, of_b] = [Operation::new(operations[0])?, Operation::new(operations[1])?];
    let [m, n, lda, ldb, ldc] = [size(m)?, size(n)?, size(lda)?, size(ldb)?, size(ldc)?];
    let (alpha, beta) = (Scalar::new(&settings, kind, alpha)?, Scalar::new(&settings, kind, beta)?);
    queue(settings.stream, move || {
        let open = |factor: C64, operation: Operation, base, ld| {
            // A factor of 0 leaves a matrix out, which may be null then.
            if factor == C64::default() {
                return Ok(Dense::from(m, n, |_, _| C64::default()));
            }
            let (rows, columns) = operation.stored(m, n);
            Ok(operation.of(&Matrix::new(kind, base, rows, columns, ld)?.load()))
        };
        let (alpha, beta) = (alpha.get()?, beta.get()?);
        let (a, b) = (open(alpha, of_a, a, lda)?, open(beta, of_b, b, ldb)?);
        Matrix::new(kind, c, m, n, ldc)?
            .store(&Dense::from(m, n, |row, column| alpha * a[(row, column)] + beta * b[(row, column)]));
        Ok(())
    })
}

/// C = A diag(x), or diag(x) A.
fn dgmm(
    handle: Handle,
    kind: Type,
    mode: c_int,
    [m, n, lda, ldc]: [c_int; 4],
    [a, c]: [usize; 2],
    x: Strided,
) -> Result<(), Status> {
    let settings = settings(handle)?;
    let right = is_right(mode)?;
    let [m, n, lda, ldc] = [size(m)?, size(n)?, size(lda)?, size(ldc)?];
    queue(settings.stream, move || {
        let a = Matrix::new(kind, a, m, n, lda)?.load();
        let x = x.open(kind, if right { n } else { m })?.load();
        let product = |row, column| a[(row, column)] * x[if right { column } else { row }];
        Matrix::new(kind, c, m, n, ldc)?.store(&Dense::from(m, n, product));
        Ok(())
    })
}

exported! {
    /// Solves op(A) X = alpha B, or X op(A) = alpha B.
    pub extern "C" fn(kind) [
        cublasStrsm_v2(Type::F32), cublasDtrsm_v2(Type::F64), cublasCtrsm_v2(Type::C32), cublasZtrsm_v2(Type::C64),
    ]
    (
        handle: Handle, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int, alpha: usize, a: usize,
        lda: c_int, b: usize, ldb: c_int,
    ) -> Status {
        let shape = Triangular::new(kind, [side, uplo, trans, diag], [m, n, lda, ldb]);
        status(trsm(handle, shape, alpha, [a, b], None))
    }

    /// The same for matrices whose addresses are in device memory.
    pub extern "C" fn(kind) [
        cublasStrsmBatched(Type::F32), cublasDtrsmBatched(Type::F64), cublasCtrsmBatched(Type::C32),
        cublasZtrsmBatched(Type::C64),
    ]
    (
        handle: Handle, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int, alpha: usize, a: usize,
        lda: c_int, b: usize, ldb: c_int, count: c_int,
    ) -> Status {
        let shape = Triangular::new(kind, [side, uplo, trans, diag], [m, n, lda, ldb]);
        status(trsm(handle, shape, alpha, [a, b], Some(count)))
    }

    /// C = alpha op(A) B, or alpha B op(A).
    pub extern "C" fn(kind) [
        cublasStrmm_v2(Type::F32), cublasDtrmm_v2(Type::F64), cublasCtrmm_v2(Type::C32), cublasZtrmm_v2(Type::C64),
    ]
    (
        handle: Handle, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int, alpha: usize, a: usize,
        lda: c_int, b: usize, ldb: c_int, c: usize, ldc: c_int,
    ) -> Status {
        let shape = Triangular::new(kind, [side, uplo, trans, diag], [m, n, lda, ldb]);
        status(trmm(handle, shape, alpha, [a, b, c], ldc))
    }

    /// C = alpha op(A) + beta op(B).
    pub extern "C" fn(kind) [cublasSgeam(Type::F32), cublasDgeam(Type::F64), cublasCgeam(Type::C32), cublasZgeam(Type::C64)]
    (
        handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, beta: usize,
        b: usize, ldb: c_int, c: usize, ldc: c_int,
    ) -> Status {
        let sizes = [m, n, lda, ldb, ldc];
        status(geam(handle, kind, [transa, transb], sizes, [alpha, beta], [a, b, c]))
    }

    /// C = A diag(x), or diag(x) A.
    pub extern "C" fn(kind) [cublasSdgmm(Type::F32), cublasDdgmm(Type::F64), cublasCdgmm(Type::C32), cublasZdgmm(Type::C64)]
    (
        handle: Handle, mode: c_int, m: c_int, n: c_int, a: usize, lda: c_int, x: usize, incx: c_int, c: usize, ldc: c_int,
    ) -> Status {
        status(dgmm(handle, kind, mode, [m, n, lda, ldc], [a, c], Strided::new(x, incx)))
    }

    /// C = alpha A B + beta C, or alpha B A + beta C.
    pub extern "C" fn(kind, hermitian) [
        cublasSsymm_v2(Type::F32, false), cublasDsymm_v2(Type::F64, false), cublasCsymm_v2(Type::C32, false),
        cublasChemm_v2(Type::C32, true), cublasZsymm_v2(Type::C64, false), cublasZhemm_v2(Type::C64, true),
    ]
    (
        handle: Handle, side: c_int, uplo: c_int, m: c_int, n: c_int, alpha: usize, a: usize, lda: c_int, b: usize, ldb: c_int,
        beta: usize, c: usize, ldc: c_int,
    ) -> Status {
        let sizes = [m, n, lda, ldb, ldc];
        let factor = Factor { side, fill: uplo, is_hermitian: hermitian };
        status(symm(handle, kind, factor, sizes, [alpha, beta], [a, b, c]))
    }

    /// C = alpha A A + beta C.
    pub extern "C" fn(kind, of_beta, conjugate) [
        cublasSsyrk_v2(Type::F32, Type::F32, false), cublasDsyrk_v2(Type::F64, Type::F64, false),
        cublasCsyrk_v2(Type::C32, Type::C32, false), cublasCherk_v2(Type::C32, Type::F32, true),
        cublasZsyrk_v2(Type::C64, Type::C64, false), cublasZherk_v2(Type::C64, Type::F64, true),
    ]
    (
        handle: Handle, uplo: c_int, trans: c_int, n: c_int, k: c_int, alpha: usize, a: usize, lda: c_int, beta: usize,
        c: usize, ldc: c_int,
    ) -> Status {
        let kinds = [kind, of_beta, of_beta];
        let sizes = [n, k, lda, lda, ldc];
        let update = Update { fill: uplo, operation: trans, rank: Rank::One, is_hermitian: conjugate };
        status(syrk(handle, kinds, sizes, [alpha, beta], [a, a, c], update))
    }

    /// C = alpha A B + alpha B A + beta C.
    pub extern "C" fn(kind, of_alpha, of_beta, conjugate) [
        cublasSsyr2k_v2(Type::F32, Type::F32, Type::F32, false), cublasDsyr2k_v2(Type::F64, Type::F64, Type::F64, false),
        cublasCsyr2k_v2(Type::C32, Type::C32, Type::C32, false), cublasCher2k_v2(Type::C32, Type::C32, Type::F32, true),
        cublasZsyr2k_v2(Type::C64, Type::C64, Type::C64, false), cublasZher2k_v2(Type::C64, Type::C64, Type::F64, true),
    ]
    (
        handle: Handle, uplo: c_int, trans: c_int, n: c_int, k: c_int, alpha: usize, a: usize, lda: c_int, b: usize,
        ldb: c_int, beta: usize, c: usize, ldc: c_int,
    ) -> Status {
        let kinds = [kind, of_alpha, of_beta];
        let sizes = [n, k, lda, ldb, ldc];
        let update = Update { fill: uplo, operation: trans, rank: Rank::Two, is_hermitian: conjugate };
        status(syrk(handle, kinds, sizes, [alpha, beta], [a, b, c], update))
    }

    /// C = alpha A B + beta C, of which one triangle is computed.
    pub extern "C" fn(kind, of_alpha, of_beta, conjugate) [
        cublasSsyrkx(Type::F32, Type::F32, Type::F32, false), cublasDsyrkx(Type::F64, Type::F64, Type::F64, false),
        cublasCsyrkx(Type::C32, Type::C32, Type::C32, false), cublasCherkx(Type::C32, Type::C32, Type::F32, true),
        cublasZsyrkx(Type::C64, Type::C64, Type::C64, false), cublasZherkx(Type::C64, Type::C64, Type::F64, true),
    ]
    (
        handle: Handle, uplo: c_int, trans: c_int, n: c_int, k: c_int, alpha: usize, a: usize, lda: c_int, b: usize,
        ldb: c_int, beta: usize, c: usize, ldc: c_int,
    ) -> Status {
        let kinds = [kind, of_alpha, of_beta];
        let sizes = [n, k, lda, ldb, ldc];
        let update = Update { fill: uplo, operation: trans, rank: Rank::Mixed, is_hermitian: conjugate };
        status(syrk(handle, kinds, sizes, [alpha, beta], [a, b, c], update))
    }
}
