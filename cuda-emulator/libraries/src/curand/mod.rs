// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuRAND's generators of its host API, for device and host memory. XORWOW, MRG32k3a, Philox and Sobol's sequences have the numbers
//! and the order of NVIDIA's library; the Mersenne twisters and the Poisson distribution have others.

mod budget;
mod generator;
mod interleaved;
mod mrg32k3a;
#[cfg(test)]
mod numbers_test;
pub mod philox;
mod poisson;
mod sobol;
mod source;
pub mod values;
mod xorwow;

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::exported::exported;
use crate::handles::{self, Handle};
use crate::stream::Stream;
use generator::{Generator, Kind};
use poisson::Poisson;
use source::Source;

/// `curandStatus_t`
pub type Status = i32;

/// `CURAND_STATUS_SUCCESS`
pub const SUCCESS: Status = 0;
const NOT_INITIALIZED: Status = 101;
const ALLOCATION_FAILED: Status = 102;
const TYPE_ERROR: Status = 103;
/// `CURAND_STATUS_OUT_OF_RANGE`
pub const OUT_OF_RANGE: Status = 104;
const LENGTH_NOT_MULTIPLE: Status = 105;
const LAUNCH_FAILURE: Status = 201;
/// `CURAND_STATUS_ARCH_MISMATCH`: it is not served here.
const NOT_SUPPORTED: Status = 204;

/// The version that `curandGetVersion` answers: 10.4.0.
pub const VERSION: c_int = 10_400;
/// The largest mean of a Poisson distribution.
const MAX_MEAN: f64 = 400_000.0;

fn with<R>(generator: Handle, body: impl FnOnce(&mut Generator) -> R) -> Result<R, Status> {
    handles::with(generator, body).ok_or(NOT_INITIALIZED)
}

fn status(result: Result<Result<(), Status>, Status>) -> Status {
    result.flatten().err().unwrap_or(SUCCESS)
}

fn create(place: *mut Handle, kind: c_int, is_host: bool) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    let Some(place) = (unsafe { place.as_mut() }) else { return NOT_INITIALIZED };
    match Kind::of(kind) {
        Ok(kind) => {
            *place = handles::make(Generator::new(kind, is_host));
            SUCCESS
        }
        Err(status) => status,
    }
}

/// Creates a generator that fills device memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandCreateGenerator(place: *mut Handle, kind: c_int) -> Status {
    create(place, kind, false)
}

/// Creates a generator that fills the program's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandCreateGeneratorHost(place: *mut Handle, kind: c_int) -> Status {
    create(place, kind, true)
}

/// Ends a generator.
#[unsafe(no_mangle)]
pub extern "C" fn curandDestroyGenerator(generator: Handle) -> Status {
    if handles::end::<Generator>(generator) { SUCCESS } else { NOT_INITIALIZED }
}

/// The version of the API that these functions follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(version) = (unsafe { version.as_mut() }) else { return OUT_OF_RANGE };
    *version = VERSION;
    SUCCESS
}

/// Sets the stream of a generator.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetStream(generator: Handle, stream: Stream) -> Status {
    status(with(generator, |generator| {
        generator.stream = stream;
        Ok(())
    }))
}

/// Sets the seed of a generator.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetPseudoRandomGeneratorSeed(generator: Handle, seed: u64) -> Status {
    status(with(generator, |generator| generator.set_seed(seed)))
}

/// Sets how many results are left out from the beginning.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetGeneratorOffset(generator: Handle, offset: u64) -> Status {
    status(with(generator, |generator| generator.set_offset(offset)))
}

/// Takes an order of results.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetGeneratorOrdering(generator: Handle, order: c_int) -> Status {
    status(with(generator, |generator| generator.set_order(order)))
}

/// Sets the number of dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetQuasiRandomGeneratorDimensions(generator: Handle, dimensions: u32) -> Status {
    status(with(generator, |generator| generator.set_dimensions(dimensions as usize)))
}

/// Recreates the state of the streams.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateSeeds(generator: Handle) -> Status {
    status(with(generator, |generator| {
        generator.begin();
        Ok(())
    }))
}

/// Fills places with the numbers of a source.
fn plain<T: Copy + Default + Send + 'static>(
    generator: Handle,
    output: usize,
    count: usize,
    fill: fn(&mut dyn Source, &mut [T]),
) -> Status {
    status(with(generator, |generator| generator.fill(output, count, false, fill)))
}

