// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Refactorization: P A Q^T = L U for matrices whose factors have the places of those of a first one. L has a diagonal of ones. The
//! work is in the default stream.

mod factors;

use std::ffi::{c_int, c_void};

use super::super::{
    EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED, SUCCESS, Status, size, status,
};
use super::{Place, answer, permutation, position};
use crate::exported::exported;
use crate::handles::{self, Handle};
use crate::memory::address_at;
use crate::numbers::{C64, Type};
use crate::sparse::matrix::Csr;
use crate::stream::Fault;
use factors::{Factors, Given};

/// `CUSOLVERRF_UNIT_DIAGONAL_STORED_L` and `CUSOLVERRF_UNIT_DIAGONAL_ASSUMED_L`.
const STORED_LOWER: c_int = 0;
const ASSUMED_LOWER: c_int = 2;

const DEVICE: Place = Place::Device(0);

/// A `cusolverRfHandle_t`.
#[derive(Debug, Default)]
struct Refactor {
    format: c_int,
    diagonal: c_int,
    zero: f64,
    boost: f64,
    was_boosted: c_int,
    algorithm: c_int,
    solution: c_int,
    is_fast: c_int,
    factors: Option<Factors>,
}

fn reals(place: Place, at: usize, count: usize) -> Result<Vec<f64>, Fault> {
    Ok(place.elements(Type::F64, at, count)?.into_iter().map(|value| value.re).collect())
}

fn with<R>(handle: Handle, body: impl FnOnce(&mut Refactor) -> Result<R, Status>) -> Result<R, Status> {
    handles::with(handle, body).unwrap_or(Err(NOT_INITIALIZED))
}

fn with_factors<R>(
    handle: Handle,
    body: impl FnOnce(&mut Factors) -> Result<R, Status>,
) -> Result<R, Status> {
    with(handle, |refactor| body(refactor.factors.as_mut().ok_or(INVALID_VALUE)?))
}

/// Creates a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverRfCreate(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    *place = handles::make(Refactor { solution: 1, ..Refactor::default() });
    SUCCESS
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfDestroy(handle: Handle) -> Status {
    if handles::end::<Refactor>(handle) { SUCCESS } else { NOT_INITIALIZED }
}

/// Sets the form of factors: rows, and a diagonal of ones in L.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfSetMatrixFormat(handle: Handle, format: c_int, diagonal: c_int) -> Status {
    if format != 0 || ![STORED_LOWER, ASSUMED_LOWER].contains(&diagonal) {
        return NOT_SUPPORTED;
    }
    status(with(handle, |refactor| {
        (refactor.format, refactor.diagonal) = (format, diagonal);
        Ok(())
    }))
}

/// Sets the size of a zero, and what replaces it.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfSetNumericProperties(handle: Handle, zero: f64, boost: f64) -> Status {
    status(with(handle, |refactor| {
        (refactor.zero, refactor.boost) = (zero, boost);
        Ok(())
    }))
}

/// Takes the choice of algorithms, of which there is one.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfSetAlgs(handle: Handle, algorithm: c_int, solution: c_int) -> Status {
    status(with(handle, |refactor| {
        (refactor.algorithm, refactor.solution) = (algorithm, solution);
        Ok(())
    }))
}

/// Takes the mode, which changes nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfSetResetValuesFastMode(handle: Handle, mode: c_int) -> Status {
    status(with(handle, |refactor| {
        refactor.is_fast = mode;
        Ok(())
    }))
}

exported! {
    /// Returns a setting or a result.
    pub unsafe extern "C" fn(get) [
        cusolverRfGetNumericBoostReport(|refactor: &mut Refactor| refactor.was_boosted),
        cusolverRfGetResetValuesFastMode(|refactor: &mut Refactor| refactor.is_fast),
    ]
    (handle: Handle, place: *mut c_int) -> Status {
        status(with(handle, |refactor| answer(place, get(refactor))))
    }

    /// Returns two settings.
    pub unsafe extern "C" fn(get) [
        cusolverRfGetMatrixFormat(|refactor: &mut Refactor| [refactor.format, refactor.diagonal]),
        cusolverRfGetAlgs(|refactor: &mut Refactor| [refactor.algorithm, refactor.solution]),
    ]
    (handle: Handle, first: *mut c_int, second: *mut c_int) -> Status {
        status(with(handle, |refactor| {
            let found = get(refactor);
            answer(first, found[0])?;
            answer(second, found[1])
        }))
    }
}

