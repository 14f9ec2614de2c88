// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests and answers on the control socket: one JSON object per line each.

use serde::{Deserialize, Serialize};

use crate::suspend::suspender::Selection;

/// The maximum length of a request in bytes, with the newline. It bounds the memory that a client takes.
pub const MAX_REQUEST: usize = 4096;
/// The default and the maximum of `timeout_ms`.
pub const DEFAULT_TIMEOUT_MS: u32 = 10_000;
/// See [`DEFAULT_TIMEOUT_MS`].
pub const MAX_TIMEOUT_MS: u32 = 600_000;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Returns all sessions.
    Status {},
    /// Replaces the daemon's program. The new one answers.
    Replace {},
    /// Moves device memory to host memory.
    Suspend {
        /// A session's number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
        /// A connection's number: all its sessions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<u64>,
        /// True for all sessions of the daemon.
        #[serde(default)]
        all: bool,
        /// The time for work that has begun to end, in milliseconds.
        #[serde(default = "default_timeout")]
        timeout_ms: u32,
        /// True if calls of the program do not bring it back.
        #[serde(default)]
        hold: bool,
        /// True if the driver's objects of suspended sessions end, too.
        #[serde(default)]
        deep: bool,
    },
    /// Brings device memory back.
    Resume {
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<u64>,
        /// As above.
        #[serde(default)]
        all: bool,
        /// The time to wait for room on the card, in milliseconds.
        #[serde(default = "default_timeout")]
        timeout_ms: u32,
    },
    /// Gives sessions other workers while their programs run.
    Renew {
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<u64>,
        /// As above.
        #[serde(default)]
        all: bool,
        /// The time for work that has begun to end, in milliseconds.
        #[serde(default = "default_timeout")]
        timeout_ms: u32,
    },
    /// Suspends a session, and holds it. Before that, after the first of two answers, which comes with a pipe, the client sends files, a byte with each:
    /// the number of those that follow. The contents go there, and their places through the pipe.
    Save {
        /// A session's number.
        session: u64,
        /// The time for work that has begun to end, in milliseconds.
        #[serde(default = "default_timeout")]
        timeout_ms: u32,
    },
    /// Gives up the contents in host memory that were sent last: they are safe.
    Saved {
        /// A session's number.
        session: u64,
    },
    /// Takes the contents of a session, and brings its device memory back. After the first of two answers, which comes with a pipe, the client
    /// sends a byte with the file in memory that has them, and their places through the pipe.
    Restore {
        /// A session's number.
        session: u64,
        /// The time to wait for room on the card, in milliseconds.
        #[serde(default = "default_timeout")]
        timeout_ms: u32,
    },
    /// Records what sessions do, also those that begin meanwhile. Before the answer come lines of
    /// [`vhost_cuda_profile::event::Batch`].
    Trace {
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<u64>,
        /// As above.
        #[serde(default)]
        all: bool,
        /// The time to record, in milliseconds. It ends earlier if the client hangs up, or the session ends.
        time_ms: u32,
    },
    /// Describes the recipes of sessions.
    Recipe {
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<u64>,
        /// As above.
        #[serde(default)]
        all: bool,
    },
}

