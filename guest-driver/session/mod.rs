// SPDX-License-Identifier: GPL-2.0-only

//! One open file's session with the device.
//!
//! A session outlives its file: each request that the device still has refers to it, and the memory that the device
//! keeps belongs to it. The reply to `OP_CLOSE`, the last request, frees all of that.

mod calls;
mod events;
pub(crate) mod inbox;
pub(crate) mod kept;
mod life;
pub(crate) mod outstanding;
mod tags;
pub(crate) mod watch;

use crate::{
    device::Device,
    limits::{
        places::Places,
        users::Ledger, //
    },
    linux::irqlock::{
        new_irq_lock,
        IrqLock, //
    },
    request::{
        purpose::Purpose,
        Draft,
        Payload,
        Request, //
    },
    session::{
        inbox::Events,
        kept::Kept,
        outstanding::Calls,
        watch::Watches, //
    },
    transport::RequestHeader, //
};
use kernel::{
    new_mutex, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        poll::PollCondVar,
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        Work, //
    },
};

struct State {
    /// Set if the device has removed the session, or will.
    lost: bool,
    /// Set if the file is closed.
    closed: bool,
    last_tag: u64,
    calls: Calls,
    events: Events,
}

/// See the module's documentation.
#[pin_data]
pub(crate) struct Session {
    pub(crate) device: Arc<Device>,
    pub(crate) places: Arc<Places>,
    /// Session id; 0 until the device has answered.
    id: Atomic<u64>,
    #[pin]
    pub(crate) kept: Kept,
    #[pin]
    state: IrqLock<State>,
    /// Notified when events have come, or when the session is lost.
    #[pin]
    events_changed: PollCondVar,
    /// `OP_CLOSE`, created in advance, because closing must not fail.
    #[pin]
    farewell: IrqLock<Option<Arc<Request>>>,
    #[pin]
    closing: Work<Session, CLOSING>,
    #[pin]
    watches: Mutex<Watches>,
    #[pin]
    sweeping: Work<Session, SWEEPING>,
    /// The last field, so that the user is charged until all memory of the session is freed.
    pub(crate) ledger: Ledger,
}

/// The session's two kinds of work.
const CLOSING: u64 = 0;
const SWEEPING: u64 = 1;

impl_has_work! {
    impl HasWork<Self, 0> for Session { self.closing }
    impl HasWork<Self, 1> for Session { self.sweeping }
}

impl Session {
    fn new(device: Arc<Device>) -> Result<Arc<Self>> {
        let limits = device.limits;
        let ledger = device.users.enter()?;
        let farewell = Draft {
            header: RequestHeader::default(),
            payload: Payload::Kernel(&[]),
            reply_bytes: 0,
            input: None,
            output: None,
        };
        let farewell = Request::new(farewell, Purpose::None)?;
        let state = State {
            lost: false,
            closed: false,
            last_tag: 0,
            calls: Calls::new(limits.outstanding)?,
            events: Events::new()?,
        };
        let places = Places::new()?;
        let init = pin_init!(Self {
            device,
            places,
            id: Atomic::new(0),
            kept <- Kept::new(),
            state <- new_irq_lock!(state, "virtio_cuda::Session"),
            events_changed <- kernel::new_poll_condvar!("virtio_cuda::Session::events_changed"),
            farewell <- new_irq_lock!(Some(farewell), "virtio_cuda::Session::farewell"),
            closing <- new_work!("virtio_cuda::Session::closing"),
            watches <- new_mutex!(Watches::new(), "virtio_cuda::Session::watches"),
            sweeping <- new_work!("virtio_cuda::Session::sweeping"),
            ledger,
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Returns the header of a request of this session.
    pub(crate) fn header(&self, op: u32) -> RequestHeader {
        RequestHeader {
            op,
            session: self.id(),
            ..Default::default()
        }
    }

    /// Returns the session id; 0 before the device has assigned one.
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Relaxed)
    }

    /// Returns whether the session is lost.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.state.lock();
        state.lost || state.closed
    }
}