/// Returns the limits of small pivots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverRfGetNumericProperties(
    handle: Handle,
    zero: *mut f64,
    boost: *mut f64,
) -> Status {
    status(with(handle, |refactor| {
        answer(zero, refactor.zero)?;
        answer(boost, refactor.boost)
    }))
}

/// The arguments of a setup: sizes, and the addresses of A, L, U and the orders.
struct Setup {
    place: Place,
    n: c_int,
    counts: [c_int; 3],
    starts: [usize; 3],
    indices: [usize; 3],
    orders: [usize; 2],
}

impl Setup {
    /// `values`: the addresses of the elements of each matrix.
    fn run(self, handle: Handle, values: Vec<usize>) -> Result<(), Status> {
        let (place, n) = (self.place, size(self.n)?);
        let [count, lower, upper] = self.counts.map(size);
        let (count, lower, upper) = (count?, lower?, upper?);
        if values.contains(&0) || self.starts.contains(&0) || self.indices.contains(&0) {
            return Err(INVALID_VALUE);
        }
        let given =
            Given::read(place, n, count, [self.starts[0], self.indices[0], self.orders[0], self.orders[1]])?;
        let factor = |which: usize, count: usize| {
            let at = (self.starts[which], self.indices[which]);
            let (starts, indices) =
                place.run(move |place| Ok((place.integers(at.0, n + 1)?, place.integers(at.1, count)?)))?;
            Csr::new(n, &starts, &indices, Vec::new(), 0).ok_or(INVALID_VALUE)
        };
        let places = Factors::places(&factor(1, lower)?, &factor(2, upper)?).ok_or(INVALID_VALUE)?;
        let read = move |place: Place| values.iter().map(|at| reals(place, *at, count)).collect();
        let values: Vec<Vec<f64>> = place.run(read)?;
        let assembled = values.iter().map(|values| Factors::assemble(&places, &given, values));
        let values: Vec<Vec<f64>> = assembled.collect::<Option<_>>().ok_or(INVALID_VALUE)?;
        let zeros = vec![None; values.len()];
        with(handle, |refactor| {
            refactor.factors = Some(Factors { places, values, zeros });
            Ok(())
        })
    }
}

exported! {
    /// Takes a matrix and the places of its factors.
    pub unsafe extern "C" fn(place) [cusolverRfSetupHost(Place::Host), cusolverRfSetupDevice(DEVICE)]
    (
        n: c_int, count: c_int, a_starts: usize, a_indices: usize, a: usize, lower_count: c_int, lower_starts: usize,
        lower_indices: usize, _lower: usize, upper_count: c_int, upper_starts: usize, upper_indices: usize, _upper: usize,
        p: usize, q: usize, handle: Handle,
    ) -> Status {
        let setup = Setup {
            place,
            n,
            counts: [count, lower_count, upper_count],
            starts: [a_starts, lower_starts, upper_starts],
            indices: [a_indices, lower_indices, upper_indices],
            orders: [p, q],
        };
        status(setup.run(handle, vec![a]))
    }
}

/// Takes matrices and the places of their factors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverRfBatchSetupHost(
    batch: c_int,
    n: c_int,
    count: c_int,
    a_starts: usize,
    a_indices: usize,
    a: *const usize,
    lower_count: c_int,
    lower_starts: usize,
    lower_indices: usize,
    _lower: usize,
    upper_count: c_int,
    upper_starts: usize,
    upper_indices: usize,
    _upper: usize,
    p: usize,
    q: usize,
    handle: Handle,
) -> Status {
    let setup = Setup {
        place: Place::Host,
        n,
        counts: [count, lower_count, upper_count],
        starts: [a_starts, lower_starts, upper_starts],
        indices: [a_indices, lower_indices, upper_indices],
        orders: [p, q],
    };
    let Ok(batch) = size(batch) else { return INVALID_VALUE };
    if a.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller gives so many addresses.
    let values = (0..batch).map(|index| unsafe { a.add(index).read_unaligned() }).collect();
    status(setup.run(handle, values))
}

