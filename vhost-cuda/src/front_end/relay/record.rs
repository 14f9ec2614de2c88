// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages that have made a device what it is, without those that later ones have made void. Another program that handles
//! them has the same device.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use vhost::vhost_user::message::FrontendReq as Request;

use super::message::{Message, SavedMessage};
use crate::hand_over::files::{Inherited, Leaving};

/// The bytes of a region of memory in a message: address, length, address in the front-end, offset in the file.
const REGION: usize = 32;
/// The bytes in front of the regions.
const BEFORE_REGIONS: usize = 8;
/// The maximum number of regions in one message. More are added one by one.
const TABLE: usize = 8;
/// The maximum number of regions, as in the library that handles the messages.
const MAX_REGIONS: usize = 509;
/// The bits of a queue's number beside an event, and the one that says that there is no event.
const QUEUE: u32 = 0xff;
const NO_EVENT: u32 = 1 << 8;
/// The maximum number of queues of which anything is recorded: those that a device may have.
const MAX_QUEUES: u32 = 32;

/// The messages of a queue, in the order in which they are repeated.
const OF_QUEUE: [Request; 7] = [
    Request::SET_VRING_NUM,
    Request::SET_VRING_ADDR,
    Request::SET_VRING_BASE,
    Request::SET_VRING_CALL,
    Request::SET_VRING_ERR,
    Request::SET_VRING_KICK,
    Request::SET_VRING_ENABLE,
];
/// Messages about the whole device, in the order in which they are repeated. Memory comes between the third and the fourth.
const OF_DEVICE: [Request; 5] = [
    Request::SET_OWNER,
    Request::SET_PROTOCOL_FEATURES,
    Request::SET_FEATURES,
    Request::SET_LOG_BASE,
    Request::SET_LOG_FD,
];
/// The number of those in front of memory.
const BEFORE_MEMORY: usize = 3;

/// A region of memory, as the front-end describes it, and its file.
#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    file: File,
}

/// The messages of one connection.
#[derive(Debug, Default)]
pub struct Record {
    device: BTreeMap<u32, Message>,
    /// By the queue's number and the request's.
    queues: BTreeMap<(u32, u32), Message>,
    regions: Vec<Region>,
}

/// A record that is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedRecord {
    device: Vec<SavedMessage>,
    queues: Vec<SavedMessage>,
    regions: Vec<SavedMessage>,
}

