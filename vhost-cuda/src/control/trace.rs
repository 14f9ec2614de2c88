// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The request `trace`: records what sessions do, and sends it on until the time is over or the client hangs up.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use vhost_cuda_profile::event::Batch;

use super::protocol::Answer;
use super::server::{describe, missing, refusal, write};
use crate::sessions::session::asked::AskError;
use crate::sessions::session::profile::{ProfileError, Profiling};
use crate::suspend::suspender::{Selection, Suspender};

/// The pause between two looks at the workers. They keep what comes meanwhile.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time without a line: a client that has hung up is noticed by it.
const SILENCE: Duration = Duration::from_secs(1);
/// The maximum number of answers of one worker in a row, so that a busy one does not keep others waiting.
const IN_A_ROW: usize = 256;

/// Records the selected sessions for `time`, and sends lines of [`Batch`]. Returns the answer that ends them.
///
/// Errors: those of the socket. Nothing is recorded any longer then.
pub fn serve(
    client: &UnixStream,
    suspender: &Suspender,
    selected: Selection,
    time: Duration,
) -> io::Result<Answer> {
    if let Some(error) = missing(selected, &suspender.members(selected)) {
        return Ok(refusal(error));
    }
    let until = Instant::now() + time;
    // Also those that could not be recorded, with the reason.
    let mut recorded: BTreeMap<u64, Result<Profiling, ProfileError>> = BTreeMap::new();
    let mut silent_since = Instant::now();
    loop {
        let is_over = Instant::now() >= until;
        let members = suspender.members(selected);
        recorded.retain(|label, _| members.iter().any(|member| member.session.label() == *label));
        for member in &members {
            let place = recorded.entry(member.session.label());
            let place = place.or_insert_with(|| Profiling::start(&member.session));
            if let Ok(profiling) = place {
                match pass_on(client, profiling)? {
                    Ok(true) => silent_since = Instant::now(),
                    Ok(false) => {}
                    Err(error) => *place = Err(error),
                }
            }
        }
        let is_in_vain = matches!(selected, Selection::Session(_)) && recorded.values().all(Result::is_err);
        if is_over || is_in_vain {
            break;
        }
        if silent_since.elapsed() >= SILENCE {
            write(client, &Batch::default())?;
            silent_since = Instant::now();
        }
        thread::sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
    }
    let reasons: BTreeMap<u64, String> = recorded
        .into_iter()
        .filter_map(|(label, profiling)| Some((label, profiling.err()?)))
        .filter(|(_, error)| *error != ProfileError::Asked(AskError::Ended))
        .map(|(label, error)| (label, error.to_string()))
        .collect();
    let members = suspender.members(selected);
    let sessions: Vec<_> = members
        .iter()
        .map(|member| describe(member, reasons.get(&member.session.label()).cloned()))
        .collect();
    let (host_memory_used, host_memory_limit) = suspender.host_memory();
    Ok(Answer { ok: reasons.is_empty(), error: None, sessions, host_memory_used, host_memory_limit })
}

/// Sends on what a worker has recorded. Returns whether that was anything.
///
/// Errors: those of the socket; inside, the session's.
fn pass_on(client: &UnixStream, profiling: &mut Profiling) -> io::Result<Result<bool, ProfileError>> {
    let mut any = false;
    for _ in 0..IN_A_ROW {
        let (batch, left) = match profiling.read() {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        if !batch.events.is_empty() || batch.dropped > 0 || batch.no_gpu.is_some() {
            write(client, &batch)?;
            any = true;
        }
        if left == 0 {
            break;
        }
    }
    Ok(Ok(any))
}
