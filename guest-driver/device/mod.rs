// SPDX-License-Identifier: GPL-2.0-only

//! The state of one bound device, shared by its files, requests and interrupts.
//! Lock order: a ring, the table of sessions, a session, a request, a wait queue. All of these are taken with
//! interrupts disabled, so an interrupt may take any of them.
//! interrupts off, so an interrupt may take any of them.

pub(crate) mod driver;
pub(crate) mod event_queue;
pub(crate) mod hub;
mod link;
pub(crate) mod queue;

use crate::{
    device::{
        event_queue::EventQueue,
        link::{
            Link,
            Phase,
            Step, //
        },
        queue::RequestQueue, //
    },
    error::Fault,
    limits::{
        params::Limits,
        users::Users, //
    },
    linux::{
        bindings as glue,
        irqlock::{
            new_irq_lock,
            IrqLock, //
        },
        virtio::VirtioDevice,
        wait::{
            new_wait_queue,
            Mode,
            Patience,
            WaitQueue, //
        },
        workqueue::WorkQueue, //
    },
    request::{
        purpose::Purpose,
        Draft,
        Payload,
        Pending,
        Request, //
    },
    session::Session,
    transport::{
        Config,
        Event,
        Hello,
        RequestHeader,
        OP_HELLO,
        PROTOCOL_VERSION,
        STATUS_BACKEND_UP, //
    }, //
};
use core::mem::offset_of;
use kernel::{
    device, new_mutex, new_work,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// See the module's documentation.
#[pin_data]
pub(crate) struct Device {
    pub(crate) limits: Limits,
    pub(crate) users: Arc<Users>,
    dev: ARef<device::Device>,
    works: Arc<WorkQueue>,
    pub(crate) requests: KVec<Arc<RequestQueue>>,
    #[pin]
    pub(crate) events: EventQueue,
    #[pin]
    sessions: IrqLock<KVec<Arc<Session>>>,
    #[pin]
    link: IrqLock<Link>,
    #[pin]
    link_changed: WaitQueue,
    /// Sessions that could not be closed: the device may use their memory until it is reset. None after the reset.
    #[pin]
    stranded: Mutex<Option<KVec<Arc<Session>>>>,
    /// Used to read the configuration; None once the device is being removed.
    #[pin]
    virtio: Mutex<Option<VirtioDevice>>,
    #[pin]
    link_check: Work<Device>,
}

impl_has_work! {
    impl HasWork<Self> for Device { self.link_check }
}

impl WorkItem for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        this.check_link();
    }
}