/// Replaces the values of matrices. `values` reads them from device memory.
fn reset(
    handle: Handle,
    [n, count]: [c_int; 2],
    at: [usize; 4],
    values: impl Fn(Place, usize) -> Result<Vec<Vec<f64>>, Fault> + Send + Sync + 'static,
) -> Result<(), Status> {
    let (n, count) = (size(n)?, size(count)?);
    let given = Given::read(DEVICE, n, count, at)?;
    let values = DEVICE.run(move |place| values(place, count))?;
    with_factors(handle, |factors| {
        if n != factors.places.rows() || values.len() != factors.values.len() {
            return Err(INVALID_VALUE);
        }
        let assembled = values.iter().map(|values| Factors::assemble(&factors.places, &given, values));
        factors.values = assembled.collect::<Option<_>>().ok_or(INVALID_VALUE)?;
        Ok(())
    })
}

/// Replaces the values of a matrix.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfResetValues(
    n: c_int,
    count: c_int,
    starts: usize,
    indices: usize,
    a: usize,
    p: usize,
    q: usize,
    handle: Handle,
) -> Status {
    let values = move |place: Place, count: usize| Ok(vec![reals(place, a, count)?]);
    status(reset(handle, [n, count], [starts, indices, p, q], values))
}

/// The addresses in an array of device memory.
fn addresses(array: usize, count: usize) -> Result<Vec<usize>, Fault> {
    (0..count).map(|index| address_at(array, index)).collect()
}

/// Replaces the values of matrices.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfBatchResetValues(
    batch: c_int,
    n: c_int,
    count: c_int,
    starts: usize,
    indices: usize,
    a: usize,
    p: usize,
    q: usize,
    handle: Handle,
) -> Status {
    let Ok(batch) = size(batch) else { return INVALID_VALUE };
    let values = move |place: Place, count: usize| {
        addresses(a, batch)?.into_iter().map(|at| reals(place, at, count)).collect()
    };
    status(reset(handle, [n, count], [starts, indices, p, q], values))
}

exported! {
    /// Nothing is to be analysed.
    pub extern "C" fn [cusolverRfAnalyze, cusolverRfBatchAnalyze]
    (handle: Handle) -> Status {
        status(with_factors(handle, |_| Ok(())))
    }

    /// Factorizes.
    pub extern "C" fn [cusolverRfRefactor, cusolverRfBatchRefactor]
    (handle: Handle) -> Status {
        status(with(handle, |refactor| {
            let (zero, boost) = (refactor.zero, refactor.boost);
            let factors = refactor.factors.as_mut().ok_or(INVALID_VALUE)?;
            refactor.was_boosted = c_int::from(factors.factor(zero, boost));
            Ok(())
        }))
    }
}

/// Solves with each matrix, in place of the right-hand sides at the addresses `places`.
fn solve(
    handle: Handle,
    [p, q]: [usize; 2],
    sides: c_int,
    places: impl Fn(usize) -> Result<Vec<usize>, Fault> + Send + Sync + 'static,
) -> Result<(), Status> {
    if sides != 1 {
        return Err(INVALID_VALUE);
    }
    let (n, batch) = with_factors(handle, |factors| Ok((factors.places.rows(), factors.values.len())))?;
    let (p, q, places, right) = DEVICE.run(move |place| {
        let places = places(batch)?;
        let right: Result<Vec<_>, Fault> = places.iter().map(|at| reals(place, *at, n)).collect();
        Ok((place.integers(p, n)?, place.integers(q, n)?, places, right?))
    })?;
    let orders = permutation(&p).zip(permutation(&q)).ok_or(INVALID_VALUE)?;
    let solutions = with_factors(handle, |factors| {
        if (factors.places.rows(), factors.values.len()) != (n, batch) {
            return Err(EXECUTION_FAILED);
        }
        let solve = |(matrix, b): (usize, &Vec<f64>)| factors.solve(matrix, &orders.0, &orders.1, b);
        Ok(right.iter().enumerate().map(solve).collect::<Vec<_>>())
    })?;
    DEVICE.run(move |place| {
        for (at, solution) in places.iter().zip(&solutions) {
            let values: Vec<C64> = solution.iter().map(|value| C64::new(*value, 0.0)).collect();
            place.set_elements(Type::F64, *at, &values)?;
        }
        Ok(())
    })
}

