// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The low-level preview: analysis, length of the buffer (which is not used), factors and solutions are separate
//! calls. An object stores the state between them.

use std::ffi::c_int;

use super::super::{INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED, SUCCESS, Status, size, status};
use super::handle::{device, host};
use super::solve::{Factors, Method};
use super::{Given, Place, answer, position};
use crate::exported::exported;
use crate::handles::{self, Handle};
use crate::numbers::{C32, C64, Type, TypedAddress};
use crate::sparse::matrix::Csr;

/// Bytes of a buffer and of an object, as the functions that ask for it answer.
const BUFFER_BYTES: usize = 512;

/// The memory for which an object is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Host,
    Device,
}

/// A `csrluInfoHost_t`, `csrqrInfoHost_t`, `csrcholInfoHost_t`, `csrqrInfo_t` or `csrcholInfo_t`.
#[derive(Debug)]
struct Info {
    method: Method,
    side: Side,
    /// Rows, columns and elements of the matrix, once it was analysed.
    sizes: Option<[c_int; 3]>,
    /// The type of elements, once the length of the buffer was asked for.
    kind: Option<Type>,
    /// The matrix of QR's setup.
    matrix: Option<Csr>,
    factors: Option<Factors>,
}

/// The functions of one method for one kind of memory.
#[derive(Clone, Copy, Debug)]
struct Family {
    method: Method,
    side: Side,
}

const LU: Family = Family { method: Method::Lu, side: Side::Host };
const QR: Family = Family { method: Method::Qr, side: Side::Host };
const CHOLESKY: Family = Family { method: Method::Cholesky, side: Side::Host };
const DEVICE_QR: Family = Family { method: Method::Qr, side: Side::Device };
const DEVICE_CHOLESKY: Family = Family { method: Method::Cholesky, side: Side::Device };

impl Family {
    fn of(self, info: Handle) -> Target {
        Target { info, method: self.method, side: self.side }
    }

    fn place(self, handle: Handle) -> Result<Place, Status> {
        match self.side {
            Side::Host => host(handle),
            Side::Device => device(handle),
        }
    }
}

/// A function's object, and the matrix for which the object has to be created.
#[derive(Clone, Copy, Debug)]
struct Target {
    info: Handle,
    method: Method,
    side: Side,
}

impl Target {
    fn with<R>(self, body: impl FnOnce(&mut Info) -> Result<R, Status>) -> Result<R, Status> {
        let found = handles::with(self.info, |info: &mut Info| {
            if (info.method, info.side) == (self.method, self.side) { body(info) } else { Err(INVALID_VALUE) }
        });
        found.unwrap_or(Err(INVALID_VALUE))
    }

    fn analyse(self, sizes: [c_int; 3], given: Result<Given, Status>) -> Result<(), Status> {
        let given = given?;
        if given.rows < given.columns {
            return Err(INVALID_VALUE);
        }
        given.load()?;
        self.with(|info| {
            *info = Info::new(self.method, self.side);
            info.sizes = Some(sizes);
            Ok(())
        })
    }

    fn buffer(
        self,
        sizes: [c_int; 3],
        kind: Type,
        given: Result<Given, Status>,
        places: [*mut usize; 2],
    ) -> Result<(), Status> {
        given?;
        self.with(|info| {
            if info.sizes != Some(sizes) {
                return Err(INVALID_VALUE);
            }
            info.kind = Some(kind);
            Ok(())
        })?;
        places.into_iter().try_for_each(|place| answer(place, BUFFER_BYTES))
    }

    /// Keeps the matrix of which QR's factors will be. Those of the last one end.
    fn set_up(self, sizes: [c_int; 3], kind: Type, given: Result<Given, Status>) -> Result<(), Status> {
        let matrix = given?.load()?;
        self.with(|info| {
            info.check(sizes, kind)?;
            info.matrix = Some(matrix);
            info.factors = None;
            Ok(())
        })
    }

