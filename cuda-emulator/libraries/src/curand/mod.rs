// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuRAND's generators on the host's side. All types use one generator, Philox4x32-10: numbers are reproducible and have the
//! right distributions, but are not those of NVIDIA's library.

mod philox;

use std::ffi::c_int;

use crate::handles::{self, Handle};
use crate::memory::pointer;
use crate::stream::{self, Stream};
pub use philox::Philox;

/// `curandStatus_t`
type Status = i32;

const SUCCESS: Status = 0;
const NOT_INITIALIZED: Status = 101;
const TYPE_ERROR: Status = 103;
const OUT_OF_RANGE: Status = 104;
const LAUNCH_FAILURE: Status = 201;

/// The version that `curandGetVersion` answers: 10.4.0.
const VERSION: c_int = 10_400;
/// `CURAND_RNG_PSEUDO_DEFAULT`, and the last of the pseudo-random types.
const PSEUDO: std::ops::RangeInclusive<c_int> = 100..=161;

/// A `curandGenerator_t`.
struct Generator {
    seed: u64,
    /// Numbers of 32 bits that have been given out.
    position: u64,
    stream: Stream,
}

fn with<R>(generator: Handle, body: impl FnOnce(&mut Generator) -> R) -> Result<R, Status> {
    handles::with(generator, body).ok_or(NOT_INITIALIZED)
}

fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}

/// Makes a generator of pseudo-random numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandCreateGenerator(place: *mut Handle, kind: c_int) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    let Some(place) = (unsafe { place.as_mut() }) else { return OUT_OF_RANGE };
    if !PSEUDO.contains(&kind) {
        return TYPE_ERROR;
    }
    *place = handles::make(Generator { seed: 0, position: 0, stream: 0 });
    SUCCESS
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
    status(with(generator, |generator| generator.stream = stream))
}

/// Sets the seed of a generator, which begins again.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetPseudoRandomGeneratorSeed(generator: Handle, seed: u64) -> Status {
    status(with(generator, |generator| (generator.seed, generator.position) = (seed, 0)))
}

/// Sets how many numbers are skipped from the beginning.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetGeneratorOffset(generator: Handle, offset: u64) -> Status {
    status(with(generator, |generator| generator.position = offset))
}

/// Takes an order of results; there is one.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetGeneratorOrdering(generator: Handle, _order: c_int) -> Status {
    status(with(generator, |_| ()))
}

/// Makes what depends on the seed: here nothing does.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateSeeds(generator: Handle) -> Status {
    status(with(generator, |_| ()))
}

/// Fills `count` places with values, each of which takes `words` numbers of 32 bits.
fn fill<T: Copy + 'static>(
    generator: Handle,
    output: usize,
    count: usize,
    words: u64,
    value: impl Fn(&Philox, u64) -> T + Send + Sync + 'static,
) -> Result<(), Status> {
    let taken = u64::try_from(count).ok().and_then(|count| count.checked_mul(words)).ok_or(OUT_OF_RANGE)?;
    let (philox, start, stream) = with(generator, |generator| {
        let start = generator.position;
        generator.position = start.wrapping_add(taken);
        (Philox::new(generator.seed), start, generator.stream)
    })?;
    let work = move || {
        let place = pointer::<T>(output, count)?;
        for index in 0..count {
            let at = start.wrapping_add(index as u64 * words);
            // SAFETY: `pointer` has checked that many.
            unsafe { place.add(index).write(value(&philox, at)) };
        }
        Ok(())
    };
    stream::queue(stream, work).map_err(|_| LAUNCH_FAILURE)
}

/// The same for a normal distribution: values are made in pairs.
fn fill_normal<T: Copy + 'static>(
    generator: Handle,
    output: usize,
    count: usize,
    value: impl Fn(f64) -> T + Send + Sync + 'static,
) -> Result<(), Status> {
    fill(generator, output, count, 2, move |philox, at| value(philox.normal(at)))
}

/// 32 random bits each.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerate(generator: Handle, output: usize, count: usize) -> Status {
    status(fill(generator, output, count, 1, |philox, at| philox.word(at)))
}

/// 64 random bits each.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateLongLong(generator: Handle, output: usize, count: usize) -> Status {
    status(fill(generator, output, count, 2, |philox, at| philox.wide(at)))
}

/// Numbers above 0, up to 1.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateUniform(generator: Handle, output: usize, count: usize) -> Status {
    status(fill(generator, output, count, 1, |philox, at| {
        // 24 bits are exact in a float.
        ((philox.word(at) >> 8) + 1) as f32 / (1 << 24) as f32
    }))
}

/// Numbers above 0, up to 1.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateUniformDouble(generator: Handle, output: usize, count: usize) -> Status {
    status(fill(generator, output, count, 2, |philox, at| philox.uniform(at)))
}

macro_rules! normal {
    ($($type:ty: $normal:ident $log:ident;)*) => { $(
        /// A normal distribution.
        #[unsafe(no_mangle)]
        pub extern "C" fn $normal(
            generator: Handle, output: usize, count: usize, mean: $type, deviation: $type,
        ) -> Status {
            status(fill_normal(generator, output, count, move |value| mean + deviation * value as $type))
        }

        /// A distribution whose logarithm is normal.
        #[unsafe(no_mangle)]
        pub extern "C" fn $log(generator: Handle, output: usize, count: usize, mean: $type, deviation: $type) -> Status {
            status(fill_normal(generator, output, count, move |value| (mean + deviation * value as $type).exp()))
        }
    )* };
}
normal! {
    f32: curandGenerateNormal curandGenerateLogNormal;
    f64: curandGenerateNormalDouble curandGenerateLogNormalDouble;
}

/// Most steps of a Poisson distribution's inversion: above, it is normal as far as one can see.
const MAX_POISSON: f64 = 500.0;

/// A Poisson distribution.
#[unsafe(no_mangle)]
pub extern "C" fn curandGeneratePoisson(
    generator: Handle,
    output: usize,
    count: usize,
    lambda: f64,
) -> Status {
    // Also for a NaN.
    if !(lambda > 0.0 && lambda <= 400_000.0) {
        return OUT_OF_RANGE;
    }
    status(fill(generator, output, count, 2, move |philox, at| {
        if lambda > MAX_POISSON {
            return (lambda + lambda.sqrt() * philox.normal(at)).round().max(0.0) as u32;
        }
        let (wanted, mut term, mut steps) = (philox.uniform(at), (-lambda).exp(), 0_u32);
        let mut sum = term;
        while sum < wanted && f64::from(steps) < 4.0 * MAX_POISSON {
            steps += 1;
            term *= lambda / f64::from(steps);
            sum += term;
        }
        steps
    }))
}
