// SPDX-License-Identifier: GPL-2.0-only

//! One open file's session with the device.
//!
//! A session outlives its file: each request that the device still has refers to it, and the memory that the
//! device keeps belongs to it. When the answer to `OP_CLOSE`, the last request, has come, all of that goes.

use crate::{
    account::Account,
    calls::Calls,
    device::Device,
    error::Fault,
    events::Events,
    irqlock::{
        new_irq_lock,
        IrqLock, //
    },
    kept::Kept,
    memory::Memory,
    purpose::Purpose,
    request::{
        Answer,
        Awaited,
        Draft,
        Payload,
        Pending,
        Request, //
    },
    task,
    transport::{
        Event,
        Open,
        RequestHeader,
        EVENT_SESSION_LOST,
        OP_CLOSE,
        OP_OPEN,
        OP_UNPIN, //
    },
    wait::{
        Cut,
        Mode,
        Patience, //
    },
    watch::{
        Watch,
        Watches, //
    },
};
use kernel::{
    fs::File,
    new_mutex, new_work, pr_warn_once,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        poll::{
            PollCondVar,
            PollTable, //
        },
        Arc,
        Mutex, //
    },
    time::Msecs,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// How long open(2) waits for a backend that has yet to answer the greeting.
const GREETING_PATIENCE_MS: Msecs = 5_000;
/// How long open(2) waits for its session: the backend may have to start a worker, and CUDA in it.
const OPEN_PATIENCE_MS: Msecs = 30_000;

struct State {
    /// The device has forgotten the session, or will.
    lost: bool,
    /// The file is closed.
    closed: bool,
    last_tag: u64,
    calls: Calls,
    events: Events,
}

/// See the module's documentation.
#[pin_data]
pub(crate) struct Session {
    pub(crate) device: Arc<Device>,
    pub(crate) pinned: Arc<Account>,
    pub(crate) shared: Arc<Account>,
    /// 0 until the device has answered.
    id: Atomic<u64>,
    #[pin]
    pub(crate) kept: Kept,
    #[pin]
    state: IrqLock<State>,
    /// Events have come, or the session is lost.
    #[pin]
    events_changed: PollCondVar,
    /// `OP_CLOSE`, made in advance, because closing must not fail.
    #[pin]
    farewell: IrqLock<Option<Arc<Request>>>,
    #[pin]
    closing: Work<Session, CLOSING>,
    #[pin]
    watches: Mutex<Watches>,
    #[pin]
    sweeping: Work<Session, SWEEPING>,
}

/// The session's two kinds of work.
const CLOSING: u64 = 0;
const SWEEPING: u64 = 1;

impl_has_work! {
    impl HasWork<Self, 0> for Session { self.closing }
    impl HasWork<Self, 1> for Session { self.sweeping }
}

impl WorkItem<SWEEPING> for Session {
    type Pointer = Arc<Session>;

    fn run(this: Arc<Session>) {
        this.sweep();
    }
}

impl WorkItem<CLOSING> for Session {
    type Pointer = Arc<Session>;

