// SPDX-License-Identifier: GPL-2.0-only

//! Opening and closing of a session.

use super::{
    Session,
    CLOSING, //
};
use crate::{
    device::Device,
    error::Fault,
    linux::{
        task,
        wait::{
            Mode,
            Patience, //
        }, //
    },
    request::{
        purpose::Purpose,
        Answer,
        Draft,
        Payload,
        Request, //
    },
    transport::{
        Open,
        RequestHeader,
        OP_CLOSE,
        OP_OPEN, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    time::Msecs,
    workqueue::WorkItem, //
};

/// The maximum time that open(2) waits for a backend that has not answered the greeting yet.
const GREETING_PATIENCE_MS: Msecs = 5_000;
/// The maximum time that open(2) waits for its session: the backend may have to start a worker, and CUDA in it.
const OPEN_PATIENCE_MS: Msecs = 30_000;
impl WorkItem<CLOSING> for Session {
    type Pointer = Arc<Session>;

    /// Sends `OP_CLOSE` if there was no room in the ring before.
    fn run(this: Arc<Session>) {
        let farewell = this.farewell.lock().take();
        if let Some(request) = farewell {
            if this
                .device
                .submit(request, Mode::Killable, || false)
                .is_err()
            {
                this.device.strand(this.clone());
            }
        }
    }
}

impl Session {
    /// Opens a session for the current process. `ENOLINK`: there is no backend; `EDQUOT`: the user has, or all users
    /// have, too many sessions; `ETIMEDOUT`: the backend does not answer.
    pub(crate) fn open(device: Arc<Device>) -> Result<Arc<Self>> {
        let mut patience = Patience::millis(GREETING_PATIENCE_MS);
        let greeting = device.wait_ready(&mut patience)?;
        match Self::open_with(&device, greeting) {
            Err(error) if error == Fault::Lost.into() => {
                // The backend has restarted without a notification: repeat the handshake.
                device.backend_restarted(greeting);
                let greeting = device.wait_ready(&mut patience)?;
                Self::open_with(&device, greeting)
            }
            other => other,
        }
    }

    fn open_with(device: &Arc<Device>, greeting: u64) -> Result<Arc<Self>> {
        let session = Self::new(device.clone())?;
        let opened = device
            .register(session.clone(), greeting)
            .map_err(Error::from)
            .and_then(|()| session.request_open());
        if opened.is_err() {
            session.close();
        }
        opened.map(|_| session)
    }

    fn request_open(self: &Arc<Self>) -> Result<Answer> {
        let who = Open {
            pid: current!().group_leader().pid() as u32,
            uid: task::current_uid(),
            charged_uid: task::charged_uid(),
            name: task::current_name(),
        };
        let draft = Draft {
            header: self.header(OP_OPEN),
            payload: Payload::Kernel(who.as_bytes()),
            reply_bytes: size_of::<crate::transport::Opened>(),
            input: None,
            output: None,
        };
        let request = Request::new(draft, Purpose::Open(self.clone()))?;
        let mut patience = Patience::millis(OPEN_PATIENCE_MS);
        // Killable, because each attempt costs the host a worker: a program with a frequent timer signal must not try
        // again at each signal.
        let (ticket, pending) = self.start(request, Mode::Killable)?;
        self.wait_for(ticket, pending, Mode::Killable, &mut patience)
    }

    /// Handles the reply to `OP_OPEN`.
    pub(crate) fn opened(self: &Arc<Self>, id: Result<u64, Fault>) -> Result<(), Fault> {
        let id = id?;
        if id == 0 {
            return Err(Fault::Refused);
        }
        let state = self.state.lock();
        self.id.store(id, Relaxed);
        let closed = state.closed;
        drop(state);
        if closed {
            self.say_goodbye(id);
        }
        Ok(())
    }

    /// Ends the session; its waits continue without it. Does not wait. May be called repeatedly.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if core::mem::replace(&mut state.closed, true) {
            return;
        }
        let calls = state.calls.remove_all();
        let id = self.id();
        drop(state);
        self.ledger.closing();
        self.events_changed.notify_all();
        self.device.unregister(self);
        // Suspended calls settle when they are answered; for some that may happen here.
        drop(calls);
        // The watches refer to the session.
        let watches = self.watches.lock().end();
        drop(watches);
        if id != 0 {
            self.say_goodbye(id);
        }
    }

    /// Sends `OP_CLOSE`. Called once: by [`Self::close`] or [`Self::opened`], whichever comes second.
    fn say_goodbye(self: &Arc<Self>, id: u64) {
        let farewell = self.farewell.lock().take();
        let Some(request) = farewell else {
            return;
        };
        let header = RequestHeader {
            op: OP_CLOSE,
            session: id,
            ..Default::default()
        };
        if request
            .address(header, Purpose::Close(self.clone()))
            .is_err()
        {
            return;
        }
        if let Err(request) = self.device.try_submit(request) {
            *self.farewell.lock() = Some(request);
            // It was never queued before, because this is called once.
            let works = self.device.works();
            let _ = works.queue().enqueue::<_, CLOSING>(self.clone());
        }
    }

    /// Handles the reply to `OP_CLOSE`.
    pub(crate) fn closed(self: Arc<Self>, fault: Option<Fault>) {
        match fault {
            None | Some(Fault::Lost) => (),
            Some(fault) => {
                dev_err!(
                    self.device.dev(),
                    "backend does not close session {}: {fault:?}; its memory is held until the device is removed\n",
                    self.id()
                );
                let device = self.device.clone();
                device.strand(self);
            }
        }
    }
}
