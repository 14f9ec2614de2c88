// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the state of a device into a device whose queues are stopped. Nothing of it is trusted: it comes over a network or from a file, and a part of it
//! was written by workers, which execute code of the guest.
//!
//! Each session enters a fresh worker, which waits for the machine ([`Device::go_on`]). If one cannot enter, none stays.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use log::{debug, warn};
use vhost_cuda_common::files::{add_seals, memory_file};
use vhost_cuda_common::images::{DIGEST_BYTES, SEALS};
use vhost_cuda_common::link::CHUNK_BYTES;
use vhost_cuda_common::parts::{self, kind};

use super::{MAX_ITEMS, State, VERSION, ahead, invalid, version};
use crate::cache::MAX_IMAGES;
use crate::confine::threads;
use crate::front_end::device::Device;
use crate::front_end::device::ahead::Whole;
use crate::front_end::patient::Attended;
use crate::sessions::session::machine::MachineSession;

/// The workers that are tried for a session: in each process other addresses are free.
const ATTEMPTS: u32 = 3;
/// The bytes of a session that are kept for another worker. They are those before its contents, as a rule.
const MAX_KEPT: usize = 64 << 20;
/// The reason for which a session is lost although that is not allowed here: it was, where the machine was saved.
const GIVEN_UP: &str = "it was given up when the machine was saved";
/// The bytes that are read at once.
const BUFFER: usize = 1 << 20;

/// Reads a state into `device`. Its own sessions end.
///
/// Errors: those of `from`; the reason for which the state is refused. The device has no session then.
pub fn load(device: &Arc<Device>, from: File) -> io::Result<()> {
    threads::read_foreign_bytes();
    let mut from = BufReader::with_capacity(BUFFER, Attended::new(from, || device.is_connected()));
    let mut head = [0; 12];
    from.read_exact(&mut head)?;
    if ahead::is_head(&head) {
        return ahead::receive(device, from);
    }
    let version = version(&head[..])?;
    device.end_for_another_state().map_err(io::Error::other)?;
    let loaded = if version == VERSION {
        let image = |image: &Image, file| {
            let owner = device.owner(image.uid);
            device.settings.images.add(file, image.bytes, owner, image.digest)
        };
        let most = device.settings.images.max_bytes();
        read(from, device.rings.len(), most, image, |saved, source| enter(device, saved, source))
    } else {
        State::read_without_sessions(from).and_then(|state| check_queues(state, device.rings.len()))
    };
    device.forget_arrived();
    match loaded {
        Ok(state) => {
            device.driver_version.store(state.driver_version, Ordering::Relaxed);
            for (ring, chains) in device.rings.iter().zip(state.queues) {
                ring.inherit(chains);
            }
            state.lost.iter().for_each(|&session| device.send_lost(session));
            Ok(())
        }
        Err(error) => {
            let _ = device.end_for_another_state();
            Err(error)
        }
    }
}

/// An image of device code.
#[derive(Debug)]
struct Image {
    uid: u32,
    bytes: u64,
    digest: [u8; DIGEST_BYTES],
}

/// Reads the parts of a state. `image` takes images of up to `most` bytes, and `session` each session, of which it returns whether it has
/// got it.
///
/// Errors: those of `from` and of `session`; `InvalidData` for what is no state, or of another number of queues.
fn read<R: Read>(
    mut from: R,
    queues: usize,
    most: u64,
    image: impl Fn(&Image, File) -> io::Result<()>,
    session: impl Fn(MachineSession, &mut Source<R>) -> io::Result<bool>,
) -> io::Result<State> {
    let mut part = Vec::new();
    if parts::read(&mut from, &mut part)? != kind::MACHINE {
        return Err(invalid("the state does not begin with its queues"));
    }
    let mut state = check_queues(State::read(&part)?, queues)?;
    let (mut images, mut sessions) = (0, 0);
    let mut source = Source { from, kept: Vec::new(), is_kept: true, whole: None };
    loop {
        match parts::read(&mut source.from, &mut part)? {
            kind::IMAGE if images < MAX_IMAGES => {
                images += 1;
                read_image(&part, most, &mut source.from, &image)?;
            }
            kind::MEMBER if sessions < MAX_ITEMS => {
                sessions += 1;
                let saved: MachineSession = serde_json::from_slice(&part)
                    .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                let id = saved.id;
                source.kept.clear();
                (source.is_kept, source.whole) = (true, None);
                if !session(saved, &mut source)? {
                    state.lost.push(id);
                }
            }
            kind::LAST if part.is_empty() => return Ok(state),
            _ => return Err(invalid("a part of the state is at a place where none of its kind can be")),
        }
    }
}

