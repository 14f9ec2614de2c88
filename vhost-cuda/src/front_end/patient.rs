// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipes to workers, and from them. A worker that stalls is noticed, however long the other end of the transfer takes. And pipes of
//! front-ends, which are waited for as long as the front-end is there.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};

/// The time for a worker to read or write the next bytes.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two looks at whether a transfer is wanted.
const LOOK: Duration = Duration::from_millis(200);
/// The bytes that a pipe holds, where the kernel allows that.
const PIPE_BYTES: usize = 1 << 20;

/// Makes a pipe hold more. It works with less, too.
pub fn widen(pipe: impl AsFd) {
    let _ = fcntl_setpipe_size(pipe, PIPE_BYTES);
}

/// The daemon's end of a pipe.
#[derive(Debug)]
pub struct Patient(File);

impl Patient {
    /// This end waits for a limited time.
    pub fn new(pipe: File) -> Self {
        Self(pipe)
    }

    fn wait(&self, events: PollFlags) -> io::Result<()> {
        let patience = Timespec::try_from(PATIENCE).ok();
        match poll(&mut [PollFd::new(&self.0, events)], patience.as_ref()) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Patient {
    /// Errors: `TimedOut` if nothing comes for a while, and those of the pipe.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        self.0.read(bytes)
    }
}

impl Write for Patient {
    /// Errors: `TimedOut` if nothing is taken for a while, and those of the pipe.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        ioctl_fionbio(&self.0, true)?;
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A front-end's pipe. Any other process may hold its other end open, after the front-end has ended.
#[derive(Debug)]
pub struct Attended<F> {
    pipe: File,
    is_wanted: F,
}

impl<F: Fn() -> bool> Attended<F> {
    /// This end waits as long as `is_wanted`.
    pub fn new(pipe: File, is_wanted: F) -> Self {
        Self { pipe, is_wanted }
    }

    /// Returns whether the pipe, to which this end writes, has a reader still.
    pub fn is_read(&self) -> bool {
        let now = Timespec::try_from(Duration::ZERO).ok();
        // Without a reader there is an error, for which nobody need ask.
        poll(&mut [PollFd::new(&self.pipe, PollFlags::empty())], now.as_ref()) == Ok(0)
    }

    fn wait(&self, events: PollFlags) -> io::Result<()> {
        let look = Timespec::try_from(LOOK).ok();
        loop {
            match poll(&mut [PollFd::new(&self.pipe, events)], look.as_ref()) {
                Ok(0) | Err(Errno::INTR) if (self.is_wanted)() => {}
                Ok(0) | Err(Errno::INTR) => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the front-end has gone"));
                }
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The end of a transfer that has failed.
#[derive(Debug)]
pub enum Passing {
    /// The end that is read.
    From(io::Error),
    /// The end that is written.
    To(io::Error),
}

/// Moves bytes from a worker's pipe to that of a front-end, without a copy, until none of `left` is left.
///
/// Errors: those of the pipes, as for reading and writing.
pub fn pass<F: Fn() -> bool>(from: &Patient, to: &Attended<F>, left: &mut usize) -> Result<(), Passing> {
    while *left > 0 {
        match splice(&from.0, None, &to.pipe, None, *left, SpliceFlags::NONBLOCK) {
            Ok(0) => return Err(Passing::From(io::ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => *left -= bytes,
            Err(Errno::AGAIN) => {
                from.wait(PollFlags::IN).map_err(Passing::From)?;
                to.wait(PollFlags::OUT).map_err(Passing::To)?;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(Passing::To(error.into())),
        }
    }
    Ok(())
}

impl<F: Fn() -> bool> Read for Attended<F> {
    /// Errors: `ConnectionAborted` if it is not wanted any more, and those of the pipe.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        self.pipe.read(bytes)
    }
}

impl<F: Fn() -> bool> Write for Attended<F> {
    /// Errors: `ConnectionAborted` if it is not wanted any more, and those of the pipe.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        ioctl_fionbio(&self.pipe, true)?;
        loop {
            match self.pipe.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::thread;

    use super::*;

    #[test]
    fn all_bytes_pass_a_pipe_whose_reader_is_slow() {
        let (reader, writer) = io::pipe().unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|byte| byte as u8).collect();
        let (mut from, mut to) =
            (Patient::new(OwnedFd::from(reader).into()), Patient::new(OwnedFd::from(writer).into()));
        let got = thread::scope(|scope| {
            let reading = scope.spawn(move || {
                thread::sleep(Duration::from_millis(20));
                let mut got = Vec::new();
                from.read_to_end(&mut got).unwrap();
                got
            });
            to.write_all(&sent).unwrap();
            drop(to);
            reading.join().unwrap()
        });
        assert!(got == sent);
    }

    #[test]
    fn pipes_that_others_hold_open_are_given_up() {
        let (reader, writer) = io::pipe().unwrap();
        let pipes = [reader.try_clone().unwrap().into(), writer.try_clone().unwrap().into()];
        let [mut from, mut to] = pipes.map(|pipe: OwnedFd| Attended::new(pipe.into(), || false));
        assert_eq!(from.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert!(to.is_read());
        let all = to.write_all(&vec![1; 8 << 20]);
        assert_eq!(all.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(from.read(&mut [0; 8]).unwrap(), 8, "what is there is read");
    }

    #[test]
    fn bytes_pass_from_pipe_to_pipe() {
        let [(from, mut first), (mut last, to)] = [io::pipe().unwrap(), io::pipe().unwrap()];
        let from = Patient::new(OwnedFd::from(from).into());
        let to = Attended::new(OwnedFd::from(to).into(), || true);
        let sent: Vec<u8> = (0..300_000_u32).map(|byte| byte as u8).collect();
        let (mut got, mut left) = (Vec::new(), sent.len() + 7);
        thread::scope(|scope| {
            scope.spawn(|| {
                first.write_all(&sent).unwrap();
                drop(first);
            });
            scope.spawn(|| last.read_to_end(&mut got).unwrap());
            let passed = pass(&from, &to, &mut left);
            assert!(
                matches!(passed, Err(Passing::From(error)) if error.kind() == io::ErrorKind::UnexpectedEof)
            );
            drop(to);
        });
        assert!(got == sent && left == 7);
        let (from, mut first) = io::pipe().unwrap();
        first.write_all(b"bytes").unwrap();
        let to = Attended::new(OwnedFd::from(io::pipe().unwrap().1).into(), || true);
        let passed = pass(&Patient::new(OwnedFd::from(from).into()), &to, &mut 5);
        assert!(matches!(passed, Err(Passing::To(error)) if error.kind() == io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn a_reader_that_has_ended_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut to = Patient::new(OwnedFd::from(writer).into());
        assert_eq!(to.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
