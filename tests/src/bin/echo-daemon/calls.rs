// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The operations that stand for CUDA calls, numbered as in `driver_test.h`.

use std::thread;
use std::time::Duration;

use virtio_cuda_protocol::transport::{
    EVENT_WAKE, Event, REPLY_INVALID, REPLY_OK, REPLY_SESSION_LOST, ReplyHeader,
};

use crate::chain::Chain;
use crate::sessions::{Outcome, Request, Session};

const SUM_FILL: u64 = 1;
const DELAY: u64 = 2;
const HOLD: u64 = 3;
const KEPT: u64 = 4;
const WAKE: u64 = 5;
const LOSE: u64 = 6;
const STATUS: u64 = 7;
const LIE: u64 = 8;
const DIE: u64 = 9;
const TWICE: u64 = 11;
const WHO: u64 = 12;

/// Executes one; what becomes of the session, and whether the call was refused.
pub fn execute(session: &mut Session, request: Request, chain: Chain) -> (Outcome, bool) {
    let word = |index: usize| -> u64 {
        let bytes = request.payload.get(8 * index..8 * index + 8);
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let (first, second) = (word(1), word(2));
    let goes_on = || (Outcome::GoesOn(Vec::new()), false);
    match word(0) {
        SUM_FILL => {
            let sum = request.input.checksum(&chain.memory);
            request.output.fill(&chain.memory, first);
            let pieces = request.input.entries.len().max(request.output.entries.len()) as u64;
            chain.answer(REPLY_OK, &words(&[sum, pieces]));
            goes_on()
        }
        DELAY => {
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(first));
                request.output.fill(&chain.memory, second);
                let sum = request.input.plain_sum(&chain.memory);
                chain.answer(REPLY_OK, &words(&[sum]));
            });
            goes_on()
        }
        HOLD => {
            session.held.push(chain);
            goes_on()
        }
        KEPT => {
            match session.kept.get(&first) {
                None => chain.answer(REPLY_INVALID, &[]),
                Some(pages) => {
                    let sum = pages.checksum(&chain.memory);
                    pages.fill(&chain.memory, second);
                    chain.answer(REPLY_OK, &words(&[sum, pages.entries.len() as u64]));
                }
            }
            goes_on()
        }
        WAKE => {
            let id = request.header.session;
            let event = |value| Event { kind: EVENT_WAKE, session: id, value, ..Event::default() };
            chain.answer(REPLY_OK, &[]);
            (Outcome::GoesOn((first..first + second).map(event).collect()), false)
        }
        LOSE => {
            chain.answer(REPLY_SESSION_LOST, &[]);
            (Outcome::Lost, true)
        }
        STATUS => {
            chain.answer(first as u32, &[]);
            (Outcome::GoesOn(Vec::new()), first as u32 != REPLY_OK)
        }
        LIE => {
            let header = ReplyHeader { status: REPLY_OK, payload_bytes: first as u32 };
            chain.answer_with(header, &[], second as u32);
            goes_on()
        }
        DIE => std::process::exit(0),
        TWICE => {
            chain.answer_twice(REPLY_OK);
            goes_on()
        }
        WHO => {
            chain.answer(REPLY_OK, &words(&[session.uid.into(), session.charged_uid.into()]));
            goes_on()
        }
        _ => {
            let echoed = request.payload.len().min(chain.room());
            chain.answer(REPLY_OK, &request.payload[..echoed]);
            goes_on()
        }
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
