// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a device that is saved with its machine, or moves with it to another daemon.
//!
//! It begins with a head: letters and the version. Then come parts of [`vhost_cuda_common::parts`], which `docs/spec/saved-sessions.md`
//! specifies: queues, images of device code, and each session that goes along. Contents may come before it ([`ahead`]). States of version 1 have no sessions, and are still read.

pub mod ahead;
pub mod load;
pub mod save;

use std::io::{self, Read};

use crate::guest::ring::Unanswered;

/// The first bytes of the state.
const MAGIC: [u8; 8] = *b"VCUDSTAT";
/// The version of the state's layout, and the one before it.
const VERSION: u32 = 2;
const VERSION_WITHOUT_SESSIONS: u32 = 1;
/// The maximum length of a state of version 1 in bytes: every chain of every queue, twice over.
const MAX_BYTES: u64 = 4 << 20;
/// The maximum number of chains per queue (its size), and of sessions.
const MAX_ITEMS: u32 = 1024;
/// The maximum number of pieces of a reply's header in a state of version 1.
const MAX_PIECES: u32 = 8;

/// The state of a device beside its sessions.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    /// For each queue, chains that the source took and never answered.
    queues: Vec<Vec<Unanswered>>,
    /// The sessions that do not go along, of which the driver is told.
    lost: Vec<u64>,
    /// The version that the driver wrote into the configuration space.
    driver_version: u32,
}

impl State {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.driver_version);
        put(&mut bytes, self.queues.len() as u32);
        for chains in &self.queues {
            put(&mut bytes, chains.len() as u32);
            for &Unanswered { head, session, request } in chains {
                put(&mut bytes, u32::from(head));
                bytes.extend_from_slice(&session.to_le_bytes());
                bytes.extend_from_slice(&request.to_le_bytes());
            }
        }
        put(&mut bytes, self.lost.len() as u32);
        self.lost.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
        bytes
    }

    /// Reads the contents of its part.
    ///
    /// Errors (`InvalidData`): they are cut, or a number is out of range.
    fn read(mut rest: &[u8]) -> io::Result<Self> {
        let rest = &mut rest;
        let driver_version = number(rest)?;
        let chain = |rest: &mut &[u8]| {
            let head = u16::try_from(number(rest)?).map_err(|_| invalid("a head out of range"))?;
            Ok(Unanswered { head, session: long(rest)?, request: long(rest)? })
        };
        let state = Self { driver_version, queues: queues(rest, chain)?, lost: ids(rest)? };
        if rest.is_empty() { Ok(state) } else { Err(invalid("the state is too long")) }
    }

    /// Reads a state of version 1 behind its head, up to its end.
    ///
    /// Errors (`InvalidData`): it is cut, or a number is out of range.
    fn read_without_sessions(from: impl Read) -> io::Result<Self> {
        let mut bytes = Vec::new();
        from.take(MAX_BYTES).read_to_end(&mut bytes)?;
        let rest = &mut &bytes[..];
        let chain = |rest: &mut &[u8]| {
            let head = u16::try_from(number(rest)?).map_err(|_| invalid("a head out of range"))?;
            let pieces = number(rest)?;
            if pieces > MAX_PIECES {
                return Err(invalid("a reply header in too many pieces"));
            }
            // The chain itself says where its reply goes.
            (0..pieces).try_for_each(|_| take::<12>(rest).map(drop))?;
            Ok(Unanswered { head, ..Unanswered::default() })
        };
        Ok(Self { queues: queues(rest, chain)?, lost: ids(rest)?, driver_version: 0 })
    }
}

/// Reads the head of a state. Returns its version.
///
/// Errors (`InvalidData`): the data is not a state, or has an unknown version.
fn version(mut from: impl Read) -> io::Result<u32> {
    let mut head = [0; 12];
    from.read_exact(&mut head)?;
    let mut rest = &head[..];
    if take::<8>(&mut rest)? != MAGIC {
        return Err(invalid("not the state of this device"));
    }
    match number(&mut rest)? {
        version @ (VERSION | VERSION_WITHOUT_SESSIONS) => Ok(version),
        version => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the state has version {version}, this backend reads {VERSION_WITHOUT_SESSIONS} and {VERSION}"
            ),
        )),
    }
}

fn queues(
    rest: &mut &[u8],
    chain: impl Fn(&mut &[u8]) -> io::Result<Unanswered>,
) -> io::Result<Vec<Vec<Unanswered>>> {
    (0..count(rest)?).map(|_| (0..count(rest)?).map(|_| chain(rest)).collect()).collect()
}

fn ids(rest: &mut &[u8]) -> io::Result<Vec<u64>> {
    (0..count(rest)?).map(|_| long(rest)).collect()
}

fn put(bytes: &mut Vec<u8>, value: u32) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

fn take<const N: usize>(rest: &mut &[u8]) -> io::Result<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or_else(|| invalid("the state is cut short"))?;
    *rest = tail;
    Ok(*head)
}

fn number(rest: &mut &[u8]) -> io::Result<u32> {
    Ok(u32::from_le_bytes(take::<4>(rest)?))
}

fn long(rest: &mut &[u8]) -> io::Result<u64> {
    Ok(u64::from_le_bytes(take::<8>(rest)?))
}

fn count(rest: &mut &[u8]) -> io::Result<u32> {
    let count = number(rest)?;
    if count > MAX_ITEMS { Err(invalid("a count out of range")) } else { Ok(count) }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A fuzz target: any bytes as the state of a machine's queues, of both versions. A state that can be read is written as the same bytes.
#[cfg(any(test, fuzzing))]
pub fn fuzz(data: &[u8]) {
    if let Ok(state) = State::read(data) {
        assert_eq!(state.bytes(), data);
    }
    let _ = State::read_without_sessions(data);
    load::fuzz(data);
    ahead::fuzz(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> State {
        let chain = Unanswered { head: 7, session: 0x1234_5678_9abc_def0, request: 9 };
        State { queues: vec![vec![chain], vec![], vec![]], lost: vec![3], driver_version: 5 }
    }

    #[test]
    fn a_state_survives_the_journey() {
        assert_eq!(State::read(&example().bytes()).unwrap(), example());
    }

    #[test]
    fn every_cut_is_refused() {
        let bytes = example().bytes();
        for length in 0..bytes.len() {
            assert!(State::read(&bytes[..length]).is_err(), "{length} bytes were accepted");
        }
        assert!(State::read(&[&bytes[..], &[0]].concat()).is_err());
    }

    /// As release 0.9 wrote it.
    #[test]
    fn a_state_of_the_version_before_is_read() {
        let mut bytes = MAGIC.to_vec();
        for number in [1, 2, 1, 7, 2, 0x1000, 0, 4, 0x5000, 0, 4, 0, 1, 3, 0] {
            put(&mut bytes, number);
        }
        let mut from = &bytes[..];
        assert_eq!(version(&mut from).unwrap(), VERSION_WITHOUT_SESSIONS);
        let chain = Unanswered { head: 7, ..Unanswered::default() };
        let expected = State { queues: vec![vec![chain], vec![]], lost: vec![3], driver_version: 0 };
        assert_eq!(State::read_without_sessions(from).unwrap(), expected);
        for length in 0..from.len() {
            assert!(State::read_without_sessions(&from[..length]).is_err(), "{length} bytes were accepted");
        }
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let mut bytes = MAGIC.to_vec();
        put(&mut bytes, 3);
        assert!(version(&bytes[..]).unwrap_err().to_string().contains("version 3"));
        assert!(version(&bytes[..11]).is_err() && version(&b"VCUDSTAX\x02\0\0\0"[..]).is_err());
    }
}
