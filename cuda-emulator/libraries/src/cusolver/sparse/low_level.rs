// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The low-level preview: analysis, length of the buffer (which is not used), factors and solutions are separate
//! calls. An object stores the state between them.

use std::ffi::c_int;

use super::super::{INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED, SUCCESS, Status, size, status};
use super::handle::{device, host};
use super::solve::{Factors, Method};
use super::{Given, Place, answer, position};
use crate::handles::{self, Handle};
use crate::numbers::{C32, C64, Type};
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

/// Objects.
macro_rules! objects {
    ($($create:ident $destroy:ident $method:ident $side:ident;)*) => { $(
        /// Creates an object.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(place: *mut Handle) -> Status {
            // SAFETY: the caller gives a place for a handle, or null.
            let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
            *place = handles::make(Info::new(Method::$method, Side::$side));
            SUCCESS
        }

        /// Ends an object.
        #[unsafe(no_mangle)]
        pub extern "C" fn $destroy(info: Handle) -> Status {
            if handles::end::<Info>(info) { SUCCESS } else { NOT_INITIALIZED }
        }
    )* };
}
objects! {
    cusolverSpCreateCsrluInfoHost cusolverSpDestroyCsrluInfoHost Lu Host;
    cusolverSpCreateCsrqrInfoHost cusolverSpDestroyCsrqrInfoHost Qr Host;
    cusolverSpCreateCsrcholInfoHost cusolverSpDestroyCsrcholInfoHost Cholesky Host;
    cusolverSpCreateCsrqrInfo cusolverSpDestroyCsrqrInfo Qr Device;
    cusolverSpCreateCsrcholInfo cusolverSpDestroyCsrcholInfo Cholesky Device;
}

/// The matrix of a function's arguments.
macro_rules! given {
    ($place:ident($handle:ident) [$m:expr, $n:expr, $count:expr] $descriptor:ident $values:expr, $starts:ident $indices:ident) => {
        $place($handle)
            .and_then(|place| Given::new(place, [$m, $n, $count], $descriptor, $values, [$starts, $indices]))
    };
}

/// The functions of LU (`threshold`) or Cholesky's method: of square matrices.
macro_rules! square {
    ($method:ident $side:ident $place:ident $analysis:ident;
        $($kind:ident $real:ty, ($($threshold:ident)?): $buffer:ident $factor:ident $pivot:ident $solve:ident;)*) => {
        /// Analyses a matrix.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $analysis(
            handle: Handle, n: c_int, count: c_int, descriptor: Handle, starts: usize, indices: usize, info: Handle,
        ) -> Status {
            let given = given!($place(handle) [n, n, count] descriptor None, starts indices);
            status(Target { info, method: Method::$method, side: Side::$side }.analyse([n, n, count], given))
        }
    $(
        /// Returns the length of the buffer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $buffer(
            handle: Handle, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize, indices: usize,
            info: Handle, internal: *mut usize, work: *mut usize,
        ) -> Status {
            let kind = Type::$kind;
            let given = given!($place(handle) [n, n, count] descriptor Some(kind.at(values)), starts indices);
            let target = Target { info, method: Method::$method, side: Side::$side };
            status(target.buffer([n, n, count], kind, given, [internal, work]))
        }

        /// Factorizes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $factor(
            handle: Handle, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize, indices: usize,
            info: Handle, $($threshold: $real,)? _buffer: usize,
        ) -> Status {
            let kind = Type::$kind;
            let thresholds: &[$real] = &[$($threshold)?];
            let threshold = thresholds.first().map_or(1.0, |threshold| f64::from(*threshold));
            let given = given!($place(handle) [n, n, count] descriptor Some(kind.at(values)), starts indices);
            let target = Target { info, method: Method::$method, side: Side::$side };
            status(target.factor([n, n, count], kind, Some(given), threshold))
        }

        /// Returns where the matrix is singular.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pivot(
            handle: Handle, info: Handle, tolerance: $real, place: *mut c_int,
        ) -> Status {
            let target = Target { info, method: Method::$method, side: Side::$side };
            status($place(handle).and_then(|_| target.zero_pivot(Type::$kind, tolerance.into(), place)))
        }

        /// Solves.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $solve(
            handle: Handle, n: c_int, b: usize, x: usize, info: Handle, _buffer: usize,
        ) -> Status {
            let target = Target { info, method: Method::$method, side: Side::$side };
            status(target.solve($place(handle), [n, n], Type::$kind, [b, x]))
        }
    )* };
}
square! {
    Lu Host host cusolverSpXcsrluAnalysisHost;
    F32 f32, (threshold): cusolverSpScsrluBufferInfoHost cusolverSpScsrluFactorHost cusolverSpScsrluZeroPivotHost cusolverSpScsrluSolveHost;
    F64 f64, (threshold): cusolverSpDcsrluBufferInfoHost cusolverSpDcsrluFactorHost cusolverSpDcsrluZeroPivotHost cusolverSpDcsrluSolveHost;
    C32 f32, (threshold): cusolverSpCcsrluBufferInfoHost cusolverSpCcsrluFactorHost cusolverSpCcsrluZeroPivotHost cusolverSpCcsrluSolveHost;
    C64 f64, (threshold): cusolverSpZcsrluBufferInfoHost cusolverSpZcsrluFactorHost cusolverSpZcsrluZeroPivotHost cusolverSpZcsrluSolveHost;
}
square! {
    Cholesky Host host cusolverSpXcsrcholAnalysisHost;
    F32 f32, (): cusolverSpScsrcholBufferInfoHost cusolverSpScsrcholFactorHost cusolverSpScsrcholZeroPivotHost cusolverSpScsrcholSolveHost;
    F64 f64, (): cusolverSpDcsrcholBufferInfoHost cusolverSpDcsrcholFactorHost cusolverSpDcsrcholZeroPivotHost cusolverSpDcsrcholSolveHost;
    C32 f32, (): cusolverSpCcsrcholBufferInfoHost cusolverSpCcsrcholFactorHost cusolverSpCcsrcholZeroPivotHost cusolverSpCcsrcholSolveHost;
    C64 f64, (): cusolverSpZcsrcholBufferInfoHost cusolverSpZcsrcholFactorHost cusolverSpZcsrcholZeroPivotHost cusolverSpZcsrcholSolveHost;
}
square! {
    Cholesky Device device cusolverSpXcsrcholAnalysis;
    F32 f32, (): cusolverSpScsrcholBufferInfo cusolverSpScsrcholFactor cusolverSpScsrcholZeroPivot cusolverSpScsrcholSolve;
    F64 f64, (): cusolverSpDcsrcholBufferInfo cusolverSpDcsrcholFactor cusolverSpDcsrcholZeroPivot cusolverSpDcsrcholSolve;
    C32 f32, (): cusolverSpCcsrcholBufferInfo cusolverSpCcsrcholFactor cusolverSpCcsrcholZeroPivot cusolverSpCcsrcholSolve;
    C64 f64, (): cusolverSpZcsrcholBufferInfo cusolverSpZcsrcholFactor cusolverSpZcsrcholZeroPivot cusolverSpZcsrcholSolve;
}

