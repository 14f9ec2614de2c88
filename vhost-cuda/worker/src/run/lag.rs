// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detects that the GPU is behind the launches of an executor, by events that the executor records between them.
//!
//! Between two graphs of one kernel a GPU pauses for 0.4 us longer than between two plain launches (H100, driver 580). They cost
//! nothing while launches come more slowly than the GPU executes them. Where the GPU is behind, they add up: launches are plain.

use smallvec::SmallVec;

use super::marks::Mark;

/// Launches into a stream from one look at the GPU to the next one.
const EVERY: u32 = 32;
/// The maximum number of watched streams. Another one replaces the one that has been watched longest.
const MAX_STREAMS: usize = 8;

/// A stream's name, and the address of a context's object: default streams have the same name in all contexts.
pub type Key = (u64, usize);

/// The streams into which an executor launches.
#[derive(Debug, Default)]
pub struct Lag {
    streams: SmallVec<[Watched; MAX_STREAMS]>,
}

#[derive(Debug)]
struct Watched {
    stream: Key,
    /// Launches since the last look.
    launches: u32,
    /// The event of the last look.
    mark: Option<Mark>,
    behind: bool,
}

impl Lag {
    /// Returns whether the GPU was behind at the last look at that stream.
    pub fn is_behind(&self, stream: Key) -> bool {
        self.streams.iter().any(|watched| watched.stream == stream && watched.behind)
    }

    /// Counts a launch. `look` returns true if the GPU has not reached the mark of the last look (`None`: there is no such
    /// mark), and a new mark at the stream's position.
    pub fn launched(&mut self, stream: Key, look: impl FnOnce(Option<Mark>) -> (bool, Option<Mark>)) {
        let watched = self.watched(stream);
        watched.launches += 1;
        if watched.launches == EVERY {
            watched.launches = 0;
            (watched.behind, watched.mark) = look(watched.mark.take());
        }
    }

    fn watched(&mut self, stream: Key) -> &mut Watched {
        let at = self.streams.iter().position(|watched| watched.stream == stream).unwrap_or_else(|| {
            if self.streams.len() == MAX_STREAMS {
                self.streams.remove(0);
            }
            self.streams.push(Watched { stream, launches: 0, mark: None, behind: false });
            self.streams.len() - 1
        });
        &mut self.streams[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Key = (16, 1);

    fn launch(lag: &mut Lag, stream: Key, times: u32, behind: bool) -> u32 {
        let mut looks = 0;
        for _ in 0..times {
            lag.launched(stream, |mark| {
                looks += 1;
                (mark.is_some() && behind, Some(Mark::of_nothing()))
            });
        }
        looks
    }

    #[test]
    fn a_stream_is_behind_from_look_to_look() {
        let mut lag = Lag::default();
        assert_eq!(launch(&mut lag, STREAM, EVERY, true), 1);
        assert!(!lag.is_behind(STREAM), "there was no mark to look at");
        assert_eq!(launch(&mut lag, STREAM, EVERY - 1, true), 0);
        assert!(!lag.is_behind(STREAM));
        assert_eq!(launch(&mut lag, STREAM, 1, true), 1);
        assert!(lag.is_behind(STREAM) && !lag.is_behind((STREAM.0, 2)) && !lag.is_behind((32, STREAM.1)));
        launch(&mut lag, STREAM, EVERY, false);
        assert!(!lag.is_behind(STREAM));
    }

    #[test]
    fn of_many_streams_the_first_is_forgotten() {
        let mut lag = Lag::default();
        launch(&mut lag, STREAM, 2 * EVERY, true);
        for other in 0..MAX_STREAMS as u64 - 1 {
            launch(&mut lag, (100 + other, 1), 1, true);
        }
        assert!(lag.is_behind(STREAM));
        launch(&mut lag, (200, 1), 1, true);
        assert!(!lag.is_behind(STREAM) && lag.streams.len() == MAX_STREAMS);
    }
}
