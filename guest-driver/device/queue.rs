// SPDX-License-Identifier: GPL-2.0-only

//! A request queue: submission, completion, and waits for space.

use crate::{
    error::Fault,
    limits::places::Division,
    linux::{
        irqlock::{
            new_irq_lock,
            IrqLock, //
        },
        statistics::Statistic,
        virtio::Stopped,
        virtqueue::VirtQueue,
        wait::{
            new_wait_queue,
            Mode,
            Patience,
            WaitQueue, //
        }, //
    },
    request::{
        Pending,
        Request, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::Queue, //
};

struct Ring {
    /// None once the device is stopped.
    queue: Option<VirtQueue>,
    /// Number of the queue.
    index: usize,
    /// Number of requests that the device has.
    in_flight: u32,
    /// The descriptors that calls may use. The rest is reserved for the driver's own requests: it must be possible to
    /// close the session of a process that fills the ring.
    for_calls: Division,
}

/// One `requestq`.
#[pin_data]
pub(crate) struct RequestQueue {
    #[pin]
    ring: IrqLock<Ring>,
    #[pin]
    space: WaitQueue,
}

impl Ring {
    /// Adds a request. None: the ring is full.
    fn try_add(&mut self, request: &Arc<Request>) -> Option<Result> {
        let Some(queue) = &mut self.queue else {
            return Some(Err(Fault::Lost.into()));
        };
        let places = request.places();
        if places.is_some_and(|places| !self.for_calls.has_room(self.index, places)) {
            return None;
        }
        match request.add_to(queue) {
            Ok(()) => {
                self.in_flight += 1;
                if let Some(places) = places {
                    self.for_calls.take(self.index, places);
                }
                Statistic::Requests.add(1);
                queue.kick();
                Some(Ok(()))
            }
            // There is no memory for an indirect table, and no completion can make room.
            Err(error) if error == ENOSPC && self.in_flight == 0 => Some(Err(ENOMEM)),
            Err(error) if error == ENOSPC => None,
            Err(error) if error == EIO => Some(Err(Fault::Lost.into())),
            Err(error) => Some(Err(error)),
        }
    }
}

impl RequestQueue {
    /// Wraps the virtqueue with number `index`, which at most `sessions` sessions use.
    pub(crate) fn new(queue: VirtQueue, index: usize, sessions: u32) -> Result<Arc<Self>> {
        let for_calls = queue.entries() - queue.entries() / 4;
        let ring = Ring {
            index,
            for_calls: Division::new(for_calls, sessions),
            queue: Some(queue),
            in_flight: 0,
        };
        let init = pin_init!(Self {
            ring <- new_irq_lock!(ring, "virtio_cuda::RequestQueue"),
            space <- new_wait_queue!("virtio_cuda::RequestQueue::space"),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Ends the use of the virtqueue. All requests in it are withdrawn.
    pub(crate) fn stop(&self, stopped: &Stopped, works: &Queue) {
        let queue = self.ring.lock().queue.take();
        if let Some(mut queue) = queue {
            while let Some((token, bytes)) = queue.take_used() {
                // SAFETY: The ring only holds requests.
                unsafe { Request::from_token(token) }.returned(bytes, works);
            }
            while let Some(token) = queue.take_unused(stopped) {
                // SAFETY: The ring only holds requests, also for chains that the device did not return.
                unsafe { Request::from_token(token) }.withdrawn(works);
            }
        }
        self.space.notify_all();
    }

    /// Submits a request, waiting while the ring is full. `cancelled` must not sleep; [`Self::wake_submitters`] must be
    /// called when its result changes. `ENOLINK`: cancelled, or the device was removed.
    pub(crate) fn submit(
        &self,
        request: Arc<Request>,
        mode: Mode,
        cancelled: impl Fn() -> bool,
    ) -> Result<Pending> {
        let mut patience = Patience::endless();
        self.space.wait(&self.ring, mode, &mut patience, |ring| {
            if cancelled() {
                return Some(Err(Fault::Lost.into()));
            }
            ring.try_add(&request)
        })??;
        Ok(Pending::new(request))
    }

    /// Submits a request if there is room; otherwise returns it.
    pub(crate) fn try_submit(&self, request: Arc<Request>) -> Result<Pending, Arc<Request>> {
        let added = self.ring.lock().try_add(&request);
        match added {
            Some(Ok(())) => Ok(Pending::new(request)),
            _ => Err(request),
        }
    }

    /// Makes threads that wait for space check again whether they are cancelled.
    pub(crate) fn wake_submitters(&self) {
        self.space.notify_all();
    }

    /// Completes requests that the device has returned. Returns false if the device violated the ring protocol. For
    /// interrupts.
    pub(crate) fn interrupt(&self, works: &Queue) -> bool {
        let mut guard = self.ring.lock();
        let ring = &mut *guard;
        let Some(queue) = &mut ring.queue else {
            return true;
        };
        let before = ring.in_flight;
        loop {
            queue.disable_interrupts();
            while let Some((token, bytes)) = queue.take_used() {
                // SAFETY: The ring only holds requests.
                let request = unsafe { Request::from_token(token) };
                ring.in_flight -= 1;
                if let Some(places) = request.places() {
                    ring.for_calls.give_back(ring.index, places);
                }
                request.returned(bytes, works);
            }
            if queue.is_broken() || queue.enable_interrupts() {
                break;
            }
        }
        let sound = !queue.is_broken();
        let freed = before != ring.in_flight;
        drop(guard);
        if freed {
            self.space.notify_all();
        }
        sound
    }
}