fn check_queues(state: State, queues: usize) -> io::Result<State> {
    if state.queues.len() != queues {
        return Err(invalid("the source has another number of queues (--num-queues must be the same)"));
    }
    Ok(state)
}

/// Reads an image. One that is too large is left out: sessions that need it do not enter.
fn read_image(
    head: &[u8],
    most: u64,
    mut from: impl Read,
    keep: impl Fn(&Image, File) -> io::Result<()>,
) -> io::Result<()> {
    let cut = || invalid("the head of an image is too short, or too long");
    let (uid, rest) = head.split_first_chunk::<8>().ok_or_else(cut)?;
    let (bytes, digest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
    let uid = u32::try_from(u64::from_le_bytes(*uid)).map_err(|_| cut())?;
    let digest = digest.try_into().map_err(|_| cut())?;
    let image = Image { uid, bytes: u64::from_le_bytes(*bytes), digest };
    let mut file = if image.bytes <= most { Some(memory_file(c"cuda-image")?) } else { None };
    let (mut piece, mut left) = (Vec::new(), image.bytes);
    while left > 0 {
        if parts::read(&mut from, &mut piece)? != kind::PIECE || piece.is_empty() {
            return Err(invalid("a piece of an image is missing"));
        }
        left = left.checked_sub(piece.len() as u64).ok_or_else(|| invalid("an image is too long"))?;
        file.iter_mut().try_for_each(|file| file.write_all(&piece))?;
    }
    let Some(mut file) = file else { return Ok(()) };
    file.write_all(&[0])?;
    add_seals(&file, SEALS)?;
    if let Err(error) = keep(&image, file) {
        warn!("an image of device code of a saved machine is not kept: {error}");
    }
    Ok(())
}

/// The parts of one session after another.
struct Source<R> {
    from: R,
    /// The parts of the session that were read so far, for another worker, and whether these are all.
    kept: Vec<u8>,
    is_kept: bool,
    /// The file of its contents, if some have come ahead: the worker gets their places.
    whole: Option<Whole>,
}

/// The end of what there is of a session.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// All of it was passed on.
    Whole,
    /// The other daemon has given it up.
    GivenUp,
    /// The worker takes no more.
    Refused,
}

impl<R: Read> Source<R> {
    /// Passes the parts of the session on: those that are kept, and those that come.
    ///
    /// Errors: those of the source.
    fn pass_to(&mut self, mut to: impl Write) -> io::Result<Ended> {
        if to.write_all(&self.kept).is_err() {
            return Ok(Ended::Refused);
        }
        let mut part = Vec::new();
        loop {
            let found = self.next(&mut part)?;
            if found == kind::LOST {
                return Ok(Ended::GivenUp);
            }
            if !part.is_empty() && to.write_all(&part).is_err() {
                return Ok(if found == kind::END { Ended::Whole } else { Ended::Refused });
            }
            if found == kind::END {
                return Ok(Ended::Whole);
            }
        }
    }

    /// Reads the next part as it is, or what the worker gets in place of it, and keeps it as long as that is not too much.
    fn next(&mut self, part: &mut Vec<u8>) -> io::Result<u16> {
        let found = parts::copy(&mut self.from, part)?;
        if found != kind::LOST && !kind::is_of_session(found) {
            let reason =
                format!("a part of a session is of a kind ({found}) that this release does not know");
            return Err(io::Error::new(ErrorKind::InvalidData, reason));
        }
        match (found, &mut self.whole) {
            (kind::ARRIVED, None) => return Err(invalid("no contents have come ahead")),
            (kind::PLACES, Some(_)) => return Err(invalid("its contents are in another file, too")),
            (kind::ARRIVED, Some(whole)) => {
                let mut addresses = Vec::<u64>::new();
                parts::read_rows(parts::parse(part)?.1, &mut addresses, MAX_KEPT)?;
                whole.keep(&addresses)?;
                part.clear();
            }
            (kind::CHUNK, Some(whole)) => {
                let (address, chunk) = parts::parse(part)?
                    .1
                    .split_first_chunk()
                    .ok_or_else(|| invalid("a chunk is too short"))?;
                whole.put(u64::from_le_bytes(*address), chunk)?;
                part.clear();
            }
            (kind::END, Some(whole)) => {
                let end = std::mem::take(part);
                parts::write_rows(&mut *part, kind::PLACES, whole.rows())?;
                part.extend_from_slice(&end);
            }
            _ => {}
        }
        self.is_kept &= self.kept.len() + part.len() <= MAX_KEPT;
        match self.is_kept {
            true => self.kept.extend_from_slice(part),
            false => self.kept = Vec::new(),
        }
        Ok(found)
    }