    /// Factorizes a matrix, or that of the setup.
    fn factor(
        self,
        sizes: [c_int; 3],
        kind: Type,
        given: Option<Result<Given, Status>>,
        threshold: f64,
    ) -> Result<(), Status> {
        let matrix = given.map(|given| given?.load()).transpose()?;
        self.with(|info| {
            info.check(sizes, kind)?;
            let matrix = matrix.as_ref().or(info.matrix.as_ref()).ok_or(INVALID_VALUE)?;
            info.factors = Some(Factors::of(self.method, matrix, threshold));
            Ok(())
        })
    }

    fn zero_pivot(self, kind: Type, tolerance: f64, place: *mut c_int) -> Result<(), Status> {
        let found = self.with(|info| Ok(info.factors(kind)?.zero_pivot(tolerance)))?;
        answer(place, position(found))
    }

    fn solve(
        self,
        place: Result<Place, Status>,
        [rows, columns]: [c_int; 2],
        kind: Type,
        [b, x]: [usize; 2],
    ) -> Result<(), Status> {
        let (place, count) = (place?, size(rows)?);
        if b == 0 || x == 0 {
            return Err(INVALID_VALUE);
        }
        let right = place.run(move |place| place.elements(kind, b, count))?;
        let solution = self.with(|info| {
            match info.sizes {
                Some([known_rows, known_columns, _]) if [known_rows, known_columns] == [rows, columns] => {}
                _ => return Err(INVALID_VALUE),
            }
            Ok(info.factors(kind)?.solve(&right))
        })?;
        place.run(move |place| place.set_elements(kind, x, &solution))
    }
}

impl Info {
    fn new(method: Method, side: Side) -> Self {
        Self { method, side, sizes: None, kind: None, matrix: None, factors: None }
    }

    fn check(&self, sizes: [c_int; 3], kind: Type) -> Result<(), Status> {
        let is_it = self.sizes == Some(sizes) && self.kind == Some(kind);
        if is_it { Ok(()) } else { Err(INVALID_VALUE) }
    }

    fn factors(&self, kind: Type) -> Result<&Factors, Status> {
        self.factors.as_ref().filter(|_| self.kind == Some(kind)).ok_or(INVALID_VALUE)
    }
}

exported! {
    /// Creates an object.
    pub unsafe extern "C" fn(family) [
        cusolverSpCreateCsrluInfoHost(LU), cusolverSpCreateCsrqrInfoHost(QR), cusolverSpCreateCsrcholInfoHost(CHOLESKY),
        cusolverSpCreateCsrqrInfo(DEVICE_QR), cusolverSpCreateCsrcholInfo(DEVICE_CHOLESKY),
    ]
    (place: *mut Handle) -> Status {
        // SAFETY: the caller gives a place for a handle, or null.
        let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
        *place = handles::make(Info::new(family.method, family.side));
        SUCCESS
    }

    /// Ends an object.
    pub extern "C" fn [
        cusolverSpDestroyCsrluInfoHost, cusolverSpDestroyCsrqrInfoHost, cusolverSpDestroyCsrcholInfoHost,
        cusolverSpDestroyCsrqrInfo, cusolverSpDestroyCsrcholInfo,
    ]
    (info: Handle) -> Status {
        if handles::end::<Info>(info) { SUCCESS } else { NOT_INITIALIZED }
    }
}

/// The matrix of a function's arguments.
fn given(
    place: Result<Place, Status>,
    sizes: [c_int; 3],
    descriptor: Handle,
    values: Option<TypedAddress>,
    at: [usize; 2],
) -> Result<Given, Status> {
    Given::new(place?, sizes, descriptor, values, at)
}

