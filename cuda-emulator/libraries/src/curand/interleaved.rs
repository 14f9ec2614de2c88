// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Generators that consist of many streams, far apart in one sequence: result after result is taken from stream after stream,
//! as the threads of NVIDIA's kernels do it.

use super::source::Source;

/// One of the streams.
pub trait Stream: Copy + Send {
    /// The number of streams.
    const COUNT: usize;

    /// The first stream of a seed.
    fn first(seed: u64) -> Self;
    /// Leaves out as many numbers.
    fn skip(&mut self, steps: u64);
    /// Moves to the same position of the next stream.
    fn next_stream(&mut self);
    /// 32 bits.
    fn bits(&mut self) -> u32;
    /// A number above 0, up to 1.
    fn uniform(&mut self) -> f32;
    /// A number above 0, up to 1.
    fn uniform_double(&mut self) -> f64;
    /// Two numbers of the standard normal distribution.
    fn normal(&mut self) -> [f32; 2];
    /// Two numbers of the standard normal distribution.
    fn normal_double(&mut self) -> [f64; 2];
}

/// The streams of a generator.
#[derive(Debug)]
pub struct Interleaved<S> {
    streams: Vec<S>,
    /// The stream of the next result.
    next: usize,
}

impl<S: Stream> Interleaved<S> {
    /// The bytes of all streams.
    pub const BYTES: usize = S::COUNT * size_of::<S>();

    /// Returns the streams of a seed, after `position` results.
    pub fn new(seed: u64, position: u64) -> Self {
        let (rounds, next) = (position / S::COUNT as u64, (position % S::COUNT as u64) as usize);
        let mut stream = S::first(seed);
        stream.skip(rounds);
        let mut streams = Vec::with_capacity(S::COUNT);
        for index in 0..S::COUNT {
            streams.push(stream);
            if index < next {
                streams[index].bits();
            }
            stream.next_stream();
        }
        Self { streams, next }
    }

    fn each<T>(&mut self, places: &mut [T], draw: impl Fn(&mut S) -> T) {
        let mut rest = places;
        while !rest.is_empty() {
            let count = rest.len().min(S::COUNT - self.next);
            let (now, later) = rest.split_at_mut(count);
            let streams = &mut self.streams[self.next..][..count];
            now.iter_mut().zip(streams).for_each(|(place, stream)| *place = draw(stream));
            self.next = (self.next + count) % S::COUNT;
            rest = later;
        }
    }

    fn pairs<T: Copy>(&mut self, places: &mut [T], draw: impl Fn(&mut S) -> [T; 2]) {
        // An odd number of places was refused before.
        self.each(places.as_chunks_mut::<2>().0, draw);
    }
}

impl<S: Stream> Source for Interleaved<S> {
    fn words(&mut self, places: &mut [u32]) {
        self.each(places, S::bits);
    }

    fn uniform(&mut self, places: &mut [f32]) {
        self.each(places, S::uniform);
    }

    fn uniform_double(&mut self, places: &mut [f64]) {
        self.each(places, S::uniform_double);
    }

    fn normal(&mut self, places: &mut [f32]) {
        self.pairs(places, S::normal);
    }

    fn normal_double(&mut self, places: &mut [f64]) {
        self.pairs(places, S::normal_double);
    }
}
