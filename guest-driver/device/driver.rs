// SPDX-License-Identifier: GPL-2.0-only

//! Driver callbacks of a device: probe, start, interrupts, remove.

use crate::{
    device::{
        event_queue::EventQueue,
        hub,
        queue::RequestQueue,
        Device, //
    },
    limits::params::{
        Limits,
        Params, //
    },
    linux::{
        statistics::Statistic,
        virtio::{
            Driver,
            VirtioDevice, //
        },
        virtqueue::VirtQueue, //
    },
    transport::{
        Config,
        CONFIG_MAGIC,
        MAX_REQUEST_QUEUES,
        PROTOCOL_VERSION,
        VIRTIO_ID_CUDA, //
    }, //
};
use core::mem::offset_of;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Names of the request queues.
const REQUEST_QUEUES: [&CStr; MAX_REQUEST_QUEUES as usize] = [
    c"requestq0",
    c"requestq1",
    c"requestq2",
    c"requestq3",
    c"requestq4",
    c"requestq5",
    c"requestq6",
    c"requestq7",
    c"requestq8",
    c"requestq9",
    c"requestq10",
    c"requestq11",
    c"requestq12",
    c"requestq13",
    c"requestq14",
    c"requestq15",
];

/// Reads the configuration. Refuses a device with unsupported values.
fn read_config(virtio: &VirtioDevice) -> Result<Config> {
    let mut bytes = [0; size_of::<Config>()];
    virtio.config_read(0, &mut bytes);
    let config = Config::read_from_bytes(&bytes).map_err(|_| EINVAL)?;
    if config.magic != CONFIG_MAGIC {
        dev_err!(
            virtio.dev(),
            "virtio id {VIRTIO_ID_CUDA}, but not a virtio-cuda device: magic {:#x}, expected {CONFIG_MAGIC:#x}\n",
            config.magic
        );
        return Err(ENODEV);
    }
    virtio.config_write(offset_of!(Config, driver_version), PROTOCOL_VERSION);
    if config.protocol_version != PROTOCOL_VERSION {
        dev_err!(
            virtio.dev(),
            "the device speaks protocol version {}, this driver version {PROTOCOL_VERSION}; use driver and vhost-cuda of one release\n",
            config.protocol_version
        );
        return Err(crate::error::Fault::Refused.into());
    }
    Ok(config)
}

/// Creates the device's state from its virtqueues, the last of which is for events.
fn bring_up(
    virtio: &VirtioDevice,
    mut limits: Limits,
    queues: KVec<VirtQueue>,
) -> Result<Arc<Device>> {
    let shortest = queues.iter().map(VirtQueue::entries).min().ok_or(EINVAL)?;
    limits.fit_ring(shortest).inspect_err(|_| {
        dev_err!(
            virtio.dev(),
            "virtqueues of {shortest} entries are too short\n"
        );
    })?;
    let mut requests = KVec::with_capacity(queues.len(), GFP_KERNEL)?;
    let mut queues = queues;
    let events = queues.pop().ok_or(EINVAL)?;
    let count = queues.len() as u32;
    for queue in queues {
        queue.spread(count);
        requests.push(
            RequestQueue::new(queue, requests.len(), limits.sessions)?,
            GFP_KERNEL,
        )?;
    }
    Device::new(
        virtio,
        limits,
        requests,
        EventQueue::new(events),
        hub::works()?,
    )
}

impl Driver for Device {
    const NAME: &'static CStr = c"virtio_cuda";
    const DEVICE_ID: u32 = VIRTIO_ID_CUDA;

    fn probe(virtio: &VirtioDevice) -> Result<Arc<Self>> {
        let config = read_config(virtio)?;
        let limits = Limits::new(&config, &Params::of_module()).inspect_err(|_| {
            dev_err!(virtio.dev(), "configuration space makes no sense\n");
        })?;
        let count = limits.request_queues as usize;
        let mut names = KVec::with_capacity(count + 1, GFP_KERNEL)?;
        names.extend_from_slice(REQUEST_QUEUES.get(..count).ok_or(EINVAL)?, GFP_KERNEL)?;
        names.push(c"eventq", GFP_KERNEL)?;
        let queues = virtio.find_queues(&names).inspect_err(|error| {
            dev_err!(
                virtio.dev(),
                "cannot get {} virtqueues: {error:?}\n",
                names.len()
            );
        })?;
        bring_up(virtio, limits, queues).inspect_err(|_| {
            let stopped = virtio.reset();
            // SAFETY: `bring_up` has dropped the virtqueues.
            unsafe { virtio.delete_queues(stopped) };
        })
    }

    fn start(self: &Arc<Self>, virtio: &VirtioDevice) -> Result {
        self.events.fill()?;
        hub::set_device(self).inspect_err(|_| {
            dev_err!(virtio.dev(), "only one virtio-cuda device is supported\n");
        })?;
        virtio.ready();
        self.events.kick();
        self.queue_link_check();
        Ok(())
    }

    fn queue_interrupt(self: &Arc<Self>, queue: usize) {
        Statistic::Interrupts.add(1);
        let sound = match self.requests.get(queue) {
            Some(requests) => requests.interrupt(self.works().queue()),
            None => self.events.interrupt(|event| self.deliver(event)),
        };
        if !sound {
            self.broken();
        }
    }

    fn config_interrupt(self: &Arc<Self>) {
        Statistic::Interrupts.add(1);
        self.queue_link_check();
    }

    fn remove(self: &Arc<Self>, virtio: &VirtioDevice) {
        hub::clear_device(self);
        self.disconnect();
        let stopped = virtio.reset();
        for queue in &self.requests {
            queue.stop(&stopped, self.works().queue());
        }
        self.events.stop(&stopped);
        self.stopped();
        // SAFETY: The queues have dropped their virtqueues just now.
        unsafe { virtio.delete_queues(stopped) };
        self.works().flush();
    }
}