/// 32 random bits each.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerate(generator: Handle, output: usize, count: usize) -> Status {
    match with(generator, |generator| generator.kind()) {
        Ok(Kind::Sobol64) => TYPE_ERROR,
        _ => plain::<u32>(generator, output, count, |source, places| source.words(places)),
    }
}

/// 64 random bits each.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateLongLong(generator: Handle, output: usize, count: usize) -> Status {
    match with(generator, |generator| generator.kind()) {
        Ok(Kind::Sobol64) => {
            plain::<u64>(generator, output, count, |source, places| source.long_words(places))
        }
        Ok(_) => TYPE_ERROR,
        Err(status) => status,
    }
}

/// Numbers above 0, up to 1.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateUniform(generator: Handle, output: usize, count: usize) -> Status {
    plain::<f32>(generator, output, count, |source, places| source.uniform(places))
}

/// Numbers above 0, up to 1.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateUniformDouble(generator: Handle, output: usize, count: usize) -> Status {
    plain::<f64>(generator, output, count, |source, places| source.uniform_double(places))
}

/// Fills places with normal numbers, changed by `value`.
fn normal<T: Copy + Default + Send + 'static>(
    generator: Handle,
    output: usize,
    count: usize,
    fill: fn(&mut dyn Source, &mut [T]),
    value: impl Fn(T) -> T + Send + Sync + 'static,
) -> Status {
    let fill = move |source: &mut dyn Source, places: &mut [T]| {
        fill(source, places);
        places.iter_mut().for_each(|place| *place = value(*place));
    };
    status(with(generator, |generator| generator.fill(output, count, true, fill)))
}

exported! {
    /// A normal distribution.
    pub extern "C" fn<Real>(fill) [
        curandGenerateNormal<f32>(|source: &mut dyn Source, places: &mut [f32]| source.normal(places)),
        curandGenerateNormalDouble<f64>(|source: &mut dyn Source, places: &mut [f64]| source.normal_double(places)),
    ]
    (generator: Handle, output: usize, count: usize, mean: Real, deviation: Real) -> Status {
        normal(generator, output, count, fill, move |number: Real| mean + deviation * number)
    }

    /// A distribution whose logarithm is normal.
    pub extern "C" fn<Real>(fill) [
        curandGenerateLogNormal<f32>(|source: &mut dyn Source, places: &mut [f32]| source.normal(places)),
        curandGenerateLogNormalDouble<f64>(|source: &mut dyn Source, places: &mut [f64]| source.normal_double(places)),
    ]
    (generator: Handle, output: usize, count: usize, mean: Real, deviation: Real) -> Status {
        normal(generator, output, count, fill, move |number: Real| (mean + deviation * number).exp())
    }
}

/// A Poisson distribution.
#[unsafe(no_mangle)]
pub extern "C" fn curandGeneratePoisson(
    generator: Handle,
    output: usize,
    count: usize,
    lambda: f64,
) -> Status {
    // Also for a NaN.
    if !(lambda > 0.0 && lambda <= MAX_MEAN) {
        return OUT_OF_RANGE;
    }
    let poisson = Poisson::new(lambda);
    let fill = move |source: &mut dyn Source, places: &mut [u32]| {
        source.words(places);
        places.iter_mut().for_each(|place| *place = poisson.number(*place));
    };
    status(with(generator, |generator| generator.fill(output, count, false, fill)))
}

exported! {
    /// Returns the direction numbers of Sobol's sequences, without the scrambled ones. They stay for ever.
    pub unsafe extern "C" fn<Number>(bits, wanted) [
        curandGetDirectionVectors32<u32>(32, 101), curandGetDirectionVectors64<u64>(64, 103),
    ]
    (place: *mut *const Number, set: c_int) -> Status {
        static TABLE: OnceLock<Vec<Number>> = OnceLock::new();
        // SAFETY: the caller gives a place for an address, or null.
        let Some(place) = (unsafe { place.as_mut() }) else { return OUT_OF_RANGE };
        if set == wanted + 1 {
            // The numbers of scrambled sequences are NVIDIA's own.
            return NOT_SUPPORTED;
        }
        if set != wanted {
            return OUT_OF_RANGE;
        }
        let table = TABLE.get_or_init(|| {
            let dimensions = sobol::directions(sobol::MAX_DIMENSIONS);
            let numbers = dimensions.iter().flat_map(|directions| &directions[..bits]);
            numbers.map(|number| (number >> (64 - bits)) as Number).collect()
        });
        *place = table.as_ptr();
        SUCCESS
    }
}