fn default_timeout() -> u32 {
    DEFAULT_TIMEOUT_MS
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Returns the sessions that a request selects.
///
/// Errors: none or several of the three fields are there.
pub fn selection(session: Option<u64>, connection: Option<u64>, all: bool) -> Result<Selection, String> {
    match (session, connection, all) {
        (Some(session), None, false) => Ok(Selection::Session(session)),
        (None, Some(connection), false) => Ok(Selection::Connection(connection)),
        (None, None, true) => Ok(Selection::All),
        _ => Err("name one of `session`, `connection` and `\"all\": true`".into()),
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// True if the request was carried out for all its sessions.
    pub ok: bool,
    /// The reason for which nothing was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The sessions that the request selects, as they are afterwards.
    #[serde(default)]
    pub sessions: Vec<Session>,
    /// The daemon's host memory for suspended sessions, in bytes: what they take.
    #[serde(default)]
    pub host_memory_used: u64,
    /// The limit of it, if there is one (`--suspend-memory`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory_limit: Option<u64>,
    /// The host memory that is ready for contents, in bytes.
    #[serde(default)]
    pub pool_ready: u64,
    /// The size of the pool, in bytes (`--suspend-pool`).
    #[serde(default)]
    pub pool_limit: u64,
}

/// A session in an answer. Numbers and names are those of the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The connection's number in the log.
    pub connection: u64,
    /// The session's number in the log.
    pub session: u64,
    /// The program, in printable characters.
    pub program: String,
    /// Its process id in the guest.
    pub pid: u32,
    /// Its user in the guest.
    pub uid: u32,
    /// `running`, `suspending`, `suspended`, `held`, `saved` or `resuming`.
    pub state: String,
    /// True if a call of the program waits for its memory.
    pub wanted: bool,
    /// Device memory on the card, without the context, in bytes.
    pub on_card_bytes: u64,
    /// Device memory in host memory, in bytes.
    pub suspended_bytes: u64,
    /// The host memory that it takes, in bytes, also for contents that are kept while the session runs.
    pub stored_bytes: u64,
    /// The part of the contents that the last suspension copied, in bytes.
    #[serde(default)]
    pub copied_bytes: u64,
    /// The host memory that is ready for its contents, in bytes.
    #[serde(default)]
    pub ready_bytes: u64,
    /// The time since the last call, in milliseconds.
    pub idle_ms: u64,
    /// The number of moves to host memory.
    pub suspensions: u64,
    /// The number of moves back.
    pub resumes: u64,
    /// The number of times that it has got another worker.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub renewals: u64,
    /// The number of moves that failed.
    pub failures: u64,
    /// The time of all moves, in milliseconds.
    pub moving_ms: u64,
    /// If a deep suspension was asked for: whether the driver's objects have ended, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deep: Option<bool>,
    /// The reason if they have not. The session is suspended, or runs, as `state` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_deep: Option<String>,
    /// The recipe, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// The reason for which the request was not carried out for this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The calls that would make a session's objects again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// The number of calls.
    pub calls: u64,
    /// Its length in the worker's memory, in bytes.
    pub bytes: u64,
    /// The first reason for which it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Request> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn requests_have_defaults_and_no_unknown_fields() {
        assert_eq!(parsed(r#"{"do":"status"}"#), Some(Request::Status {}));
        let suspend = Request::Suspend {
            session: Some(3),
            connection: None,
            all: false,
            timeout_ms: DEFAULT_TIMEOUT_MS,
            hold: false,
            deep: false,
        };
        assert_eq!(parsed(r#"{"do":"suspend","session":3}"#), Some(suspend.clone()));
        assert_eq!(parsed(&serde_json::to_string(&suspend).unwrap()), Some(suspend));
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"do":"status","all":true}"#,
            r#"{"do":"suspend","sesion":3}"#,
            r#"{"do":"suspend","session":-1}"#,
            r#"{"do":"suspend","session":3,"session":4}"#,
            r#"{"do":"resume","all":true,"hold":true}"#,
            r#"{"do":"resume","all":1}"#,
            r#"{"do":"trace","all":true}"#,
            r#"{"do":"recipe","all":true,"timeout_ms":1}"#,
            r#"{"do":"renew","all":true,"hold":true}"#,
            r#"{"do":"resume","timeout_ms":4294967296}"#,
            r#"{"do":"suspend","session":3} x"#,
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_selects_in_one_way() {
        assert_eq!(selection(Some(1), None, false), Ok(Selection::Session(1)));
        assert_eq!(selection(None, Some(1), false), Ok(Selection::Connection(1)));
        assert_eq!(selection(None, None, true), Ok(Selection::All));
        for (session, connection, all) in
            [(None, None, false), (Some(1), None, true), (Some(1), Some(1), false)]
        {
            assert!(selection(session, connection, all).is_err());
        }
    }
}