exported! {
    /// Analyses a matrix.
    pub unsafe extern "C" fn(family) [
        cusolverSpXcsrluAnalysisHost(LU), cusolverSpXcsrcholAnalysisHost(CHOLESKY),
        cusolverSpXcsrcholAnalysis(DEVICE_CHOLESKY),
    ]
    (handle: Handle, n: c_int, count: c_int, descriptor: Handle, starts: usize, indices: usize, info: Handle) -> Status {
        let given = given(family.place(handle), [n, n, count], descriptor, None, [starts, indices]);
        status(family.of(info).analyse([n, n, count], given))
    }

    /// Returns the length of the buffer.
    pub unsafe extern "C" fn(family, kind) [
        cusolverSpScsrluBufferInfoHost(LU, Type::F32), cusolverSpDcsrluBufferInfoHost(LU, Type::F64),
        cusolverSpCcsrluBufferInfoHost(LU, Type::C32), cusolverSpZcsrluBufferInfoHost(LU, Type::C64),
        cusolverSpScsrcholBufferInfoHost(CHOLESKY, Type::F32), cusolverSpDcsrcholBufferInfoHost(CHOLESKY, Type::F64),
        cusolverSpCcsrcholBufferInfoHost(CHOLESKY, Type::C32), cusolverSpZcsrcholBufferInfoHost(CHOLESKY, Type::C64),
        cusolverSpScsrcholBufferInfo(DEVICE_CHOLESKY, Type::F32), cusolverSpDcsrcholBufferInfo(DEVICE_CHOLESKY, Type::F64),
        cusolverSpCcsrcholBufferInfo(DEVICE_CHOLESKY, Type::C32), cusolverSpZcsrcholBufferInfo(DEVICE_CHOLESKY, Type::C64),
    ]
    (
        handle: Handle, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize, indices: usize, info: Handle,
        internal: *mut usize, work: *mut usize,
    ) -> Status {
        let given = given(family.place(handle), [n, n, count], descriptor, Some(kind.at(values)), [starts, indices]);
        let target = family.of(info);
        status(target.buffer([n, n, count], kind, given, [internal, work]))
    }

    /// Factorizes.
    pub unsafe extern "C" fn(family, kind) [
        cusolverSpScsrcholFactorHost(CHOLESKY, Type::F32), cusolverSpDcsrcholFactorHost(CHOLESKY, Type::F64),
        cusolverSpCcsrcholFactorHost(CHOLESKY, Type::C32), cusolverSpZcsrcholFactorHost(CHOLESKY, Type::C64),
        cusolverSpScsrcholFactor(DEVICE_CHOLESKY, Type::F32), cusolverSpDcsrcholFactor(DEVICE_CHOLESKY, Type::F64),
        cusolverSpCcsrcholFactor(DEVICE_CHOLESKY, Type::C32), cusolverSpZcsrcholFactor(DEVICE_CHOLESKY, Type::C64),
    ]
    (
        handle: Handle, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize, indices: usize, info: Handle,
        _buffer: usize,
    ) -> Status {
        let given = given(family.place(handle), [n, n, count], descriptor, Some(kind.at(values)), [starts, indices]);
        let target = family.of(info);
        status(target.factor([n, n, count], kind, Some(given), 1.0))
    }

    /// Solves.
    pub unsafe extern "C" fn(family, kind) [
        cusolverSpScsrluSolveHost(LU, Type::F32), cusolverSpDcsrluSolveHost(LU, Type::F64),
        cusolverSpCcsrluSolveHost(LU, Type::C32), cusolverSpZcsrluSolveHost(LU, Type::C64),
        cusolverSpScsrcholSolveHost(CHOLESKY, Type::F32), cusolverSpDcsrcholSolveHost(CHOLESKY, Type::F64),
        cusolverSpCcsrcholSolveHost(CHOLESKY, Type::C32), cusolverSpZcsrcholSolveHost(CHOLESKY, Type::C64),
        cusolverSpScsrcholSolve(DEVICE_CHOLESKY, Type::F32), cusolverSpDcsrcholSolve(DEVICE_CHOLESKY, Type::F64),
        cusolverSpCcsrcholSolve(DEVICE_CHOLESKY, Type::C32), cusolverSpZcsrcholSolve(DEVICE_CHOLESKY, Type::C64),
    ]
    (handle: Handle, n: c_int, b: usize, x: usize, info: Handle, _buffer: usize) -> Status {
        let target = family.of(info);
        status(target.solve(family.place(handle), [n, n], kind, [b, x]))
    }
}

