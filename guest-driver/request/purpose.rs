// SPDX-License-Identifier: GPL-2.0-only

//! The purposes of requests, and the effects of their replies. The effects happen exactly once per request that was
//! sent, whether or not a thread waits for it.

use crate::{
    device::Device,
    error::Fault,
    limits::places::Places,
    memory::Memory,
    request::Answer,
    session::Session,
    transport::{
        Hello,
        Opened,
        PROTOCOL_VERSION, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// See the module's documentation.
pub(crate) enum Purpose {
    /// A request that was created in advance.
    None,
    /// `OP_HELLO`, with the number of the greeting.
    Hello(Arc<Device>, u64),
    /// `OP_OPEN`.
    Open(Arc<Session>),
    /// `OP_CALL`.
    Call(Arc<Session>),
    /// `OP_CALL` with `FLAG_KEEP`: the device keeps the memory under this tag.
    Keep(Arc<Session>, u64),
    /// `OP_SHARE`: the device keeps the area at this offset of the device file.
    Share(Arc<Session>, u64),
    /// `OP_UNPIN` of the tag.
    Unpin(Arc<Session>, u64),
    /// `OP_CLOSE`.
    Close(Arc<Session>),
}

impl Purpose {
    /// Returns the counter of the session's descriptors in rings. None: the request is the driver's own, not a
    /// process's call.
    pub(crate) fn places(&self) -> Option<Arc<Places>> {
        match self {
            Self::Call(session) | Self::Keep(session, _) => Some(session.places.clone()),
            _ => None,
        }
    }

    /// Performs the effects of `answer`. `memory` is the memory that the device could write. Sleeps.
    pub(crate) fn settle(
        self,
        answer: Result<Answer, Fault>,
        memory: Option<Memory>,
    ) -> Result<Answer> {
        match self {
            Self::None => (),
            Self::Hello(device, greeting) => {
                device.greeted(
                    greeting,
                    answer.as_ref().map_err(|f| *f).and_then(check_hello),
                );
            }
            Self::Open(session) => {
                // If the opener does not wait any more, the session closes itself.
                let opened = answer.as_ref().map_err(|f| *f).and_then(|a| a.value());
                session.opened(opened.map(|Opened { session }| session))?;
            }
            Self::Call(session) => session.note(&answer),
            Self::Keep(session, tag) | Self::Share(session, tag) => {
                session.note(&answer);
                match &answer {
                    // After a malformed reply the device may have the memory, too, until the session is closed.
                    Ok(_) | Err(Fault::Garbled) => session.keep(tag, memory),
                    Err(_) => session.forget_tag(tag),
                }
            }
            Self::Unpin(session, tag) => {
                session.note(&answer);
                match &answer {
                    Ok(_) | Err(Fault::Lost) => session.forget_tag(tag),
                    // The device may still use the pages.
                    Err(_) => session.keep_on(tag),
                }
            }
            Self::Close(session) => session.closed(answer.as_ref().err().copied()),
        }
        Ok(answer?)
    }
}

fn check_hello(answer: &Answer) -> Result<(), Fault> {
    let hello: Hello = answer.value()?;
    if hello.protocol_version == PROTOCOL_VERSION {
        Ok(())
    } else {
        Err(Fault::Refused)
    }
}
