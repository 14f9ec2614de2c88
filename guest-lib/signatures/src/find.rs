// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Finds the functions of a release in the code of an object.

use std::ops::Range;

use crate::release::{Anchor, Release};
use crate::{ALIGNMENT, ANCHOR_BYTES, Function};

/// The maximum difference, in bytes, between the distance of two functions and that in the archive. Between two neighbours of the public
/// functions there are internal ones of 20 KiB at most.
const MAX_SHIFT: usize = 16 << 10;
/// Changes of distance in one object. The builds of the runtime in NVIDIA's own libraries have two.
const MAX_SHIFTS: usize = 8;
/// A shorter function may look like another, so it does not tell where the next ones are.
const TELLING_BYTES: usize = 64;

/// Looks for anchors in code that comes in pieces.
#[derive(Debug)]
pub struct Scan<'a> {
    releases: &'a [Release],
    /// The first bytes of anchors, each once.
    words: Vec<u64>,
}

/// A release that is in the code as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Which.
    pub release: &'a Release,
    /// The place of each of its functions in the code.
    pub places: Vec<usize>,
}

/// The release of whose functions most are in the code.
#[derive(Debug, PartialEq, Eq)]
pub struct Nearest<'a> {
    /// Which.
    pub release: &'a Release,
    /// Number of its functions that are there.
    pub functions: usize,
}

impl<'a> Scan<'a> {
    /// Prepares a search for these releases.
    pub fn new(releases: &'a [Release]) -> Self {
        let mut words: Vec<u64> = releases.iter().map(|release| word(&release.anchor.bytes)).collect();
        words.sort_unstable();
        words.dedup();
        Self { releases, words }
    }

    /// Returns the place of the first anchor in `code`, which begins at a multiple of [`ALIGNMENT`].
    pub fn anchor(&self, code: &[u8]) -> Option<usize> {
        let known = |piece: &[u8]| {
            let first = word(piece);
            self.words.contains(&first) && self.anchors().any(|anchor| anchor.bytes == piece)
        };
        Some(code.chunks_exact(ALIGNMENT).position(known)? * ALIGNMENT)
    }

    /// Returns the range of code around an anchor in which all functions are, if the runtime is there: the number of bytes
    /// before and behind the anchor.
    pub fn surroundings(&self) -> (usize, usize) {
        let spans = self.releases.iter().filter_map(|release| {
            let (first, last) = (release.functions.first()?, release.functions.last()?);
            let anchor = release.functions[release.anchor.function].offset + release.anchor.offset;
            Some((anchor - first.offset, last.offset + last.body.size() - anchor))
        });
        let slack = MAX_SHIFT * MAX_SHIFTS;
        let most = spans.fold((0, 0), |most, span| (most.0.max(span.0), most.1.max(span.1)));
        (most.0 + slack, most.1 + slack)
    }

    /// Returns the release that is in `code` with all functions; else the nearest one. `anchor` is the place of an anchor.
    ///
    /// # Errors
    ///
    /// Fails with the release of which most functions are there; with none if the anchor is another program's.
    pub fn find(&self, code: &[u8], anchor: usize) -> Result<Found<'a>, Option<Nearest<'a>>> {
        let mut nearest: Option<Nearest> = None;
        let mut best: Option<(usize, Found)> = None;
        for release in self.releases {
            let Some(start) = place_of(release, code, anchor) else { continue };
            match places(&release.functions, release.anchor.function, code, start) {
                Ok((places, shifts)) => {
                    // The same functions, and as few differences as possible: then the one with more functions.
                    let better = |(least, found): &(usize, Found)| {
                        (shifts, found.places.len()) < (*least, places.len())
                    };
                    if best.as_ref().is_none_or(better) {
                        best = Some((shifts, Found { release, places }));
                    }
                }
                Err(functions) if nearest.as_ref().is_none_or(|nearest| nearest.functions < functions) => {
                    nearest = Some(Nearest { release, functions });
                }
                Err(_) => {}
            }
        }
        best.map(|(_, found)| found).ok_or(nearest)
    }

    fn anchors(&self) -> impl Iterator<Item = &Anchor> {
        self.releases.iter().map(|release| &release.anchor)
    }
}

/// Returns the place of the function that has the release's anchor, if the bytes at `anchor` are that one.
fn place_of(release: &Release, code: &[u8], anchor: usize) -> Option<usize> {
    let bytes = code.get(anchor..anchor.checked_add(ANCHOR_BYTES)?)?;
    (bytes == release.anchor.bytes).then(|| anchor.checked_sub(release.anchor.offset))?
}

/// Returns the places of all functions, and how often the distance between two of them differs from the archive's. `start` is
/// the place of the function `known`.
///
/// # Errors
///
/// Fails with the number of functions that are there without such differences, if not all are there.
fn places(
    functions: &[Function],
    known: usize,
    code: &[u8],
    start: usize,
) -> Result<(Vec<usize>, usize), usize> {
    let mut places = vec![start; functions.len()];
    let mut shifts = 0;
    let mut walk = |indices: &mut dyn Iterator<Item = usize>, forward: bool| {
        let (mut last, mut shift) = (known, start as isize - functions[known].offset as isize);
        for index in indices {
            let free = if forward {
                places[last] + functions[last].body.size()..code.len()
            } else {
                0..places[last]
            };
            if !is_at(&functions[index], code, shift, &free) {
                shifts += 1;
                let rest = if forward { &functions[index..] } else { &functions[..=index] };
                let next = shifted(rest, forward, code, shift, &free).filter(|_| shifts <= MAX_SHIFTS)?;
                if !is_at(&functions[index], code, next, &free) {
                    return None;
                }
                shift = next;
            }
            places[index] = functions[index].offset.checked_add_signed(shift)?;
            last = index;
        }
        Some(())
    };
    let walked = functions[known].body.begins(code.get(start..).unwrap_or_default());
    let walked = walked.then(|| walk(&mut (known + 1..functions.len()), true)).flatten();
    let walked = walked.and_then(|()| walk(&mut (0..known).rev(), false));
    if walked.is_some() {
        return Ok((places, shifts));
    }
    let shift = start as isize - functions[known].offset as isize;
    Err(functions.iter().filter(|function| is_at(function, code, shift, &(0..code.len()))).count())
}

