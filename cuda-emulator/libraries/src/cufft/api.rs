// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The functions of cuFFT: plans are small numbers.

use std::ffi::c_int;

use super::plan::{Kind, Plan, Side};
use super::{EXEC_FAILED, INVALID_PLAN, INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status};
use crate::exported::exported;
use crate::handles::{self, Small};
use crate::numbers::Type;
use crate::stream::{self, Stream};

/// The version that `cufftGetVersion` answers: 12.0.0.
pub const VERSION: c_int = 12_000;

/// A `cufftHandle`: a plan that may not be made yet, and a stream.
#[derive(Debug, Default)]
struct Made {
    plan: Option<Plan>,
    stream: Stream,
}

fn with<R>(plan: c_int, body: impl FnOnce(&mut Made) -> R) -> Result<R, Status> {
    handles::with(Small::<Made>::key(plan), body).ok_or(INVALID_PLAN)
}

fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}

/// The types of a `cufftType`.
fn types(number: c_int) -> Result<[Type; 2], Status> {
    Ok(match number {
        0x29 => [Type::C32, Type::C32],
        0x2a => [Type::F32, Type::C32],
        0x2c => [Type::C32, Type::F32],
        0x69 => [Type::C64, Type::C64],
        0x6a => [Type::F64, Type::C64],
        0x6c => [Type::C64, Type::F64],
        _ => return Err(INVALID_VALUE),
    })
}

/// Creates a plan in an existing handle. The CPU needs no work area.
fn make_in(
    handle: c_int,
    types: Result<[Type; 2], Status>,
    sizes: &[i64],
    batch: i64,
    sides: [Side; 2],
    work: *mut usize,
) -> Result<(), Status> {
    let plan = Plan::new(types?, sizes, batch, sides)?;
    with(handle, |made| {
        if made.plan.is_some() {
            return Err(INVALID_PLAN);
        }
        made.plan = Some(plan);
        Ok(())
    })??;
    // SAFETY: the caller gives a place for a size, or null.
    if let Some(work) = unsafe { work.as_mut() } {
        *work = 0;
    }
    Ok(())
}

/// Creates a handle with a plan in it.
fn make(
    place: *mut c_int,
    types: Result<[Type; 2], Status>,
    sizes: &[i64],
    batch: i64,
    sides: [Side; 2],
) -> Result<(), Status> {
    let plan = Plan::new(types?, sizes, batch, sides)?;
    // SAFETY: the caller gives a place for a handle, or null.
    let place = unsafe { place.as_mut() }.ok_or(INVALID_VALUE)?;
    *place = Small::make(Made { plan: Some(plan), stream: 0 });
    Ok(())
}

/// A plan's list of numbers.
///
/// # Safety
///
/// `list` is null or has `rank` numbers.
unsafe fn numbers<T: Copy + Into<i64>>(list: *const T, rank: c_int) -> Result<Option<Vec<i64>>, Status> {
    let rank = usize::try_from(rank).ok().filter(|rank| (1..=3).contains(rank)).ok_or(INVALID_VALUE)?;
    if list.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so `rank` numbers by this function's contract.
    Ok(Some((0..rank).map(|at| unsafe { list.add(at).read() }.into()).collect()))
}

/// The sizes and sides of an advanced layout.
///
/// # Safety
///
/// As [`numbers`].
unsafe fn advanced<T: Copy + Into<i64>>(
    rank: c_int,
    [n, inembed, onembed]: [*const T; 3],
    [istride, idist, ostride, odist]: [i64; 4],
) -> Result<(Vec<i64>, [Side; 2]), Status> {
    // SAFETY: each list is null or has `rank` numbers by this function's contract.
    let (sizes, inside, outside) =
        unsafe { (numbers(n, rank)?, numbers(inembed, rank)?, numbers(onembed, rank)?) };
    // Without one of both, the data is packed.
    let (inside, outside) =
        if inside.is_some() && outside.is_some() { (inside, outside) } else { (None, None) };
    let sides = [
        Side { embed: inside, stride: istride, distance: idist },
        Side { embed: outside, stride: ostride, distance: odist },
    ];
    Ok((sizes.ok_or(INVALID_VALUE)?, sides))
}