exported! {
    /// Factorizes with pivots that are as large as a threshold demands.
    pub unsafe extern "C" fn<Real>(family, kind) [
        cusolverSpScsrluFactorHost<f32>(LU, Type::F32), cusolverSpDcsrluFactorHost<f64>(LU, Type::F64),
        cusolverSpCcsrluFactorHost<f32>(LU, Type::C32), cusolverSpZcsrluFactorHost<f64>(LU, Type::C64),
    ]
    (
        handle: Handle, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize, indices: usize, info: Handle,
        threshold: Real, _buffer: usize,
    ) -> Status {
        let given = given(family.place(handle), [n, n, count], descriptor, Some(kind.at(values)), [starts, indices]);
        status(family.of(info).factor([n, n, count], kind, Some(given), threshold.into()))
    }

    /// Returns where the matrix is singular.
    pub unsafe extern "C" fn<Real>(family, kind) [
        cusolverSpScsrluZeroPivotHost<f32>(LU, Type::F32), cusolverSpDcsrluZeroPivotHost<f64>(LU, Type::F64),
        cusolverSpCcsrluZeroPivotHost<f32>(LU, Type::C32), cusolverSpZcsrluZeroPivotHost<f64>(LU, Type::C64),
        cusolverSpScsrcholZeroPivotHost<f32>(CHOLESKY, Type::F32),
        cusolverSpDcsrcholZeroPivotHost<f64>(CHOLESKY, Type::F64),
        cusolverSpCcsrcholZeroPivotHost<f32>(CHOLESKY, Type::C32),
        cusolverSpZcsrcholZeroPivotHost<f64>(CHOLESKY, Type::C64),
        cusolverSpScsrcholZeroPivot<f32>(DEVICE_CHOLESKY, Type::F32),
        cusolverSpDcsrcholZeroPivot<f64>(DEVICE_CHOLESKY, Type::F64),
        cusolverSpCcsrcholZeroPivot<f32>(DEVICE_CHOLESKY, Type::C32),
        cusolverSpZcsrcholZeroPivot<f64>(DEVICE_CHOLESKY, Type::C64),
    ]
    (handle: Handle, info: Handle, tolerance: Real, place: *mut c_int) -> Status {
        let target = family.of(info);
        status(family.place(handle).and_then(|_| target.zero_pivot(kind, tolerance.into(), place)))
    }
}

exported! {
    /// Analyses a matrix.
    pub unsafe extern "C" fn(family) [cusolverSpXcsrqrAnalysisHost(QR), cusolverSpXcsrqrAnalysis(DEVICE_QR)]
    (
        handle: Handle, m: c_int, n: c_int, count: c_int, descriptor: Handle, starts: usize, indices: usize, info: Handle,
    ) -> Status {
        let given = given(family.place(handle), [m, n, count], descriptor, None, [starts, indices]);
        status(family.of(info).analyse([m, n, count], given))
    }

    /// Returns the length of the buffer.
    pub unsafe extern "C" fn(family, kind) [
        cusolverSpScsrqrBufferInfoHost(QR, Type::F32), cusolverSpDcsrqrBufferInfoHost(QR, Type::F64),
        cusolverSpCcsrqrBufferInfoHost(QR, Type::C32), cusolverSpZcsrqrBufferInfoHost(QR, Type::C64),
        cusolverSpScsrqrBufferInfo(DEVICE_QR, Type::F32), cusolverSpDcsrqrBufferInfo(DEVICE_QR, Type::F64),
        cusolverSpCcsrqrBufferInfo(DEVICE_QR, Type::C32), cusolverSpZcsrqrBufferInfo(DEVICE_QR, Type::C64),
    ]
    (
        handle: Handle, m: c_int, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize, indices: usize,
        info: Handle, internal: *mut usize, work: *mut usize,
    ) -> Status {
        let given = given(family.place(handle), [m, n, count], descriptor, Some(kind.at(values)), [starts, indices]);
        let target = family.of(info);
        status(target.buffer([m, n, count], kind, given, [internal, work]))
    }

    /// Factorizes, and solves if there are places for a right-hand side and a solution.
    pub unsafe extern "C" fn(family, kind) [
        cusolverSpScsrqrFactorHost(QR, Type::F32), cusolverSpDcsrqrFactorHost(QR, Type::F64),
        cusolverSpCcsrqrFactorHost(QR, Type::C32), cusolverSpZcsrqrFactorHost(QR, Type::C64),
        cusolverSpScsrqrFactor(DEVICE_QR, Type::F32), cusolverSpDcsrqrFactor(DEVICE_QR, Type::F64),
        cusolverSpCcsrqrFactor(DEVICE_QR, Type::C32), cusolverSpZcsrqrFactor(DEVICE_QR, Type::C64),
    ]
    (handle: Handle, m: c_int, n: c_int, count: c_int, b: usize, x: usize, info: Handle, _buffer: usize) -> Status {
        let target = family.of(info);
        let done = family.place(handle).and_then(|_| target.factor([m, n, count], kind, None, 1.0));
        status(done.and_then(|()| match (b, x) {
            (0, _) | (_, 0) => Ok(()),
            _ => target.solve(family.place(handle), [m, n], kind, [b, x]),
        }))
    }

    /// Solves.
    pub unsafe extern "C" fn(family, kind) [
        cusolverSpScsrqrSolveHost(QR, Type::F32), cusolverSpDcsrqrSolveHost(QR, Type::F64),
        cusolverSpCcsrqrSolveHost(QR, Type::C32), cusolverSpZcsrqrSolveHost(QR, Type::C64),
        cusolverSpScsrqrSolve(DEVICE_QR, Type::F32), cusolverSpDcsrqrSolve(DEVICE_QR, Type::F64),
        cusolverSpCcsrqrSolve(DEVICE_QR, Type::C32), cusolverSpZcsrqrSolve(DEVICE_QR, Type::C64),
    ]
    (handle: Handle, m: c_int, n: c_int, b: usize, x: usize, info: Handle, _buffer: usize) -> Status {
        let target = family.of(info);
        status(target.solve(family.place(handle), [m, n], kind, [b, x]))
    }
}