impl Record {
    /// Notes a message that the front-end has sent.
    ///
    /// Errors: the daemon has no descriptors for it.
    pub fn note(&mut self, message: &Message) -> io::Result<()> {
        let Ok(request) = Request::try_from(message.request) else { return Ok(()) };
        match request {
            _ if OF_DEVICE.contains(&request) => {
                self.device.insert(message.request, message.to_record()?);
            }
            _ if OF_QUEUE.contains(&request) => {
                let Some(queue) = queue_of(request, message).filter(|&queue| queue < MAX_QUEUES) else {
                    return Ok(());
                };
                self.queues.insert((queue, message.request), message.to_record()?);
            }
            Request::SET_MEM_TABLE => {
                let regions = message.body.get(BEFORE_REGIONS..).unwrap_or_default();
                let both = regions.chunks_exact(REGION).zip(&message.files);
                self.regions = both.map(|(bytes, file)| region(bytes, file)).collect::<io::Result<_>>()?;
            }
            Request::ADD_MEM_REG => {
                if let (Some(bytes), [file]) = (region_in(message), &message.files[..])
                    && self.regions.len() < MAX_REGIONS
                {
                    self.regions.push(region(bytes, file)?);
                }
            }
            Request::REM_MEM_REG => {
                // Its address and length count, as in the library.
                let same = |region: &Region| {
                    region_in(message).is_some_and(|bytes| bytes[..16] == region.bytes[..16])
                };
                if let Some(index) = self.regions.iter().position(same) {
                    self.regions.remove(index);
                }
            }
            Request::GET_VRING_BASE => {
                let queue = message.word(0).unwrap_or(u32::MAX);
                for event in [Request::SET_VRING_KICK, Request::SET_VRING_CALL] {
                    self.queues.remove(&(queue, event as u32));
                }
            }
            Request::RESET_DEVICE => {
                self.device.remove(&(Request::SET_FEATURES as u32));
                self.queues.retain(|&(_, request), _| request != Request::SET_VRING_ENABLE as u32);
            }
            Request::RESET_OWNER => {
                for request in [Request::SET_OWNER, Request::SET_PROTOCOL_FEATURES, Request::SET_FEATURES] {
                    self.device.remove(&(request as u32));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes the position of each queue from which chains were taken, as if the front-end had said it. It counts until the queue
    /// runs again, which may be after the next replacement.
    pub fn set_positions(&mut self, next_avail: &[Option<u16>]) {
        for (queue, next) in (0..MAX_QUEUES).zip(next_avail) {
            let Some(next) = *next else { continue };
            let request = Request::SET_VRING_BASE as u32;
            let body = [queue.to_ne_bytes(), u32::from(next).to_ne_bytes()].concat();
            self.queues.insert((queue, request), Message::request(request, body));
        }
    }

    /// Returns the messages to repeat.
    ///
    /// Errors: the process has no descriptors.
    pub fn messages(&self) -> io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        let of_device = |requests: &[Request], messages: &mut Vec<Message>| {
            let noted = requests.iter().filter_map(|&request| self.device.get(&(request as u32)));
            noted
                .map(Message::to_record)
                .try_for_each(|message| message.map(|message| messages.push(message)))
        };
        of_device(&OF_DEVICE[..BEFORE_MEMORY], &mut messages)?;
        let (table, added) = self.regions.split_at(self.regions.len().min(TABLE));
        if !table.is_empty() {
            let count = [(table.len() as u32).to_ne_bytes(), [0; 4]].concat();
            let bodies: Vec<_> = table.iter().map(|region| region.bytes.as_slice()).collect();
            let mut message =
                Message::request(Request::SET_MEM_TABLE as u32, [count, bodies.concat()].concat());
            message.files = table.iter().map(|region| region.file.try_clone()).collect::<io::Result<_>>()?;
            messages.push(message);
        }
        for Region { bytes, file } in added {
            let body = [&[0; BEFORE_REGIONS][..], bytes].concat();
            let mut message = Message::request(Request::ADD_MEM_REG as u32, body);
            message.files = vec![file.try_clone()?];
            messages.push(message);
        }
        of_device(&OF_DEVICE[BEFORE_MEMORY..], &mut messages)?;
        let of_queue = |queue| OF_QUEUE.map(|request| self.queues.get(&(queue, request as u32)));
        for message in (0..MAX_QUEUES).flat_map(of_queue).flatten() {
            messages.push(message.to_record()?);
        }
        Ok(messages)
    }

    /// Repeats the notifications of all queues, so that chains are looked for which were added while the queues were held.
    pub fn notify(&self) {
        let kicks = self.queues.iter().filter(|((_, request), _)| *request == Request::SET_VRING_KICK as u32);
        for file in kicks.flat_map(|(_, message)| &message.files) {
            // A front-end may have given any descriptor, so that only what is ready is written to.
            let now = Some(&Timespec::default());
            if poll(&mut [PollFd::new(file, PollFlags::OUT)], now) == Ok(1) {
                let _ = { file }.write(&1_u64.to_ne_bytes());
            }
        }
    }

    /// Returns what the next program needs.
    pub fn save(&self, files: &mut Leaving) -> SavedRecord {
        let regions = self.regions.iter().map(|region| {
            let number = files.add(&region.file);
            SavedMessage::of_file(Request::ADD_MEM_REG as u32, region.bytes.clone(), number)
        });
        SavedRecord {
            regions: regions.collect(),
            device: self.device.values().map(|message| message.save(files)).collect(),
            queues: self.queues.values().map(|message| message.save(files)).collect(),
        }
    }

    /// Takes over the record of the program before this one.
    ///
    /// Errors: the state is wrong.
    pub fn restore(saved: SavedRecord, files: &mut Inherited) -> io::Result<Self> {
        let mut record = Self::default();
        for message in saved.device.into_iter().chain(saved.queues) {
            record.note(&Message::restore(message, files)?)?;
        }
        for message in saved.regions {
            let mut message = Message::restore(message, files)?;
            match (message.files.pop(), message.body.len()) {
                (Some(file), REGION) if record.regions.len() < MAX_REGIONS => {
                    record.regions.push(Region { bytes: message.body, file });
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(record)
    }
}

fn region(bytes: &[u8], file: &File) -> io::Result<Region> {
    Ok(Region { bytes: bytes.to_vec(), file: file.try_clone()? })
}

fn region_in(message: &Message) -> Option<&[u8]> {
    message.body.get(BEFORE_REGIONS..BEFORE_REGIONS + REGION)
}

/// Returns the queue that a message is about.
fn queue_of(request: Request, message: &Message) -> Option<u32> {
    let word = message.word(0)?;
    match request {
        Request::SET_VRING_CALL | Request::SET_VRING_KICK | Request::SET_VRING_ERR => {
            (word & !(QUEUE | NO_EVENT) == 0).then_some(word & QUEUE)
        }
        _ => Some(word),
    }
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
