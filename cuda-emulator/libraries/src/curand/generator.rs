// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A generator: its settings and its numbers. The numbers begin at the first request, in stream order, so that a
//! graph with a captured call continues with each launch.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use super::budget::{BUDGET, Budget, Share};
use super::interleaved::Interleaved;
use super::mrg32k3a::Mrg32k3a;
use super::philox::Philox;
use super::sobol::{MAX_DIMENSIONS, Sobol};
use super::source::Source;
use super::xorwow::Xorwow;
use super::{
    ALLOCATION_FAILED, LAUNCH_FAILURE, LENGTH_NOT_MULTIPLE, NOT_SUPPORTED, OUT_OF_RANGE, Status, TYPE_ERROR,
};
use crate::memory::pointer;
use crate::stream::{self, Done, Stream};

/// Elements that are made before they are copied to their places. Even, because normal numbers are made in pairs.
const PIECE: usize = 8192;

/// A `curandRngType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `CURAND_RNG_PSEUDO_XORWOW`, the default.
    Xorwow,
    /// `CURAND_RNG_PSEUDO_MRG32K3A`
    Mrg32k3a,
    /// `CURAND_RNG_PSEUDO_MTGP32`: with numbers of Philox.
    Mtgp32,
    /// `CURAND_RNG_PSEUDO_MT19937`: with numbers of Philox.
    Mt19937,
    /// `CURAND_RNG_PSEUDO_PHILOX4_32_10`
    Philox,
    /// `CURAND_RNG_QUASI_SOBOL32`, the default.
    Sobol32,
    /// `CURAND_RNG_QUASI_SOBOL64`
    Sobol64,
}

impl Kind {
    /// The kind of that number.
    ///
    /// Errors: no generator has this number, or the emulator does not have the generator.
    pub fn of(number: c_int) -> Result<Self, Status> {
        Ok(match number {
            100 | 101 => Self::Xorwow,
            121 => Self::Mrg32k3a,
            141 => Self::Mtgp32,
            142 => Self::Mt19937,
            161 => Self::Philox,
            200 | 201 => Self::Sobol32,
            203 => Self::Sobol64,
            // Scrambled sequences have numbers of NVIDIA's in them.
            202 | 204 => return Err(NOT_SUPPORTED),
            _ => return Err(TYPE_ERROR),
        })
    }

    /// Returns whether it has dimensions and no seed.
    pub fn is_quasi(self) -> bool {
        matches!(self, Self::Sobol32 | Self::Sobol64)
    }

    /// Returns whether its streams make normal numbers in pairs, each of which counts as one result.
    fn has_pairs(self) -> bool {
        matches!(self, Self::Xorwow | Self::Mrg32k3a)
    }

    /// Returns whether it takes a `curandOrdering_t`.
    fn takes_order(self, order: c_int) -> bool {
        match self {
            Self::Xorwow => (100..=103).contains(&order),
            Self::Mt19937 => matches!(order, 101 | 103),
            Self::Mrg32k3a | Self::Mtgp32 | Self::Philox => matches!(order, 100 | 101 | 103),
            Self::Sobol32 | Self::Sobol64 => order == 201,
        }
    }
}

/// The settings from which a sequence of numbers begins.
#[derive(Clone, Copy, Debug)]
struct Settings {
    kind: Kind,
    seed: u64,
    /// Results that are left out.
    position: u64,
    dimensions: usize,
}

impl Settings {
    /// The bytes of the source's state.
    fn bytes(self) -> usize {
        match self.kind {
            Kind::Xorwow => Interleaved::<Xorwow>::BYTES,
            Kind::Mrg32k3a => Interleaved::<Mrg32k3a>::BYTES,
            Kind::Philox | Kind::Mtgp32 | Kind::Mt19937 => Philox::BYTES,
            Kind::Sobol32 | Kind::Sobol64 => size_of::<Sobol>(),
        }
    }