    /// Reads the rest of the session.
    fn skip(&mut self) -> io::Result<()> {
        let mut part = Vec::new();
        while ![kind::END, kind::LOST].contains(&self.next(&mut part)?) {}
        Ok(())
    }
}

/// Lets a session enter a worker of `device`. Returns false if it is lost.
///
/// Errors: those of the source; the session cannot enter, and must not be lost.
fn enter<R: Read>(device: &Arc<Device>, saved: MachineSession, source: &mut Source<R>) -> io::Result<bool> {
    let what = saved.describe();
    let mut attempts = 0..ATTEMPTS;
    let mut is_over = false;
    let mut charge = None;
    // Files beside the state have all contents.
    if let Some(arrived) = device.arrived(saved.id).filter(|_| saved.contents.is_none()) {
        let bytes = saved.residence.whole_bytes().unwrap_or(0);
        let (whole, taken) = arrived.complete(bytes.div_ceil(CHUNK_BYTES))?;
        (source.whole, charge) = (Some(whole), taken);
    }
    let reason = loop {
        attempts.next();
        let (theirs, copy) = (device.clone(), saved.clone());
        let contents = source.whole.as_ref().map(|whole| whole.file.try_clone()).transpose()?;
        let charge = charge.take();
        let arrival = threads::ask_outside(move || theirs.arrive(copy, contents.as_ref(), charge));
        let mut arrival = match arrival.unwrap_or_else(|| Err("there is no thread for it".to_owned())) {
            Ok(arrival) => arrival,
            Err(reason) => break reason,
        };
        let ended = match arrival.pipe() {
            // The parts of one that was passed on are all there.
            Some(mut pipe) if is_over => match pipe.write_all(&source.kept) {
                Ok(()) => Ended::Whole,
                Err(_) => Ended::Refused,
            },
            Some(pipe) => source.pass_to(pipe)?,
            None => Ended::Refused,
        };
        is_over |= ended != Ended::Refused;
        let entered = match ended {
            Ended::GivenUp => Err(GIVEN_UP.to_owned()),
            _ => arrival.has_entered(),
        };
        let Err(reason) = entered else {
            let theirs = device.clone();
            let open = threads::ask_outside(move || theirs.open_arrival(arrival));
            match open.unwrap_or_else(|| Err("there is no thread for it".to_owned())) {
                Ok(()) => return Ok(true),
                Err(reason) => break reason,
            }
        };
        arrival.give_up(device);
        if ended == Ended::GivenUp || attempts.is_empty() || !source.is_kept {
            break reason;
        }
        debug!("{what}: another worker is tried: {reason}");
    };
    if !device.settings.lose_sessions && reason != GIVEN_UP {
        return Err(io::Error::other(format!("a session ({what}) cannot enter: {reason}")));
    }
    warn!("a session ({what}) of the loaded machine is lost: {reason}");
    if !is_over {
        source.skip()?;
    }
    Ok(false)
}

