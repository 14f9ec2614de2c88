// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fuzz target: the questions of hostile workers, of two machines and two users.

use vhost_cuda_choices::Choices;

use super::*;
use crate::owner::Machine;

const OWNERS: [Owner; 3] = [
    Owner { machine: Machine::Virtual(1), uid: 1000 },
    Owner { machine: Machine::Virtual(1), uid: 1001 },
    Owner { machine: Machine::Virtual(2), uid: 1000 },
];
/// The number of files that the daemon may store, and those that one user may have of them.
const FILES: usize = 6;
const USER_FILES: usize = 4;

/// Returns a file of the kinds that a worker may send.
fn file(kind: u8) -> Option<File> {
    match kind & 7 {
        1 | 2 => vhost_cuda_common::files::memory_file(c"offered").ok(),
        3 => File::open("/dev/null").ok(),
        4 => File::open("/").ok(),
        _ => None,
    }
}

/// An input is a list of questions, each from one of four sessions.
pub fn run(data: &[u8]) {
    let exchange = Exchange::new();
    let (machine, descriptors) = (Budget::new(FILES), Budget::new(FILES + 1));
    let mut number = 0;
    let mut begin = |owner| {
        number += 1;
        let (session, of_user) = (number, exchange.begin(number, owner, USER_FILES));
        (session, [of_user, machine.clone(), descriptors.clone()])
    };
    let mut sessions: Vec<((u64, Budgets), Owner)> =
        (0..4).map(|index| OWNERS[index % OWNERS.len()]).map(|owner| (begin(owner), owner)).collect();
    // Offers that have not ended, with their owners.
    let mut offers: Vec<(Token, u64, Owner, Offer)> = Vec::new();
    let mut choices = Choices::of(data);
    while choices.more() {
        let who = usize::from(choices.byte() & 3);
        let ((session, budgets), owner) = &sessions[who];
        let (session, owner) = (*session, *owner);
        let token = match choices.below(offers.len() + 1) {
            known if known < offers.len() => offers[known].0,
            _ => choices.array(),
        };
        let mut offer = Offer { what: u32::from(choices.byte() % 7), ..Offer::new_zeroed() };
        let kind = choices.byte();
        (offer.device, offer.handle[0]) = (u32::from(kind & 3), kind >> 4 & 3);
        let question = Question { kind: u32::from(choices.byte() % 5), number: 0, token, offer };
        if question.kind == 4 {
            // The session's process ends, and another one begins.
            exchange.end(session, owner);
            offers.retain(|(_, of, ..)| *of != session);
            sessions[who].0 = begin(owner);
            continue;
        }
        let given = if question.kind == OFFER { file(choices.byte()) } else { None };
        let Ok(answered) = exchange.answer(owner, session, budgets, &question, given) else { continue };
        match (question.kind, answered) {
            (OFFER, Some((answer, _))) if answer.found == 1 => {
                offers.retain(|(known, ..)| *known != answer.token);
                offers.push((answer.token, session, owner, offer));
            }
            (LOOK_UP, Some((answer, _))) => {
                let wanted = offers.iter().find(|(known, _, of, shared)| {
                    *known == token && *of == owner && shared.what == offer.what
                });
                assert_eq!(answer.found == 1, wanted.is_some(), "only the owner finds an offer");
                assert!(wanted.is_none_or(|(.., shared)| *shared == answer.offer));
            }
            (WITHDRAW, _) => offers.retain(|(known, of, ..)| (*known, *of) != (token, session)),
            _ => {}
        }
        assert!(machine.used() <= FILES);
        assert!(sessions.iter().all(|((_, budgets), _)| budgets[0].used() <= USER_FILES));
    }
    for ((session, _), owner) in &sessions {
        exchange.end(*session, *owner);
    }
    assert!(exchange.0.lock().offers.is_empty() && exchange.0.lock().users.is_empty());
    assert_eq!((machine.used(), descriptors.used()), (0, 0));
}