    fn source(self) -> Box<dyn Source> {
        let Self { kind, seed, position, dimensions } = self;
        match kind {
            Kind::Xorwow => Box::new(Interleaved::<Xorwow>::new(seed, position)),
            Kind::Mrg32k3a => Box::new(Interleaved::<Mrg32k3a>::new(seed, position)),
            Kind::Philox | Kind::Mtgp32 | Kind::Mt19937 => Box::new(Philox::new(seed, position)),
            Kind::Sobol32 | Kind::Sobol64 => {
                Box::new(Sobol::new(dimensions, kind == Kind::Sobol64, position))
            }
        }
    }
}

/// The numbers of a generator. Captured calls keep them as long as their graphs exist.
///
/// # Invariants
/// `share` has grown to the bytes of each source before that source is made, and there is one source at a time.
struct Numbers {
    /// There is one once the numbers have begun.
    source: Mutex<Option<Box<dyn Source>>>,
    /// Dropped after the source.
    share: Mutex<Share>,
}

/// A `curandGenerator_t`.
pub struct Generator {
    settings: Settings,
    order: c_int,
    /// True if it fills memory of the program immediately.
    is_host: bool,
    /// The stream of its work.
    pub stream: Stream,
    /// Results since `settings.position`.
    results: u64,
    /// The numbers begin with the next call.
    begins: bool,
    numbers: Arc<Numbers>,
}

impl Generator {
    /// A new one.
    pub fn new(kind: Kind, is_host: bool) -> Self {
        Self::within(&BUDGET, kind, is_host)
    }

    /// A new one, whose state is of this budget.
    fn within(budget: &'static Budget, kind: Kind, is_host: bool) -> Self {
        let numbers = Numbers { source: Mutex::default(), share: Mutex::new(Share::new(budget)) };
        Self {
            settings: Settings { kind, seed: 0, position: 0, dimensions: 1 },
            order: if kind.is_quasi() { 201 } else { 101 },
            is_host,
            stream: 0,
            results: 0,
            begins: true,
            numbers: Arc::new(numbers),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.settings.kind
    }

    /// Restarts the numbers after those that were returned. The library counts the blocks of Philox here, not its
    /// numbers.
    pub fn begin(&mut self) {
        let counted = if self.kind() == Kind::Philox { self.results / 4 } else { self.results };
        self.settings.position = self.settings.position.wrapping_add(counted);
        (self.results, self.begins) = (0, true);
    }

    /// Sets the seed, which leaves the position as it is.
    pub fn set_seed(&mut self, seed: u64) -> Result<(), Status> {
        if self.kind().is_quasi() {
            return Err(TYPE_ERROR);
        }
        if std::mem::replace(&mut self.settings.seed, seed) != seed {
            self.begin();
        }
        Ok(())
    }

    /// Sets the position.
    pub fn set_offset(&mut self, offset: u64) -> Result<(), Status> {
        if matches!(self.kind(), Kind::Mtgp32 | Kind::Mt19937) {
            return Err(TYPE_ERROR);
        }
        (self.settings.position, self.results, self.begins) = (offset, 0, true);
        Ok(())
    }

    /// Sets the order of results. Those that a kind takes are one.
    pub fn set_order(&mut self, order: c_int) -> Result<(), Status> {
        if !self.kind().takes_order(order) {
            return Err(OUT_OF_RANGE);
        }
        if std::mem::replace(&mut self.order, order) != order {
            self.begin();
        }
        Ok(())
    }

    /// Sets the number of dimensions.
    pub fn set_dimensions(&mut self, dimensions: usize) -> Result<(), Status> {
        if !self.kind().is_quasi() {
            return Err(TYPE_ERROR);
        }
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(OUT_OF_RANGE);
        }
        if std::mem::replace(&mut self.settings.dimensions, dimensions) != dimensions {
            self.begin();
        }
        Ok(())
    }