exported! {
    /// Takes the matrix. One that is shifted is not supported.
    pub unsafe extern "C" fn<Element>(family, kind) [
        cusolverSpScsrqrSetupHost<f32>(QR, Type::F32), cusolverSpDcsrqrSetupHost<f64>(QR, Type::F64),
        cusolverSpCcsrqrSetupHost<C32>(QR, Type::C32), cusolverSpZcsrqrSetupHost<C64>(QR, Type::C64),
        cusolverSpScsrqrSetup<f32>(DEVICE_QR, Type::F32), cusolverSpDcsrqrSetup<f64>(DEVICE_QR, Type::F64),
        cusolverSpCcsrqrSetup<C32>(DEVICE_QR, Type::C32), cusolverSpZcsrqrSetup<C64>(DEVICE_QR, Type::C64),
    ]
    (
        handle: Handle, m: c_int, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize, indices: usize,
        mu: Element, info: Handle,
    ) -> Status {
        if mu != Element::default() {
            return NOT_SUPPORTED;
        }
        let given = given(family.place(handle), [m, n, count], descriptor, Some(kind.at(values)), [starts, indices]);
        let target = family.of(info);
        status(target.set_up([m, n, count], kind, given))
    }

    /// Returns where the matrix is singular.
    pub unsafe extern "C" fn<Real>(family, kind) [
        cusolverSpScsrqrZeroPivotHost<f32>(QR, Type::F32), cusolverSpDcsrqrZeroPivotHost<f64>(QR, Type::F64),
        cusolverSpCcsrqrZeroPivotHost<f32>(QR, Type::C32), cusolverSpZcsrqrZeroPivotHost<f64>(QR, Type::C64),
        cusolverSpScsrqrZeroPivot<f32>(DEVICE_QR, Type::F32), cusolverSpDcsrqrZeroPivot<f64>(DEVICE_QR, Type::F64),
        cusolverSpCcsrqrZeroPivot<f32>(DEVICE_QR, Type::C32), cusolverSpZcsrqrZeroPivot<f64>(DEVICE_QR, Type::C64),
    ]
    (handle: Handle, info: Handle, tolerance: Real, place: *mut c_int) -> Status {
        let target = family.of(info);
        status(family.place(handle).and_then(|_| target.zero_pivot(kind, tolerance.into(), place)))
    }
}