    /// Closes when there was no room in the ring at once.
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
    /// Opens a session for the current process. `ENOLINK`: no backend; `EDQUOT`: no more sessions;
    /// `ETIMEDOUT`: the backend does not answer.
    pub(crate) fn open(device: Arc<Device>) -> Result<Arc<Self>> {
        let mut patience = Patience::millis(GREETING_PATIENCE_MS);
        let greeting = device.wait_ready(&mut patience)?;
        match Self::open_with(&device, greeting) {
            Err(error) if error == Fault::Lost.into() => {
                // A backend that knows nothing of a greeting has come unseen: try with that one.
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

    fn new(device: Arc<Device>) -> Result<Arc<Self>> {
        let limits = device.limits;
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
        let pinned = Account::new(limits.pinned_bytes)?;
        let shared = Account::new(limits.shared_bytes)?;
        let init = pin_init!(Self {
            device,
            pinned,
            shared,
            id: Atomic::new(0),
            kept <- Kept::new(),
            state <- new_irq_lock!(state, "virtio_cuda::Session"),
            events_changed <- kernel::new_poll_condvar!("virtio_cuda::Session::events_changed"),
            farewell <- new_irq_lock!(Some(farewell), "virtio_cuda::Session::farewell"),
            closing <- new_work!("virtio_cuda::Session::closing"),
            watches <- new_mutex!(Watches::new(), "virtio_cuda::Session::watches"),
            sweeping <- new_work!("virtio_cuda::Session::sweeping"),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    fn request_open(self: &Arc<Self>) -> Result<Answer> {
        let who = Open {
            pid: current!().group_leader().pid() as u32,
            uid: current!().uid().into_uid_in_current_ns(),
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
        // Every try costs the host a worker: a program with a busy timer must not try again at each tick.
        let (ticket, pending) = self.start(request, Mode::Killable)?;
        self.wait_for(ticket, pending, Mode::Killable, &mut patience)
    }

    /// The header of a request of this session.
    pub(crate) fn header(&self, op: u32) -> RequestHeader {
        RequestHeader {
            op,
            session: self.id(),
            ..Default::default()
        }
    }

    /// The session's name; 0 before the device has given one.
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Relaxed)
    }

    /// A tag for pages to be kept. Odd: it is never the offset of a shared area.
    pub(crate) fn new_tag(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_tag += 1;
        state.last_tag << 1 | 1
    }

    /// The answer to `OP_OPEN`.
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

    /// Ends the session: what it waits for goes on without it. Does not wait. More than once is fine.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if core::mem::replace(&mut state.closed, true) {
            return;
        }
        let calls = state.calls.remove_all();
        let id = self.id();
        drop(state);
        self.events_changed.notify_all();
        self.device.unregister(self);
        // Parked calls settle when they are answered; this may already be.
        drop(calls);
        // They refer to the session.
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
            // Never queued before: this is called once.
            let works = self.device.works();
            let _ = works.queue().enqueue::<_, CLOSING>(self.clone());
        }
    }

    /// The answer to `OP_CLOSE`.
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

    /// The device has kept memory under `tag`, for which there is a place.
    pub(crate) fn keep(self: &Arc<Self>, tag: u64, memory: Option<Memory>) {
        self.kept.fill(tag, memory);
        // What has changed meanwhile could not be asked back.
        self.sweep_soon();
    }

    /// The device does not keep memory under `tag`.
    pub(crate) fn forget_tag(&self, tag: u64) {
        self.kept.forget(tag);
        let watch = self.watches.lock().take(tag);
        drop(watch);
    }

    /// Enters a watch over what a call will keep under its tag.
    pub(crate) fn watch(&self, watch: Watch) -> Result {
        let refused = self.watches.lock().add(watch);
        refused.map_err(|(watch, error)| {
            drop(watch);
            error
        })
    }

    /// Whether the pages kept under `tag` are still those of the process.
    pub(crate) fn is_fresh(&self, tag: u64) -> bool {
        self.watches.lock().is_fresh(tag)
    }

    /// Has [`Self::sweep`] run. For any context.
    pub(crate) fn sweep_soon(self: &Arc<Self>) {
        // If it is queued already, it has not begun.
        let works = self.device.works();
        let _ = works.queue().enqueue::<_, SWEEPING>(self.clone());
    }

    /// Asks the device to give back pages that the process has elsewhere or not at all. Does not wait for it.
    fn sweep(self: &Arc<Self>) {
        loop {
            let leave = |tag| self.kept.leave(tag).is_ok();
            let watch = self.watches.lock().take_stale(leave);
            let Some(watch) = watch else {
                return;
            };
            let tag = watch.tag;
            drop(watch);
            if self.send_unpin(tag).is_err() {
                // Until the session ends.
                self.keep_on(tag);
            }
        }
    }

    fn send_unpin(self: &Arc<Self>, tag: u64) -> Result {
        let mut header = self.header(OP_UNPIN);
        header.tag = tag;
        let draft = Draft {
            header,
            payload: Payload::Kernel(&[]),
            reply_bytes: 0,
            input: None,
            output: None,
        };
        let request = Request::new(draft, Purpose::Unpin(self.clone(), tag))?;
        let (ticket, pending) = self.start(request, Mode::Killable)?;
        self.end(ticket);
        // It settles when it is answered.
        drop(pending);
        Ok(())
    }

    /// The device has not given back the memory of `tag`.
    pub(crate) fn keep_on(&self, tag: u64) {
        self.kept.stay(tag);
    }

    /// Takes note of an answer: it may say that the session is lost.
    pub(crate) fn note(&self, answer: &Result<Answer, Fault>) {
        if matches!(answer, Err(Fault::Lost)) {
            self.lose_quietly();
        }
    }

    /// Whether the session is of no use any more.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.state.lock();
        state.lost || state.closed
    }

    /// The session is lost, its requests will be answered, though. For any context.
    fn lose_quietly(&self) {
        let mut state = self.state.lock();
        if !core::mem::replace(&mut state.lost, true) {
            let event = Event {
                kind: EVENT_SESSION_LOST,
                session: self.id(),
                ..Default::default()
            };
            state.events.push(event);
        }
        drop(state);
        self.events_changed.notify_all();
    }

    /// The session is lost and nobody will answer soon: waiters return at once. For any context.
    pub(crate) fn lose(&self) {
        self.lose_quietly();
        self.state.lock().calls.interrupt();
    }

    /// An event of this session. For any context.
    pub(crate) fn deliver(&self, event: Event) {
        if event.kind == EVENT_SESSION_LOST {
            self.lose_quietly();
            return;
        }
        let taken = self.state.lock().events.push(event);
        if taken {
            self.events_changed.notify_all();
        } else {
            pr_warn_once!("a process does not read its events; further ones are dropped\n");
        }
    }

    /// The next event for read(2), None at the end. `EAGAIN`: none now, and `block` is false.
    pub(crate) fn next_event(&self, block: bool) -> Result<Option<Event>> {
        let mut state = self.state.lock();
        loop {
            if let Some(event) = state.events.pop() {
                return Ok(Some(event));
            }
            if state.lost || state.closed {
                return Ok(None);
            }
            if !block {
                return Err(EAGAIN);
            }
            if self.events_changed.wait_interruptible(&mut state) {
                return Err(ERESTARTSYS);
            }
        }
    }

    /// For poll(2): whether there are events, and whether the session is lost.
    pub(crate) fn poll(&self, file: &File, table: &PollTable<'_>) -> (bool, bool) {
        table.register_wait(file, &self.events_changed);
        let state = self.state.lock();
        (!state.events.is_empty(), state.lost || state.closed)
    }

    /// Enters a call into the table of those under way, and sends it.
    pub(crate) fn start(&self, request: Arc<Request>, mode: Mode) -> Result<(u64, Pending)> {
        let mut state = self.state.lock();
        if state.lost || state.closed {
            return Err(Fault::Lost.into());
        }
        let ticket = state.calls.add(request.clone())?;
        drop(state);
        match self.device.submit(request, mode, || self.is_lost()) {
            Ok(pending) => Ok((ticket, pending)),
            Err(error) => {
                self.end(ticket);
                Err(error)
            }
        }
    }

    /// Takes a call out of the table.
    fn end(&self, ticket: u64) {
        let call = self.state.lock().calls.remove(ticket);
        drop(call);
    }

    /// Puts an unanswered call aside, to be waited for later.
    pub(crate) fn park(&self, ticket: u64, pending: Pending) {
        let left_over = self.state.lock().calls.park(ticket, pending);
        // The session was closed meanwhile: nobody will ask.
        drop(left_over);
    }

    /// Takes up a parked call. `ENOENT`: there is none of that name, or another thread waits for it.
    pub(crate) fn unpark(&self, ticket: u64) -> Result<Pending> {
        self.state.lock().calls.unpark(ticket).ok_or(ENOENT)
    }

    /// Waits for a call and takes its answer; `ENOLINK`: the wait is pointless. When it is cut short, gives
    /// the call back, for [`Self::park`].
    pub(crate) fn finish(
        &self,
        ticket: u64,
        pending: Pending,
        mode: Mode,
        patience: &mut Patience,
    ) -> Result<Result<Answer>, (Pending, Cut)> {
        match pending.wait(mode, patience) {
            Ok(Awaited::Answered) => {
                self.end(ticket);
                Ok(pending.settle())
            }
            Ok(Awaited::Interrupted) => {
                self.end(ticket);
                Ok(Err(Fault::Lost.into()))
            }
            Err(cut) => Err((pending, cut)),
        }
    }

    /// As [`Self::finish`]; when the wait is cut short, the request goes on alone.
    pub(crate) fn wait_for(
        &self,
        ticket: u64,
        pending: Pending,
        mode: Mode,
        patience: &mut Patience,
    ) -> Result<Answer> {
        self.finish(ticket, pending, mode, patience)
            .unwrap_or_else(|(pending, cut)| {
                self.end(ticket);
                drop(pending);
                Err(cut.into())
            })
    }
}