/// A fuzz target: any bytes as the parts of a machine, whose sessions go nowhere.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(data: &[u8]) {
    let image = |image: &Image, file: File| {
        assert!(image.bytes <= BUFFER as u64 && file.metadata()?.len() == image.bytes + 1);
        Ok(())
    };
    let _ = read(data, 3, BUFFER as u64, image, |_, source| {
        if data.len().is_multiple_of(2) {
            source.whole = Some(crate::front_end::device::ahead::Arrived::new()?.complete(2)?.0);
        }
        let mut all = Vec::new();
        let ended = source.pass_to(&mut all)?;
        assert!(source.kept.len() <= MAX_KEPT && (!source.is_kept || source.kept.starts_with(&all)));
        Ok(ended == Ended::Whole)
    });
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const MEMBER: &str = r#"{"id":7,"uid":1000,"charged_uid":1000,"residence":{"moves":{"phase":"Suspended","held":false,"wanted":false,
        "suspended_bytes":0,"stored_bytes":0,"copied_bytes":0,"resident_bytes":0,"movable_bytes":0,"movable_devices":0,"suspensions":0,
        "resumes":0,"failures":0,"moving":{"secs":0,"nanos":0},"last_move":{"secs":0,"nanos":0}},"wakes":2,"charged_bytes":0,
        "kept_for":null,"deep":true},"program":"python3","pid":412,"next_request":9,"calls":1,"bytes_in":2,"bytes_out":3,
        "maps_memory":true,"age":{"secs":1,"nanos":0},"totals":TOTALS,"pages":[]}"#;

    fn member() -> Vec<u8> {
        let totals = serde_json::to_string(&vhost_cuda_common::statistics::Totals::default()).unwrap();
        MEMBER.replace("TOTALS", &totals).into_bytes()
    }

    fn head() -> Vec<u8> {
        State { queues: vec![vec![], vec![]], ..State::default() }.bytes()
    }

    fn state(rows: &[(u16, &[u8])]) -> Vec<u8> {
        let mut stream = Vec::new();
        for (kind, part) in rows {
            parts::write(&mut stream, *kind, &[part]).unwrap();
        }
        stream
    }

    fn image(bytes: u64, digest: [u8; DIGEST_BYTES]) -> Vec<u8> {
        [&1000_u64.to_le_bytes()[..], &bytes.to_le_bytes(), &digest].concat()
    }

    #[test]
    fn images_and_sessions_are_passed_on_as_they_came() {
        let (head, member) = (head(), member());
        let digest = *blake3::hash(b"an image").as_bytes();
        let small = image(8, digest);
        let stream = state(&[
            (kind::MACHINE, &head),
            (kind::IMAGE, &small),
            (kind::PIECE, b"an "),
            (kind::PIECE, b"image"),
            (kind::MEMBER, &member),
            (kind::STATE, b"facts"),
            (kind::END, b""),
            (kind::MEMBER, &member),
            (kind::STATE, b"facts"),
            (kind::LOST, b""),
            (kind::LAST, b""),
        ]);
        let (images, passed) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let keep = |image: &Image, file: File| {
            images.borrow_mut().push((image.uid, image.bytes, image.digest, file.metadata()?.len()));
            Ok(())
        };
        let read = read(&stream[..], 2, 8, keep, |saved, source| {
            assert_eq!((saved.id, saved.describe().as_str()), (7, "python3 412"));
            let mut all = Vec::new();
            let ended = source.pass_to(&mut all)?;
            // Another worker gets the same.
            let mut again = Vec::new();
            again.write_all(&source.kept)?;
            assert!(again.starts_with(&all));
            passed.borrow_mut().push((all, ended == Ended::Whole));
            Ok(ended == Ended::Whole)
        });
        assert_eq!(read.unwrap().lost, [7], "the second one was given up");
        assert_eq!(images.into_inner(), [(1000, 8, digest, 9)]);
        let facts = state(&[(kind::STATE, b"facts")]);
        let whole = state(&[(kind::STATE, b"facts"), (kind::END, b"")]);
        assert_eq!(passed.into_inner(), [(whole, true), (facts, false)]);
    }

    #[test]
    fn what_is_at_a_wrong_place_is_refused() {
        let (head, member) = (head(), member());
        let (cut, long) = (image(8, [0; 32])[..40].to_vec(), image(9, [0; 32]));
        let wrong: [&[(u16, &[u8])]; 9] = [
            &[(kind::LAST, b"")],
            &[(kind::MACHINE, &head)],
            &[(kind::MACHINE, &head), (kind::MACHINE, &head), (kind::LAST, b"")],
            &[(kind::MACHINE, &head), (kind::LAST, b"x")],
            &[(kind::MACHINE, &head), (kind::IMAGE, &cut), (kind::LAST, b"")],
            &[(kind::MACHINE, &head), (kind::IMAGE, &long), (kind::PIECE, b"an image"), (kind::LAST, b"")],
            &[(kind::MACHINE, &head), (kind::IMAGE, &long), (kind::PIECE, b"ten bytes."), (kind::LAST, b"")],
            &[(kind::MACHINE, &head), (kind::MEMBER, b"{}"), (kind::END, b""), (kind::LAST, b"")],
            &[(kind::MACHINE, &head), (kind::MEMBER, &member), (kind::LAST, b"")],
        ];
        for (number, rows) in wrong.iter().enumerate() {
            let read = read(
                &state(rows)[..],
                2,
                8,
                |_, _| Ok(()),
                |_, source| Ok(source.pass_to(io::sink())? == Ended::Whole),
            );
            assert!(read.is_err(), "{number}");
        }
        let other = state(&[(kind::MACHINE, &head), (kind::LAST, b"")]);
        assert!(
            read(&other[..], 3, 8, |_, _| Ok(()), |_, _: &mut Source<&[u8]>| Ok(true)).is_err(),
            "three queues"
        );
    }
}