/// Creates a plan for packed data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftPlan1d(place: *mut c_int, nx: c_int, kind: c_int, batch: c_int) -> Status {
    status(make(place, types(kind), &[nx.into()], batch.into(), Default::default()))
}

/// The same in a handle that exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftMakePlan1d(
    handle: c_int,
    nx: c_int,
    kind: c_int,
    batch: c_int,
    work: *mut usize,
) -> Status {
    status(make_in(handle, types(kind), &[nx.into()], batch.into(), Default::default(), work))
}

/// Creates a plan for packed data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftPlan2d(place: *mut c_int, nx: c_int, ny: c_int, kind: c_int) -> Status {
    status(make(place, types(kind), &[nx.into(), ny.into()], 1, Default::default()))
}

/// The same in a handle that exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftMakePlan2d(
    handle: c_int,
    nx: c_int,
    ny: c_int,
    kind: c_int,
    work: *mut usize,
) -> Status {
    status(make_in(handle, types(kind), &[nx.into(), ny.into()], 1, Default::default(), work))
}

/// Creates a plan for packed data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftPlan3d(
    place: *mut c_int,
    nx: c_int,
    ny: c_int,
    nz: c_int,
    kind: c_int,
) -> Status {
    status(make(place, types(kind), &[nx.into(), ny.into(), nz.into()], 1, Default::default()))
}

/// The same in a handle that exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftMakePlan3d(
    handle: c_int,
    nx: c_int,
    ny: c_int,
    nz: c_int,
    kind: c_int,
    work: *mut usize,
) -> Status {
    status(make_in(handle, types(kind), &[nx.into(), ny.into(), nz.into()], 1, Default::default(), work))
}

/// Creates a plan for data in an advanced layout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftPlanMany(
    place: *mut c_int,
    rank: c_int,
    n: *const c_int,
    inembed: *const c_int,
    istride: c_int,
    idist: c_int,
    onembed: *const c_int,
    ostride: c_int,
    odist: c_int,
    kind: c_int,
    batch: c_int,
) -> Status {
    let apart = [istride, idist, ostride, odist].map(i64::from);
    // SAFETY: the caller gives lists of `rank` numbers.
    let layout = unsafe { advanced(rank, [n, inembed, onembed], apart) };
    status(layout.and_then(|(sizes, sides)| make(place, types(kind), &sizes, i64::from(batch), sides)))
}

/// The same in a handle that exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftMakePlanMany(
    handle: c_int,
    rank: c_int,
    n: *const c_int,
    inembed: *const c_int,
    istride: c_int,
    idist: c_int,
    onembed: *const c_int,
    ostride: c_int,
    odist: c_int,
    kind: c_int,
    batch: c_int,
    work: *mut usize,
) -> Status {
    let apart = [istride, idist, ostride, odist].map(i64::from);
    // SAFETY: the caller gives lists of `rank` numbers.
    let layout = unsafe { advanced(rank, [n, inembed, onembed], apart) };
    status(
        layout.and_then(|(sizes, sides)| make_in(handle, types(kind), &sizes, i64::from(batch), sides, work)),
    )
}

/// The same with 64-bit sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftMakePlanMany64(
    handle: c_int,
    rank: c_int,
    n: *const i64,
    inembed: *const i64,
    istride: i64,
    idist: i64,
    onembed: *const i64,
    ostride: i64,
    odist: i64,
    kind: c_int,
    batch: i64,
    work: *mut usize,
) -> Status {
    // SAFETY: the caller gives lists of `rank` numbers.
    let layout = unsafe { advanced(rank, [n, inembed, onembed], [istride, idist, ostride, odist]) };
    status(layout.and_then(|(sizes, sides)| make_in(handle, types(kind), &sizes, batch, sides, work)))
}