/// Solves A x = b.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfSolve(
    handle: Handle,
    p: usize,
    q: usize,
    sides: c_int,
    _work: usize,
    _work_step: c_int,
    x: usize,
    _step: c_int,
) -> Status {
    status(solve(handle, [p, q], sides, move |_| Ok(vec![x])))
}

/// Solves A x = b for each matrix.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverRfBatchSolve(
    handle: Handle,
    p: usize,
    q: usize,
    sides: c_int,
    _work: usize,
    _work_step: c_int,
    x: usize,
    _step: c_int,
) -> Status {
    status(solve(handle, [p, q], sides, move |batch| addresses(x, batch)))
}

/// Returns where each matrix is singular.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverRfBatchZeroPivot(handle: Handle, places: *mut c_int) -> Status {
    status(with_factors(handle, |factors| {
        for (index, zero) in factors.zeros.iter().enumerate() {
            // SAFETY: the caller gives so many places, or null.
            answer(if places.is_null() { places } else { unsafe { places.add(index) } }, position(*zero))?;
        }
        Ok(())
    }))
}

/// Memory with these values, which the caller frees.
fn allocated<T: Copy>(place: *mut *mut T, values: &[T]) -> Result<(), Status> {
    // SAFETY: any length may be asked for.
    let memory: *mut c_void = unsafe { libc::malloc(size_of_val(values).max(1)) };
    if memory.is_null() {
        return Err(EXECUTION_FAILED);
    }
    // SAFETY: the memory is new, and as long.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), memory.cast(), values.len()) };
    answer(place, memory.cast())
}

/// The places for a matrix, each of which the caller gives, or null.
struct Places {
    /// Of the number of elements.
    count: *mut c_int,
    /// Of the row pointers.
    starts: *mut *mut c_int,
    /// Of the columns of elements.
    indices: *mut *mut c_int,
    /// Of the elements.
    values: *mut *mut f64,
}

/// Writes the elements of the first matrix for which `has` returns the value.
fn extract(
    factors: &Factors,
    has: impl Fn(usize, usize) -> bool,
    ones: bool,
    Places { count, starts, indices, values }: Places,
) -> Result<(), Status> {
    let (mut row_starts, mut columns, mut elements) = (vec![0], Vec::new(), Vec::new());
    for row in 0..factors.places.rows() {
        for at in factors.places.starts[row]..factors.places.starts[row + 1] {
            let column = factors.places.indices[at];
            if has(row, column) {
                columns.push(column as c_int);
                elements.push(factors.values.first().ok_or(INVALID_VALUE)?[at]);
            } else if ones && row == column {
                columns.push(column as c_int);
                elements.push(1.0);
            }
        }
        row_starts.push(columns.len() as c_int);
    }
    if [starts, indices].iter().any(|place| place.is_null()) || values.is_null() {
        return Err(INVALID_VALUE);
    }
    answer(count, columns.len() as c_int)?;
    allocated(starts, &row_starts)?;
    allocated(indices, &columns)?;
    allocated(values, &elements)
}

/// L and U in one matrix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverRfExtractBundledFactorsHost(
    handle: Handle,
    count: *mut c_int,
    starts: *mut *mut c_int,
    indices: *mut *mut c_int,
    values: *mut *mut f64,
) -> Status {
    let places = Places { count, starts, indices, values };
    status(with_factors(handle, |factors| extract(factors, |_, _| true, false, places)))
}

/// L and U.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverRfExtractSplitFactorsHost(
    handle: Handle,
    lower_count: *mut c_int,
    lower_starts: *mut *mut c_int,
    lower_indices: *mut *mut c_int,
    lower: *mut *mut f64,
    upper_count: *mut c_int,
    upper_starts: *mut *mut c_int,
    upper_indices: *mut *mut c_int,
    upper: *mut *mut f64,
) -> Status {
    status(with(handle, |refactor| {
        let ones = refactor.diagonal == STORED_LOWER;
        let factors = refactor.factors.as_ref().ok_or(INVALID_VALUE)?;
        let lower =
            Places { count: lower_count, starts: lower_starts, indices: lower_indices, values: lower };
        let upper =
            Places { count: upper_count, starts: upper_starts, indices: upper_indices, values: upper };
        extract(factors, |row, column| column < row, ones, lower)?;
        extract(factors, |row, column| column >= row, false, upper)
    }))
}
