// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fuzz target: daemons that send any messages, workers that write any data into their pages, and a clock that
//! stands still or jumps.

use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::SealFlags;
use vhost_cuda_choices::Choices;
use vhost_cuda_common::files::{add_seals, memory_file};

use super::*;

const MACHINES: usize = 4;

fn arbiter() -> Option<Arbiter> {
    // Without a path the kernel chooses a name (unix(7), "Autobind feature"), to which no process connects.
    Arbiter::new(UnixListener::bind("").ok()?, None).ok()
}

/// Returns a page and a bell, or other files of a hostile daemon.
fn files(kind: u8, pages: &mut Vec<Page>) -> Vec<File> {
    let bell = || memory_file(c"not a bell").ok();
    let eventfd = || {
        vmm_sys_util::eventfd::EventFd::new(0).ok().map(|bell| {
            use std::os::fd::{FromRawFd, IntoRawFd};
            // SAFETY: the descriptor is the event's, which has given it up.
            unsafe { File::from_raw_fd(bell.into_raw_fd()) }
        })
    };
    match kind {
        0..=0xbf => {
            let Ok((page, file)) = Page::create() else { return Vec::new() };
            pages.push(page);
            [Some(file), eventfd()].into_iter().flatten().collect()
        }
        0xc0..=0xcf => [bell(), eventfd()].into_iter().flatten().collect(),
        0xd0..=0xdf => {
            let page = bell().filter(|page| page.set_len(u64::from(kind & 1) * 4096).is_ok());
            let page = page.filter(|page| add_seals(page, SealFlags::SHRINK).is_ok());
            [page, bell()].into_iter().flatten().collect()
        }
        0xe0..=0xef => bell().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Writes to a page like a worker.
fn scribble(page: &Page, choices: &mut Choices<'_>) {
    let slot = &page.slots()[choices.below(gates::MAX_GPUS)];
    match choices.byte() & 7 {
        0 => slot.set_uuid([choices.byte() & 3; 16]),
        1 => slot.waiting.store(choices.number() as u32, Relaxed),
        2 => slot.announced.store(choices.number() as u32, Relaxed),
        3 => slot.in_flight.store(choices.number() as u32, Relaxed),
        4 => slot.reported.store(choices.number(), Relaxed),
        5 => slot.typical.store(choices.number(), Relaxed),
        6 => slot.oldest.store(choices.number(), Relaxed),
        _ => slot.gate.store(choices.number() as u32, Relaxed),
    }
}

/// An input is a list of connections, messages, writes and readings of the clock.
pub fn run(data: &[u8]) {
    let Some(mut arbiter) = arbiter() else { return };
    let mut pages = Vec::new();
    let mut now = 1_u64 << 40;
    let mut choices = Choices::of(data);
    let mut daemons = Vec::new();
    while choices.more() {
        let id = 1 + u64::from(choices.byte() & 3);
        match choices.byte() & 7 {
            0 if daemons.len() < MACHINES && !arbiter.machines.contains_key(&id) => {
                let Ok((ours, theirs)) = UnixStream::pair() else { return };
                if ours.set_nonblocking(true).is_ok() {
                    arbiter.machines.insert(id, Machine::new(ours));
                    daemons.push(theirs);
                }
                let hello = Message {
                    kind: HELLO,
                    value: VERSION,
                    number: 1 + u64::from(choices.byte()),
                    ..Message::default()
                };
                obey(&mut arbiter, id, &hello, Vec::new());
            }
            0 | 1 => {
                let kind = u32::from(choices.byte() % 10);
                let message = Message {
                    kind,
                    value: if choices.byte() & 7 == 0 { choices.number() as u32 } else { VERSION },
                    number: if kind == GPU { u64::from(choices.byte() & 3) } else { choices.number() },
                    uuid: [choices.byte() & 3; 16],
                    ..Message::default()
                };
                let files =
                    if choices.byte() & 1 == 0 { files(choices.byte(), &mut pages) } else { Vec::new() };
                obey(&mut arbiter, id, &message, files);
            }
            2 => {
                let number = u64::from(choices.byte() & 3);
                let files = files(choices.byte(), &mut pages);
                let machine = arbiter.machines.get(&id);
                let twice = machine.is_some_and(|machine| machine.workers.contains_key(&number));
                obey(&mut arbiter, id, &Message { kind: WORKER, number, ..Message::default() }, files);
                assert!(!twice || !arbiter.machines.contains_key(&id), "a number is taken once");
            }
            3 | 4 if !pages.is_empty() => scribble(&pages[choices.below(pages.len())], &mut choices),
            5 => arbiter.forget(id),
            _ => {
                now = match choices.byte() {
                    // Also backwards, which the real clock never does.
                    0xff => choices.any(),
                    step => now.saturating_add(u64::from(step) * TICK / 4),
                };
                arbiter.step(now);
            }
        }
        assert!(arbiter.gpus.len() <= MAX_GPUS && arbiter.machines.len() <= MACHINES);
        assert!(arbiter.machines.values().all(|machine| machine.workers.len() <= MAX_WORKERS));
    }
}

/// Handles a message like `hear`.
fn obey(arbiter: &mut Arbiter, id: Id, message: &Message, files: Vec<File>) {
    if arbiter.obey(id, message, files).is_err() {
        arbiter.forget(id);
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::gates::ANNOUNCE;

    use super::*;

    /// Two machines with a worker each.
    fn two(arbiter: &mut Arbiter, pages: &mut Vec<Page>) -> [UnixStream; 2] {
        [1, 2].map(|id| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            arbiter.machines.insert(id, Machine::new(ours));
            let hello = Message { kind: HELLO, value: VERSION, number: 1, ..Message::default() };
            arbiter.obey(id, &hello, Vec::new()).unwrap();
            let worker = Message { kind: WORKER, ..Message::default() };
            arbiter.obey(id, &worker, files(0, pages)).unwrap();
            theirs
        })
    }

    fn gpu(uuid: u8) -> Message {
        Message { kind: GPU, uuid: [uuid; 16], ..Message::default() }
    }

    #[test]
    fn workers_whose_gpus_are_named_late_will_announce_themselves() {
        let (mut arbiter, mut pages) = (arbiter().unwrap(), Vec::new());
        let _daemons = two(&mut arbiter, &mut pages);
        let now = 1 << 40;
        arbiter.step(now);
        [1, 2].iter().for_each(|&id| arbiter.obey(id, &gpu(7), Vec::new()).unwrap());
        arbiter.step(now + TICK);
        // No other event wakes the arbiter before they work.
        assert!(pages.iter().all(|page| page.slots()[0].gate.load(Relaxed) == ANNOUNCE && !page.is_open()));
    }

    #[test]
    fn a_worker_names_no_gpus() {
        let (mut arbiter, mut pages) = (arbiter().unwrap(), Vec::new());
        let _daemons = two(&mut arbiter, &mut pages);
        arbiter.obey(1, &gpu(7), Vec::new()).unwrap();
        // The second machine has no GPU. Its worker was taken over, and waits for the first machine's.
        pages[1].slots()[0].set_uuid([7; 16]);
        pages[1].slots()[0].waiting.store(1, Relaxed);
        arbiter.step(1 << 40);
        assert_eq!(arbiter.machines[&2].gpus(), Vec::<Gpu>::new());
        assert!(!arbiter.machines.get_mut(&2).unwrap().look([7; 16], 1 << 40).waiting);
        // A GPU is named once, for a slot that there is, of a worker that there is.
        assert!(arbiter.obey(1, &gpu(8), Vec::new()).is_err());
        assert!(arbiter.obey(2, &Message { value: gates::MAX_GPUS as u32, ..gpu(7) }, Vec::new()).is_err());
        assert!(arbiter.obey(2, &Message { number: 5, ..gpu(7) }, Vec::new()).is_err());
        assert!(arbiter.obey(2, &gpu(0), Vec::new()).is_err());
    }

    #[test]
    fn other_users_are_refused() {
        let folder = vmm_sys_util::tempdir::TempDir::new().unwrap();
        let path = folder.as_path().join("socket");
        let mut arbiter = Arbiter::new(UnixListener::bind(&path).unwrap(), None).unwrap();
        // SAFETY: a plain system call.
        let own = unsafe { libc::geteuid() };
        for (users, admitted) in
            [(format!("{own}"), 1), (format!("{}-4294967294", own + 1), 1), (format!("7,0-{own}"), 2)]
        {
            arbiter.users = Some(users.parse().unwrap());
            let _daemon = UnixStream::connect(&path).unwrap();
            arbiter.accept();
            assert_eq!(arbiter.machines.len(), admitted, "{users}");
        }
    }

    /// A thread with a table of descriptors of its own, which is full.
    #[test]
    fn without_descriptors_connections_leave_the_queue() {
        let folder = vmm_sys_util::tempdir::TempDir::new().unwrap();
        let path = folder.as_path().join("socket");
        let run = move || {
            // SAFETY: this thread uses no descriptor that another one has opened before or opens later.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            let listener = UnixListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            let mut arbiter = Arbiter::new(listener, None).unwrap();
            let _daemons = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
            let mut full = Vec::new();
            full.extend(std::iter::from_fn(|| arbiter.poller.try_clone().ok()));
            [(); 3].iter().for_each(|()| arbiter.accept());
            full.pop();
            let left = arbiter.listener.accept();
            assert_eq!(
                left.unwrap_err().kind(),
                io::ErrorKind::WouldBlock,
                "a connection stays in the queue"
            );
            assert!(arbiter.machines.is_empty() && arbiter.spare.is_some());
        };
        std::thread::spawn(run).join().unwrap();
    }
}
