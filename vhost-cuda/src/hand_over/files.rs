// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors that stay open when the process executes the new program.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use serde::{Deserialize, Serialize};

/// The number of a descriptor, in the state that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Number(RawFd);

impl Number {
    /// Returns a number that was given on the command line.
    pub fn of(number: RawFd) -> Self {
        Self(number)
    }

    /// The number itself.
    pub fn raw(self) -> RawFd {
        self.0
    }
}

/// The first number that is not one of the standard streams.
const FIRST: RawFd = 3;

/// The descriptors that the present program leaves to the next one. Their owners keep them open.
#[derive(Clone, Debug, Default)]
pub struct Leaving(BTreeSet<RawFd>);

impl Leaving {
    /// Adds a descriptor.
    pub fn add(&mut self, file: &impl AsFd) -> Number {
        let number = file.as_fd().as_raw_fd();
        self.0.insert(number);
        Number(number)
    }

    /// Adds those of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// Returns all numbers.
    pub fn numbers(&self) -> Vec<Number> {
        self.0.iter().map(|&number| Number(number)).collect()
    }
}

/// Makes descriptors stay open across the execution of a program, or not.
///
/// Errors: one of them is not open.
pub fn keep_open(numbers: &[Number], keep: bool) -> io::Result<()> {
    let flags = if keep { FdFlags::empty() } else { FdFlags::CLOEXEC };
    numbers.iter().try_for_each(|number| Ok(fcntl_setfd(borrow(*number)?, flags)?))
}

/// Returns a descriptor for a system call that answers a closed one with an error.
fn borrow(number: Number) -> io::Result<BorrowedFd<'static>> {
    if number.0 < FIRST {
        return Err(invalid("a standard stream in the state"));
    }
    // SAFETY: not -1. The result does not outlive the one call that it is made for, which only reads or sets the flags of a
    // descriptor, whoever owns it.
    Ok(unsafe { BorrowedFd::borrow_raw(number.0) })
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The descriptors that this program has got from the one before. Those that nobody takes are closed with the value.
#[derive(Debug)]
pub struct Inherited {
    files: HashMap<Number, OwnedFd>,
    /// True as long as all stay open here, so that another program can be executed with them.
    can_go_back: bool,
}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Inherited {
    /// Takes over `numbers`. Must be called while the process has no other descriptors than these and the standard streams:
    /// at its start, and once.
    ///
    /// Errors: one of them is not open, a standard stream, or there twice. None is taken over then.
    pub fn of(numbers: &[Number]) -> io::Result<Self> {
        let distinct: BTreeSet<_> = numbers.iter().collect();
        if distinct.len() != numbers.len() {
            return Err(invalid("a descriptor is twice in the state"));
        }
        for &number in numbers {
            if fcntl_getfd(borrow(number)?)?.contains(FdFlags::CLOEXEC) {
                return Err(invalid("a descriptor in the state was not inherited"));
            }
        }
        keep_open(numbers, false)?;
        // SAFETY: each is open, was inherited (it lacks the flag that all descriptors of this program have), and is taken once.
        let own = |&number: &Number| (number, unsafe { OwnedFd::from_raw_fd(number.0) });
        Ok(Self { files: numbers.iter().map(own).collect(), can_go_back: true })
    }

    /// Gives up the originals of descriptors that are taken from now on.
    pub fn commit(&mut self) {
        self.can_go_back = false;
    }

    /// Takes a descriptor: a copy before [`Self::commit`].
    ///
    /// Errors: it is not among them, or was taken before.
    pub fn take(&mut self, number: Number) -> io::Result<OwnedFd> {
        let missing = || invalid("the state names a descriptor that is not there");
        match self.can_go_back {
            true => self.files.get(&number).ok_or_else(missing)?.try_clone(),
            false => self.files.remove(&number).ok_or_else(missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::IntoRawFd;

    #[test]
    fn descriptors_are_taken_once() {
        let files = [File::open("/dev/null").unwrap(), File::open("/dev/zero").unwrap()];
        let mut leaving = Leaving::default();
        let number = leaving.add(&files[0]);
        assert_eq!(leaving.add(&files[0]), number);
        leaving.add(&files[1]);
        let numbers = leaving.numbers();
        assert_eq!(numbers.len(), 2);
        assert!(Inherited::of(&numbers).is_err(), "they were not inherited");
        keep_open(&numbers, true).unwrap();
        for file in files {
            let _ = file.into_raw_fd();
        }
        assert!(Inherited::of(&[number, number]).is_err());
        assert!(Inherited::of(&[Number(1)]).is_err());
        assert!(Inherited::of(&[Number(-1)]).is_err());
        assert!(Inherited::of(&[number, Number(1_000_000)]).is_err());
        let mut inherited = Inherited::of(&numbers).unwrap();
        drop(inherited.take(number).unwrap());
        inherited.commit();
        let first = inherited.take(number).unwrap();
        assert!(fcntl_getfd(&first).unwrap().contains(FdFlags::CLOEXEC));
        assert!(inherited.take(number).is_err());
        drop(inherited);
        assert!(keep_open(&numbers, true).is_err(), "the other one is closed");
    }
}