impl Device {
    /// Returns the state of a device with these queues.
    pub(crate) fn new(
        virtio: &VirtioDevice,
        limits: Limits,
        requests: KVec<Arc<RequestQueue>>,
        events: impl PinInit<EventQueue>,
        works: Arc<WorkQueue>,
    ) -> Result<Arc<Self>> {
        let sessions = KVec::with_capacity(limits.sessions as usize, GFP_KERNEL)?;
        let users = Users::new(limits)?;
        // SAFETY: `disconnect` drops it before the driver's `remove` returns.
        let shared = unsafe { virtio.share() };
        let init = pin_init!(Self {
            limits,
            users,
            dev: virtio.dev().into(),
            works,
            requests,
            events <- events,
            sessions <- new_irq_lock!(sessions, "virtio_cuda::Device::sessions"),
            link <- new_irq_lock!(Link::new(), "virtio_cuda::Device::link"),
            link_changed <- new_wait_queue!("virtio_cuda::Device::link_changed"),
            stranded <- new_mutex!(Some(KVec::new())),
            virtio <- new_mutex!(Some(shared)),
            link_check <- new_work!("virtio_cuda::Device::link_check"),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Returns the device for log messages.
    pub(crate) fn dev(&self) -> &device::Device {
        &self.dev
    }

    /// Returns the queue of deferred work.
    pub(crate) fn works(&self) -> &WorkQueue {
        &self.works
    }

    /// Returns the request queue of this processor.
    fn queue(&self) -> Option<&RequestQueue> {
        // SAFETY: Reads a number. It does not matter if it is outdated.
        let cpu = unsafe { glue::virtio_cuda_processor() } as usize;
        let place = cpu.checked_rem(self.requests.len())?;
        Some(&**self.requests.get(place)?)
    }

    /// Submits a request; see [`RequestQueue::submit`].
    pub(crate) fn submit(
        &self,
        request: Arc<Request>,
        mode: Mode,
        cancelled: impl Fn() -> bool,
    ) -> Result<Pending> {
        let queue = self.queue().ok_or(ENODEV)?;
        queue.submit(request, mode, cancelled)
    }

    /// Submits a request if there is room; see [`RequestQueue::try_submit`].
    pub(crate) fn try_submit(&self, request: Arc<Request>) -> Result<Pending, Arc<Request>> {
        match self.queue() {
            Some(queue) => queue.try_submit(request),
            None => Err(request),
        }
    }

    /// Adds a session to the table, from which [`Self::unregister`] removes it. [`Fault::Quota`]: the table is full;
    /// [`Fault::Lost`]: the backend of `greeting` has ended.
    pub(crate) fn register(&self, session: Arc<Session>, greeting: u64) -> Result<(), Fault> {
        self.sessions
            .lock()
            .push_within_capacity(session)
            .map_err(|_| Fault::Quota)?;
        // From here on, losing the backend loses the session. It may already have been lost before.
        let link = self.link.lock();
        if link.phase() == Phase::Up && link.greeting() == greeting {
            Ok(())
        } else {
            Err(Fault::Lost)
        }
    }

    /// Removes a session from the table.
    pub(crate) fn unregister(&self, session: &Session) {
        let mut table = self.sessions.lock();
        let place = table.iter().position(|s| core::ptr::eq(&**s, session));
        let reference = place.and_then(|place| table.remove(place).ok());
        drop(table);
        drop(reference);
    }

    /// Delivers an event. For interrupts.
    pub(crate) fn deliver(&self, event: Event) {
        let table = self.sessions.lock();
        if let Some(session) = table.iter().find(|s| s.id() == event.session) {
            session.deliver(event);
        }
    }

    /// Marks all sessions as lost: their waiters return at once.
    fn lose_sessions(&self) {
        // In reverse order, because a session that is removed meanwhile only moves others to lower positions.
        let mut place = self.sessions.lock().len();
        while place > 0 {
            place -= 1;
            let session = self.sessions.lock().get(place).cloned();
            if let Some(session) = session {
                session.lose();
            }
        }
        for queue in &self.requests {
            queue.wake_submitters();
        }
    }

    /// Waits until sessions can be opened. Returns the number of the greeting. `ENOLINK`: there is no backend;
    /// `EPROTO`: it has another protocol version.
    pub(crate) fn wait_ready(self: &Arc<Self>, patience: &mut Patience) -> Result<u64> {
        let ready = self
            .link_changed
            .wait(
                &self.link,
                Mode::Interruptible,
                patience,
                |link| match link.phase() {
                    Phase::New | Phase::Greeting => None,
                    Phase::Up => Some(Ok(link.greeting())),
                    Phase::Down | Phase::Gone => Some(Err(Fault::Lost)),
                    Phase::Refused => Some(Err(Fault::Refused)),
                },
            )?;
        if ready == Err(Fault::Lost) {
            // Cheap, and helps if a greeting failed for lack of memory.
            self.queue_link_check();
        }
        Ok(ready?)
    }

    /// Handles a backend that does not know the greeting `greeting`: repeats the greeting, unless a session seems to be
    /// alive, which a greeting would end. If that session is actually lost, its next call fails.
    pub(crate) fn backend_restarted(self: &Arc<Self>, greeting: u64) {
        let is_alive = |session: &Arc<Session>| session.id() != 0 && !session.is_lost();
        if self.sessions.lock().iter().any(is_alive) {
            return;
        }
        let step = self.link.lock().restarted(greeting);
        self.apply(step);
    }

    /// Handles the answer to a greeting.
    pub(crate) fn greeted(&self, greeting: u64, result: Result<(), Fault>) {
        let phase = self.link.lock().answered(greeting, result);
        self.link_changed.notify_all();
        match phase {
            Some(Phase::Up) => dev_info!(self.dev, "backend is ready\n"),
            Some(Phase::Refused) => dev_err!(
                self.dev,
                "backend refuses protocol version {PROTOCOL_VERSION}; use driver and backend of one release\n"
            ),
            _ => (),
        }
    }

    /// Queues a check of the device's status. For any context.
    pub(crate) fn queue_link_check(self: &Arc<Self>) {
        // If the check is already queued, it has not read the status yet.
        let _ = self.works.queue().enqueue(self.clone());
    }

    fn check_link(self: &Arc<Self>) {
        let Some(up) = self.backend_is_up() else {
            return;
        };
        let mut link = self.link.lock();
        let before = link.phase();
        let step = link.status(up);
        let after = link.phase();
        drop(link);
        if after == Phase::Down && before != Phase::Down && before != Phase::New {
            dev_warn!(self.dev, "backend is gone; open sessions are lost\n");
        }
        self.apply(step);
    }

    /// Reads the VMM's status. None: the device is being removed.
    fn backend_is_up(&self) -> Option<bool> {
        let virtio = self.virtio.lock();
        let virtio = virtio.as_ref()?;
        let mut status = [0; 4];
        virtio.config_read(offset_of!(Config, status), &mut status);
        Some(u32::from_le_bytes(status) & STATUS_BACKEND_UP != 0)
    }

    fn apply(self: &Arc<Self>, step: Step) {
        self.link_changed.notify_all();
        if step.lose_sessions {
            self.lose_sessions();
        }
        if let Some(greeting) = step.greet {
            if let Err(error) = self.greet(greeting) {
                // The removal of a device need not be logged.
                if error != Fault::Lost.into() {
                    dev_err!(self.dev, "cannot greet the backend: {error:?}\n");
                }
                self.greeted(greeting, Err(Fault::Lost));
            }
        }
    }

    fn greet(self: &Arc<Self>, greeting: u64) -> Result {
        let hello = Hello {
            protocol_version: PROTOCOL_VERSION,
        };
        let draft = Draft {
            header: RequestHeader {
                op: OP_HELLO,
                ..Default::default()
            },
            payload: Payload::Kernel(hello.as_bytes()),
            reply_bytes: size_of::<Hello>(),
            input: None,
            output: None,
        };
        let request = Request::new(draft, Purpose::Hello(self.clone(), greeting))?;
        // `greeted` handles the answer.
        drop(self.submit(request, Mode::Killable, || false)?);
        Ok(())
    }

    /// Ends all waits for the device, which is being removed.
    pub(crate) fn disconnect(&self) {
        *self.virtio.lock() = None;
        self.link.lock().disconnect();
        self.link_changed.notify_all();
        self.lose_sessions();
    }

    /// Keeps a session that could not be closed until the device is reset.
    pub(crate) fn strand(&self, session: Arc<Session>) {
        let mut stranded = self.stranded.lock();
        if let Some(list) = &mut *stranded {
            if list.reserve(1, GFP_KERNEL).is_err() {
                // Leaking its memory is better than reusing pages that the device may write to.
                core::mem::forget(session);
                return;
            }
            let _ = list.push_within_capacity(session);
        }
    }

    /// Handles the reset of the device: it no longer uses any memory.
    pub(crate) fn stopped(&self) {
        let stranded = self.stranded.lock().take();
        drop(stranded);
    }

    /// Handles a violation of the ring protocol, after which the device will not answer any more. For interrupts.
    pub(crate) fn broken(self: &Arc<Self>) {
        dev_err!(
            self.dev,
            "the device broke the rules of a virtqueue; unplug it and plug it again\n"
        );
        self.link.lock().disconnect();
        self.queue_link_check();
    }
}
