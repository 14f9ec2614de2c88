// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state that moves with a guest. It contains no CUDA state, only the data that the destination needs to report
//! sessions as lost.
//!
//! The state is a head, then for each queue its unanswered chains, then the open sessions, all little-endian.

use std::fs::File;
use std::io::{self, Read, Write};

use virtio_cuda_protocol::transport::ReplyHeader;

use crate::front_end::device::Device;
use crate::guest::ring::Unanswered;

/// The first bytes of the state.
const MAGIC: [u8; 8] = *b"VCUDSTAT";
/// The version of the state's layout.
const VERSION: u32 = 1;
/// The maximum length of a state in bytes: every chain of every queue, twice over.
const MAX_BYTES: u64 = 4 << 20;
/// The maximum number of chains per queue (its size), and of sessions.
const MAX_ITEMS: u32 = 1024;

/// The saved state of a device.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct State {
    /// For each queue, chains that the source took and never answered.
    pub queues: Vec<Vec<Unanswered>>,
    /// The sessions that were open.
    pub sessions: Vec<u64>,
}

impl State {
    /// Returns the state of `device`, whose queues are stopped.
    ///
    /// Errors: there are open sessions, and they must not be lost.
    pub fn of(device: &Device) -> io::Result<Self> {
        let queues = device.rings.iter().map(|ring| ring.unanswered()).collect();
        let sessions = device.open_sessions();
        if !sessions.is_empty() && !device.settings.lose_sessions {
            return Err(io::Error::other(format!(
                "{} sessions are open and would be lost: end the programs that use CUDA in the guest, or start the daemon \
                 with --lose-sessions",
                sessions.len()
            )));
        }
        Ok(Self { queues, sessions })
    }

    /// Makes `device` answer the chains that the source left open.
    ///
    /// Errors: the source had a different number of queues.
    pub fn restore(self, device: &Device) -> io::Result<()> {
        if self.queues.len() != device.rings.len() {
            return Err(invalid("the source has another number of queues (--num-queues must be the same)"));
        }
        for (ring, chains) in device.rings.iter().zip(self.queues) {
            ring.inherit(chains);
        }
        for session in self.sessions {
            device.send_lost(session);
        }
        Ok(())
    }

    /// Writes the state.
    pub fn save(&self, mut file: File) -> io::Result<()> {
        file.write_all(&self.bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        put(&mut bytes, VERSION);
        put(&mut bytes, self.queues.len() as u32);
        for chains in &self.queues {
            put(&mut bytes, chains.len() as u32);
            for chain in chains {
                put(&mut bytes, u32::from(chain.head));
                put(&mut bytes, chain.slot.len() as u32);
                for &(addr, length) in &chain.slot {
                    bytes.extend_from_slice(&addr.to_le_bytes());
                    put(&mut bytes, length);
                }
            }
        }
        put(&mut bytes, self.sessions.len() as u32);
        self.sessions.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
        bytes
    }

    /// Reads a state to its end.
    ///
    /// Errors (`InvalidData`): the data is not a state, or has another version.
    pub fn load(file: impl Read) -> io::Result<Self> {
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        let mut rest = &bytes[..];
        if take::<8>(&mut rest)? != MAGIC {
            return Err(invalid("not the state of this device"));
        }
        let version = number(&mut rest)?;
        if version != VERSION {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the state has version {version}, this backend reads {VERSION}"),
            ));
        }
        let queues = (0..count(&mut rest)?).map(|_| chains(&mut rest)).collect::<io::Result<_>>()?;
        let sessions = (0..count(&mut rest)?)
            .map(|_| Ok(u64::from_le_bytes(take::<8>(&mut rest)?)))
            .collect::<io::Result<_>>()?;
        Ok(Self { queues, sessions })
    }
}

/// A fuzz target: any bytes as a state. A state that can be read is saved as the same bytes.
#[cfg(any(test, fuzzing))]
pub fn fuzz(data: &[u8]) {
    if let Ok(state) = State::load(data) {
        let saved = state.bytes();
        assert_eq!(saved[..], data[..saved.len()]);
    }
}

fn chains(rest: &mut &[u8]) -> io::Result<Vec<Unanswered>> {
    (0..count(rest)?)
        .map(|_| {
            let head = u16::try_from(number(rest)?).map_err(|_| invalid("a head out of range"))?;
            let pieces = number(rest)?;
            if pieces as usize > size_of::<ReplyHeader>() {
                return Err(invalid("a reply header in too many pieces"));
            }
            let slot = (0..pieces)
                .map(|_| Ok((u64::from_le_bytes(take::<8>(rest)?), number(rest)?)))
                .collect::<io::Result<_>>()?;
            Ok(Unanswered { head, slot })
        })
        .collect()
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

fn count(rest: &mut &[u8]) -> io::Result<u32> {
    let count = number(rest)?;
    if count > MAX_ITEMS { Err(invalid("a count out of range")) } else { Ok(count) }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};
    use vmm_sys_util::tempfile::TempFile;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = TempFile::new().unwrap().into_file();
        file.write_all(bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file
    }

    fn saved(state: &State) -> Vec<u8> {
        let mut file = TempFile::new().unwrap().into_file();
        state.save(file.try_clone().unwrap()).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn example() -> State {
        let chain = Unanswered { head: 7, slot: vec![(0x1000, 4), (0x5000, 4)] };
        State { queues: vec![vec![chain], vec![], vec![]], sessions: vec![0x1234_5678_9abc_def0] }
    }

    #[test]
    fn a_state_survives_the_journey() {
        assert_eq!(State::load(file_of(&saved(&example()))).unwrap(), example());
    }

    #[test]
    fn every_cut_and_every_other_version_is_refused() {
        let bytes = saved(&example());
        for length in 0..bytes.len() {
            assert!(State::load(file_of(&bytes[..length])).is_err(), "{length} bytes were accepted");
        }
        let mut other = bytes;
        other[8] = 2;
        assert!(State::load(file_of(&other)).unwrap_err().to_string().contains("version 2"));
    }
}