/// The same with the types of elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftXtMakePlanMany(
    handle: c_int,
    rank: c_int,
    n: *const i64,
    inembed: *const i64,
    istride: i64,
    idist: i64,
    input: c_int,
    onembed: *const i64,
    ostride: i64,
    odist: i64,
    output: c_int,
    batch: i64,
    work: *mut usize,
    execution: c_int,
) -> Status {
    // SAFETY: the caller gives lists of `rank` numbers.
    let layout = unsafe { advanced(rank, [n, inembed, onembed], [istride, idist, ostride, odist]) };
    let of = |number| {
        Type::new(number).filter(|kind| matches!(kind, Type::F32 | Type::F64 | Type::C32 | Type::C64))
    };
    let kinds = match (of(input), of(output), of(execution)) {
        (Some(input), Some(output), Some(_)) => Ok([input, output]),
        _ => Err(NOT_SUPPORTED),
    };
    status(layout.and_then(|(sizes, sides)| make_in(handle, kinds, &sizes, batch, sides, work)))
}

/// Creates a handle without a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftCreate(place: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    *place = Small::make(Made::default());
    SUCCESS
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cufftDestroy(plan: c_int) -> Status {
    if handles::end::<Made>(Small::<Made>::key(plan)) { SUCCESS } else { INVALID_PLAN }
}

/// Sets the stream of a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cufftSetStream(plan: c_int, stream: Stream) -> Status {
    status(with(plan, |made| made.stream = stream))
}

/// Bytes of the work area: the CPU needs none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftGetSize(plan: c_int, work: *mut usize) -> Status {
    // SAFETY: the caller gives a place for a size, or null.
    let Some(work) = (unsafe { work.as_mut() }) else { return INVALID_VALUE };
    status(with(plan, |_| *work = 0))
}

/// Takes a setting that changes nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn cufftSetAutoAllocation(plan: c_int, _allocates: c_int) -> Status {
    status(with(plan, |_| ()))
}

/// Takes a work area, of which the CPU needs none.
#[unsafe(no_mangle)]
pub extern "C" fn cufftSetWorkArea(plan: c_int, _area: usize) -> Status {
    status(with(plan, |_| ()))
}

/// The version of the API that these functions follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(version) = (unsafe { version.as_mut() }) else { return INVALID_VALUE };
    *version = VERSION;
    SUCCESS
}

fn execute(
    handle: c_int,
    types: Option<[Type; 2]>,
    input: usize,
    output: usize,
    direction: c_int,
) -> Result<(), Status> {
    let (plan, stream) = with(handle, |made| (made.plan.clone(), made.stream))?;
    let plan = plan.ok_or(INVALID_PLAN)?;
    if types.is_some_and(|types| types != plan.types) || input == 0 || output == 0 {
        return Err(INVALID_VALUE);
    }
    let is_inverse = match (plan.kind, direction) {
        (Kind::Forward, _) | (Kind::Complex, -1) => false,
        (Kind::Inverse, _) | (Kind::Complex, 1) => true,
        _ => return Err(INVALID_VALUE),
    };
    stream::queue(stream, move || plan.execute(input, output, is_inverse)).map_err(|_| EXEC_FAILED)
}

exported! {
    /// Transforms complex numbers.
    pub extern "C" fn(kind) [cufftExecC2C(Type::C32), cufftExecZ2Z(Type::C64)]
    (plan: c_int, input: usize, output: usize, direction: c_int) -> Status {
        status(execute(plan, Some([kind, kind]), input, output, direction))
    }

    /// Transforms from or to real numbers.
    pub extern "C" fn(input_type, output_type) [
        cufftExecR2C(Type::F32, Type::C32), cufftExecC2R(Type::C32, Type::F32), cufftExecD2Z(Type::F64, Type::C64),
        cufftExecZ2D(Type::C64, Type::F64),
    ]
    (plan: c_int, input: usize, output: usize) -> Status {
        status(execute(plan, Some([input_type, output_type]), input, output, 0))
    }
}

/// Transforms by a plan of any types.
#[unsafe(no_mangle)]
pub extern "C" fn cufftXtExec(plan: c_int, input: usize, output: usize, direction: c_int) -> Status {
    status(execute(plan, None, input, output, direction))
}