/// The functions of QR.
macro_rules! orthogonal {
    ($side:ident $place:ident $analysis:ident;
        $($kind:ident $real:ty, $element:ty: $buffer:ident $setup:ident $factor:ident $pivot:ident $solve:ident;)*) => {
        /// Analyses a matrix.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $analysis(
            handle: Handle, m: c_int, n: c_int, count: c_int, descriptor: Handle, starts: usize, indices: usize,
            info: Handle,
        ) -> Status {
            let given = given!($place(handle) [m, n, count] descriptor None, starts indices);
            status(Target { info, method: Method::Qr, side: Side::$side }.analyse([m, n, count], given))
        }
    $(
        /// Returns the length of the buffer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $buffer(
            handle: Handle, m: c_int, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize,
            indices: usize, info: Handle, internal: *mut usize, work: *mut usize,
        ) -> Status {
            let kind = Type::$kind;
            let given = given!($place(handle) [m, n, count] descriptor Some(kind.at(values)), starts indices);
            let target = Target { info, method: Method::Qr, side: Side::$side };
            status(target.buffer([m, n, count], kind, given, [internal, work]))
        }

        /// Takes the matrix. One that is shifted is not supported.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $setup(
            handle: Handle, m: c_int, n: c_int, count: c_int, descriptor: Handle, values: usize, starts: usize,
            indices: usize, mu: $element, info: Handle,
        ) -> Status {
            if mu != <$element>::default() {
                return NOT_SUPPORTED;
            }
            let kind = Type::$kind;
            let given = given!($place(handle) [m, n, count] descriptor Some(kind.at(values)), starts indices);
            let target = Target { info, method: Method::Qr, side: Side::$side };
            status(target.set_up([m, n, count], kind, given))
        }

        /// Factorizes, and solves if there are places for a right-hand side and a solution.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $factor(
            handle: Handle, m: c_int, n: c_int, count: c_int, b: usize, x: usize, info: Handle, _buffer: usize,
        ) -> Status {
            let target = Target { info, method: Method::Qr, side: Side::$side };
            let done = $place(handle).and_then(|_| target.factor([m, n, count], Type::$kind, None, 1.0));
            status(done.and_then(|()| match (b, x) {
                (0, _) | (_, 0) => Ok(()),
                _ => target.solve($place(handle), [m, n], Type::$kind, [b, x]),
            }))
        }

        /// Returns where the matrix is singular.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pivot(
            handle: Handle, info: Handle, tolerance: $real, place: *mut c_int,
        ) -> Status {
            let target = Target { info, method: Method::Qr, side: Side::$side };
            status($place(handle).and_then(|_| target.zero_pivot(Type::$kind, tolerance.into(), place)))
        }

        /// Solves.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $solve(
            handle: Handle, m: c_int, n: c_int, b: usize, x: usize, info: Handle, _buffer: usize,
        ) -> Status {
            let target = Target { info, method: Method::Qr, side: Side::$side };
            status(target.solve($place(handle), [m, n], Type::$kind, [b, x]))
        }
    )* };
}
orthogonal! {
    Host host cusolverSpXcsrqrAnalysisHost;
    F32 f32, f32: cusolverSpScsrqrBufferInfoHost cusolverSpScsrqrSetupHost cusolverSpScsrqrFactorHost
        cusolverSpScsrqrZeroPivotHost cusolverSpScsrqrSolveHost;
    F64 f64, f64: cusolverSpDcsrqrBufferInfoHost cusolverSpDcsrqrSetupHost cusolverSpDcsrqrFactorHost
        cusolverSpDcsrqrZeroPivotHost cusolverSpDcsrqrSolveHost;
    C32 f32, C32: cusolverSpCcsrqrBufferInfoHost cusolverSpCcsrqrSetupHost cusolverSpCcsrqrFactorHost
        cusolverSpCcsrqrZeroPivotHost cusolverSpCcsrqrSolveHost;
    C64 f64, C64: cusolverSpZcsrqrBufferInfoHost cusolverSpZcsrqrSetupHost cusolverSpZcsrqrFactorHost
        cusolverSpZcsrqrZeroPivotHost cusolverSpZcsrqrSolveHost;
}
orthogonal! {
    Device device cusolverSpXcsrqrAnalysis;
    F32 f32, f32: cusolverSpScsrqrBufferInfo cusolverSpScsrqrSetup cusolverSpScsrqrFactor
        cusolverSpScsrqrZeroPivot cusolverSpScsrqrSolve;
    F64 f64, f64: cusolverSpDcsrqrBufferInfo cusolverSpDcsrqrSetup cusolverSpDcsrqrFactor
        cusolverSpDcsrqrZeroPivot cusolverSpDcsrqrSolve;
    C32 f32, C32: cusolverSpCcsrqrBufferInfo cusolverSpCcsrqrSetup cusolverSpCcsrqrFactor
        cusolverSpCcsrqrZeroPivot cusolverSpCcsrqrSolve;
    C64 f64, C64: cusolverSpZcsrqrBufferInfo cusolverSpZcsrqrSetup cusolverSpZcsrqrFactor
        cusolverSpZcsrqrZeroPivot cusolverSpZcsrqrSolve;
}