    /// Fills places at `output` by `fill`, which gets a few at a time. `in_pairs`: with normal numbers.
    pub fn fill<T: Copy + Default + Send + 'static>(
        &mut self,
        output: usize,
        count: usize,
        in_pairs: bool,
        fill: impl Fn(&mut dyn Source, &mut [T]) + Send + Sync + 'static,
    ) -> Result<(), Status> {
        let (kind, dimensions) = (self.kind(), self.settings.dimensions);
        let in_pairs = in_pairs && kind.has_pairs();
        if !count.is_multiple_of(dimensions) || (in_pairs && !count.is_multiple_of(2)) {
            return Err(LENGTH_NOT_MULTIPLE);
        }
        if self.is_host && (output == 0 || !output.is_multiple_of(align_of::<T>())) && count > 0 {
            return Err(OUT_OF_RANGE);
        }
        if self.begins {
            let mut share = self.numbers.share.lock().unwrap_or_else(PoisonError::into_inner);
            if !share.grow(self.settings.bytes()) {
                return Err(ALLOCATION_FAILED);
            }
        }
        let results = if in_pairs { count / 2 } else { count / dimensions };
        self.results = self.results.wrapping_add(results as u64);
        let beginning = std::mem::take(&mut self.begins).then_some(self.settings);
        let (numbers, is_host) = (self.numbers.clone(), self.is_host);
        let work = move || -> Done {
            let place = if is_host { output as *mut T } else { pointer::<T>(output, count)? };
            let mut source = numbers.source.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(settings) = beginning {
                // The old one drops before the new one is made.
                *source = None;
                *source = Some(settings.source());
            }
            if let Some(source) = source.as_deref_mut() {
                // SAFETY: `pointer` has checked device memory. Host memory has room for `count` elements, as NVIDIA's
                // function demands of its caller, who waits for this.
                unsafe { fill_from(source, place, dimensions, count / dimensions, &fill) };
            }
            Ok(())
        };
        if is_host {
            return work().map_err(|_| LAUNCH_FAILURE);
        }
        stream::queue(self.stream, work).map_err(|_| LAUNCH_FAILURE)
    }
}

/// Fills `each` places for every dimension.
///
/// # Safety
///
/// `place` has room for all of them.
unsafe fn fill_from<T: Copy + Default>(
    source: &mut dyn Source,
    place: *mut T,
    dimensions: usize,
    each: usize,
    fill: &impl Fn(&mut dyn Source, &mut [T]),
) {
    let mut piece = vec![T::default(); PIECE.min(each)];
    for dimension in 0..dimensions {
        source.begin_dimension(dimension);
        for start in (0..each).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(each - start)];
            fill(source, piece);
            // SAFETY: the places are among those of this function's contract.
            unsafe {
                place.add(dimension * each + start).copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            }
        }
    }
    source.end_dimensions(each as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_within_a_budget() {
        static LITTLE: Budget = Budget::new(Interleaved::<Mrg32k3a>::BYTES + Philox::BYTES);
        let fill = |generator: &mut Generator| {
            let mut places = [0_u32; 8];
            generator.fill(places.as_mut_ptr() as usize, places.len(), false, |source, places: &mut [u32]| {
                source.words(places)
            })
        };
        let made = |kind| Generator::within(&LITTLE, kind, true);
        let (mut first, mut second) = (made(Kind::Mrg32k3a), made(Kind::Mrg32k3a));
        assert_eq!(fill(&mut second), Ok(()), "a generator has no state before it is used");
        assert_eq!(fill(&mut first), Err(ALLOCATION_FAILED));
        assert_eq!(fill(&mut made(Kind::Philox)), Ok(()), "a smaller one");
        // The new state is in place of the old one.
        second.set_seed(7).expect("it has a seed");
        assert_eq!(fill(&mut second), Ok(()));
        // As a captured call keeps it.
        let kept = second.numbers.clone();
        drop(second);
        assert_eq!(fill(&mut first), Err(ALLOCATION_FAILED));
        drop(kept);
        assert_eq!(fill(&mut first), Ok(()), "the bytes were given back");
    }
}
