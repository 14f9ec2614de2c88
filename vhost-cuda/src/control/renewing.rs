// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that get another worker for the operator.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::protocol::Answer;
use super::server::{Served, answer_with, missing, moved};
use crate::confine::threads;
use crate::hand_over::freeze;
use crate::sessions::session::Session;
use crate::suspend::suspender::Selection;
use crate::suspend::suspender::renewing::Error;

/// Gives a session of a connection another worker. The time is that for its work to end. Returns an error if it has not got one, or has
/// not come back with it.
pub type Renew = Arc<dyn Fn(u64, &Arc<Session>, Duration) -> Result<(), Error> + Send + Sync>;

/// Gives the selected sessions other workers, one after the other: the card needs room for one context more.
pub fn answer(served: &Served, selected: Selection, time: Duration) -> Answer {
    let members = served.suspender.members(selected);
    let missing = missing(selected, &members);
    let sessions: Vec<_> = members.iter().map(|member| (member.connection, member.session.clone())).collect();
    let renew = served.renew.clone();
    let (said, results) = channel();
    // This thread is confined, and starts no workers.
    threads::outside(move || {
        let work = move || {
            for (connection, session) in sessions {
                let result = if freeze::is_leaving() {
                    Err(Error::Worker("the daemon's program is being replaced: try again".into()))
                } else {
                    renew(connection, &session, time)
                };
                if said.send(result.err()).is_err() {
                    return;
                }
            }
        };
        // Without a thread, `said` is dropped.
        let _ = thread::Builder::new().name("renew".into()).spawn(work);
    });
    let no_thread = || Error::Worker("there is no thread for it".into());
    let next = |_| results.recv().unwrap_or_else(|_| Some(no_thread()));
    let errors: Vec<Option<Error>> = members.iter().map(next).collect();
    let result = |(member, error)| moved(selected, member, error, Error::has_ended);
    let sessions = members.iter().zip(errors).filter_map(result);
    let sessions = sessions.collect();
    answer_with(missing, sessions, &served.suspender)
}