/// The object of a factorization by LU.
fn of_lu(info: Handle) -> Target {
    Target { info, method: Method::Lu, side: Side::Host }
}

/// L without its diagonal, U, and the order of rows.
fn lu_factors(info: Handle, kind: Option<Type>) -> Result<(Csr, Csr, Vec<usize>), Status> {
    of_lu(info).with(|info| match info.factors(kind.or(info.kind).ok_or(INVALID_VALUE)?)? {
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

macro_rules! extracts {
    ($($name:ident $kind:ident,)*) => { $(
        /// P A Q^T = L U.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: Handle, p: usize, q: usize, of_lower: Handle, lower: usize, lower_starts: usize, lower_indices: usize,
            of_upper: Handle, upper: usize, upper_starts: usize, upper_indices: usize, info: Handle, _buffer: usize,
        ) -> Status {
            let lower = (of_lower, [lower, lower_starts, lower_indices]);
            let upper = (of_upper, [upper, upper_starts, upper_indices]);
            status(extract(handle, Type::$kind, [p, q], [lower, upper], info))
        }
    )* };
}
extracts! {
    cusolverSpScsrluExtractHost F32, cusolverSpDcsrluExtractHost F64, cusolverSpCcsrluExtractHost C32,
    cusolverSpZcsrluExtractHost C64,
}

fn diagonal(handle: Handle, kind: Type, info: Handle, at: usize) -> Result<(), Status> {
    let place = device(handle)?;
    let target = Target { info, method: Method::Cholesky, side: Side::Device };
    let values = target.with(|info| match info.factors(kind)? {
        Factors::Cholesky(cholesky) => {
            Ok(cholesky.diagonal().iter().map(|value| C64::new(*value, 0.0)).collect::<Vec<_>>())
        }
        _ => Err(INVALID_VALUE),
    })?;
    place.run(move |place| place.set_elements(kind.real(), at, &values))
}

macro_rules! diagonals {
    ($($name:ident $kind:ident,)*) => { $(
        /// The diagonal of L.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(handle: Handle, info: Handle, diag: usize) -> Status {
            status(diagonal(handle, Type::$kind, info, diag))
        }
    )* };
}
diagonals! {
    cusolverSpScsrcholDiag F32, cusolverSpDcsrcholDiag F64, cusolverSpCcsrcholDiag C32, cusolverSpZcsrcholDiag C64,
}