/// L without its diagonal, U, and the order of rows.
fn lu_factors(info: Handle, kind: Option<Type>) -> Result<(Csr, Csr, Vec<usize>), Status> {
    LU.of(info).with(|info| match info.factors(kind.or(info.kind).ok_or(INVALID_VALUE)?)? {
        Factors::Lu(lu) => {
            let (lower, upper) = lu.factors();
            Ok((lower, upper, lu.order.clone()))
        }
        _ => Err(INVALID_VALUE),
    })
}

/// Returns the numbers of elements of L and U.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverSpXcsrluNnzHost(
    handle: Handle,
    of_lower: *mut c_int,
    of_upper: *mut c_int,
    info: Handle,
) -> Status {
    status(host(handle).and_then(|_| {
        let (lower, upper, _) = lu_factors(info, None)?;
        answer(of_lower, lower.indices.len() as c_int)?;
        answer(of_upper, upper.indices.len() as c_int)
    }))
}

/// The places for a factor: descriptor, elements, row pointers and columns.
type Factor = (Handle, [usize; 3]);

fn extract(
    handle: Handle,
    kind: Type,
    orders: [usize; 2],
    places: [Factor; 2],
    info: Handle,
) -> Result<(), Status> {
    let place = host(handle)?;
    let (lower, upper, order) = lu_factors(info, Some(kind))?;
    let places_are_there = orders.iter().chain(places.iter().flat_map(|(_, at)| at)).all(|at| *at != 0);
    if !places_are_there {
        return Err(INVALID_VALUE);
    }
    let rows: Vec<i32> = order.iter().map(|row| *row as i32).collect();
    // Columns keep their order.
    let columns: Vec<i32> = (0..rows.len() as i32).collect();
    let mut done = place.set_integers(orders[0], &rows).and(place.set_integers(orders[1], &columns));
    for ((descriptor, [values, starts, indices]), factor) in places.into_iter().zip([lower, upper]) {
        let base = super::base(descriptor).ok_or(INVALID_VALUE)?;
        let numbers =
            |values: &[usize]| -> Vec<i32> { values.iter().map(|value| *value as i32 + base).collect() };
        done = done
            .and(place.set_elements(kind, values, &factor.values))
            .and(place.set_integers(starts, &numbers(&factor.starts)))
            .and(place.set_integers(indices, &numbers(&factor.indices)));
    }
    done.map_err(|_| INVALID_VALUE)
}

exported! {
    /// P A Q^T = L U.
    pub unsafe extern "C" fn(kind) [
        cusolverSpScsrluExtractHost(Type::F32), cusolverSpDcsrluExtractHost(Type::F64),
        cusolverSpCcsrluExtractHost(Type::C32), cusolverSpZcsrluExtractHost(Type::C64),
    ]
    (
        handle: Handle, p: usize, q: usize, of_lower: Handle, lower: usize, lower_starts: usize, lower_indices: usize,
        of_upper: Handle, upper: usize, upper_starts: usize, upper_indices: usize, info: Handle, _buffer: usize,
    ) -> Status {
        let lower = (of_lower, [lower, lower_starts, lower_indices]);
        let upper = (of_upper, [upper, upper_starts, upper_indices]);
        status(extract(handle, kind, [p, q], [lower, upper], info))
    }
}

fn diagonal(handle: Handle, kind: Type, info: Handle, at: usize) -> Result<(), Status> {
    let place = device(handle)?;
    let values = DEVICE_CHOLESKY.of(info).with(|info| match info.factors(kind)? {
        Factors::Cholesky(cholesky) => {
            Ok(cholesky.diagonal().iter().map(|value| C64::new(*value, 0.0)).collect::<Vec<_>>())
        }
        _ => Err(INVALID_VALUE),
    })?;
    place.run(move |place| place.set_elements(kind.real(), at, &values))
}

exported! {
    /// The diagonal of L.
    pub extern "C" fn(kind) [
        cusolverSpScsrcholDiag(Type::F32), cusolverSpDcsrcholDiag(Type::F64), cusolverSpCcsrcholDiag(Type::C32),
        cusolverSpZcsrcholDiag(Type::C64),
    ]
    (handle: Handle, info: Handle, diag: usize) -> Status {
        status(diagonal(handle, kind, info, diag))
    }
}