/// Returns whether a function is in `free` where the shift leaves it.
fn is_at(function: &Function, code: &[u8], shift: isize, free: &Range<usize>) -> bool {
    let Some(place) = function.offset.checked_add_signed(shift) else { return false };
    let end = place.saturating_add(function.body.size());
    free.start <= place && end <= free.end && function.body.begins(&code[place..])
}

/// Returns the shift of the next function that tells one: there is exactly one place for it nearby.
fn shifted(
    functions: &[Function],
    forward: bool,
    code: &[u8],
    shift: isize,
    free: &Range<usize>,
) -> Option<isize> {
    let tells = |function: &&Function| function.body.size() >= TELLING_BYTES;
    let telling = if forward { functions.iter().find(tells) } else { functions.iter().rev().find(tells) }?;
    let steps = (MAX_SHIFT / ALIGNMENT) as isize;
    let shifts = (-steps..=steps).map(|step| shift + step * ALIGNMENT as isize);
    let mut there = shifts.filter(|shift| is_at(telling, code, *shift, free));
    let only = there.next()?;
    there.next().is_none().then_some(only)
}

/// The first eight bytes.
fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;

    /// Code that looks like nothing else, by a generator of numbers.
    fn noise(bytes: usize, mut state: u64) -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// A runtime of twenty functions with internal code between them; two operands side by side at 32 of each function.
    fn runtime() -> (Vec<u8>, Release) {
        let code = noise(20 * 0x200, 7);
        let function = |index: usize| {
            let offset = index * 0x200;
            let size = if index % 5 == 4 { 0x28 } else { 0x90 };
            Function {
                name: format!("cudaF{index}"),
                offset,
                body: Body::of(&code[offset..offset + size], vec![32..34, 34..36]),
            }
        };
        let functions: Vec<Function> = (0..20).map(function).collect();
        let bytes = *code[10 * 0x200 + 16..].first_chunk().expect("long enough");
        let anchor = Anchor { function: 10, offset: 16, bytes };
        let release = Release { versions: vec!["13.9.1".to_owned()], anchor, functions };
        (code, release)
    }

    fn places_in(code: &[u8], releases: &[Release]) -> Result<Vec<usize>, Option<usize>> {
        let scan = Scan::new(releases);
        let anchor = scan.anchor(code).ok_or(None)?;
        let found = scan.find(code, anchor).map(|found| found.places);
        found.map_err(|nearest| nearest.map(|nearest| nearest.functions))
    }

    #[test]
    fn a_runtime_is_found_wherever_it_was_linked() {
        let (code, release) = runtime();
        let mut object = noise(0x1230, 1);
        let start = object.len();
        object.extend(&code);
        object.extend(noise(0x400, 2));
        for function in &release.functions {
            object[start + function.offset + 33] ^= 0xff;
        }
        let expected: Vec<usize> = release.functions.iter().map(|function| start + function.offset).collect();
        assert_eq!(places_in(&object, &[release]), Ok(expected));
    }

    #[test]
    fn internal_functions_may_be_longer_or_shorter() {
        let (code, release) = runtime();
        // 0x100 bytes more before function 5, 0x40 less before function 15.
        let object = [&code[..0xa00], &noise(0x100, 3), &code[0xa00..0x1d00], &code[0x1d40..]].concat();
        let place = |(index, function): (usize, &Function)| match index {
            0..5 => function.offset,
            5..15 => function.offset + 0x100,
            _ => function.offset + 0xc0,
        };
        let expected: Vec<usize> = release.functions.iter().enumerate().map(place).collect();
        assert_eq!(places_in(&object, &[release]), Ok(expected));
    }

    #[test]
    fn a_runtime_with_another_function_is_none() {
        let (code, release) = runtime();
        for index in [0, 4, 9, 19] {
            let mut object = code.clone();
            object[release.functions[index].offset + 8] ^= 1;
            assert_eq!(places_in(&object, std::slice::from_ref(&release)), Err(Some(19)), "function {index}");
        }
        let cut = &code[..release.functions[19].offset + 8];
        assert_eq!(places_in(cut, std::slice::from_ref(&release)), Err(Some(19)));
        // Functions in another order.
        let swapped = [&code[..0x200], &code[0x400..0x600], &code[0x200..0x400], &code[0x600..]].concat();
        assert_eq!(places_in(&swapped, std::slice::from_ref(&release)), Err(Some(18)));
        assert_eq!(places_in(&noise(0x3000, 9), &[release]), Err(None));
    }

    #[test]
    fn of_several_releases_the_one_with_most_functions_wins() {
        let (code, newer) = runtime();
        let older = Release {
            functions: newer.functions[..12].to_vec(),
            versions: vec!["13.8.1".to_owned()],
            ..newer.clone()
        };
        for releases in [[older.clone(), newer.clone()], [newer, older]] {
            assert_eq!(places_in(&code, &releases).map(|places| places.len()), Ok(20));
        }
    }
}
