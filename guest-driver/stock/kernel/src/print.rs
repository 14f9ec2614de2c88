// SPDX-License-Identifier: GPL-2.0-only

//! The kernel's log, and the panic handler.

use crate::glue;
use core::fmt::{self, Write};

/// Maximum bytes of a message; the rest is cut off.
const LINE_BYTES: usize = 256;

/// A message on the stack, so that printing allocates nothing.
pub(crate) struct Line {
    text: [u8; LINE_BYTES],
    used: usize,
}

impl Line {
    pub(crate) fn new(arguments: fmt::Arguments<'_>) -> Self {
        let mut line = Self {
            text: [0; LINE_BYTES],
            used: 0,
        };
        // A message that was cut off is not an error.
        let _ = line.write_fmt(arguments);
        line
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.text.get(..self.used).unwrap_or(&[])
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let Some(place) = self.text.get_mut(self.used) else {
                return Ok(());
            };
            *place = byte;
            self.used += 1;
        }
        Ok(())
    }
}

/// Prints a message. Use [`pr_warn_once!`](crate::pr_warn_once).
#[doc(hidden)]
pub fn print(level: u32, arguments: fmt::Arguments<'_>) {
    let line = Line::new(arguments);
    let text = line.bytes();
    // SAFETY: The text is valid.
    unsafe { glue::stock_print(level, text.as_ptr(), text.len()) }
}

/// Prints a warning, the first time only.
#[macro_export]
macro_rules! pr_warn_once {
    ($($args:tt)*) => {{
        static DONE: ::core::sync::atomic::AtomicBool = ::core::sync::atomic::AtomicBool::new(false);
        if !DONE.swap(true, ::core::sync::atomic::Ordering::Relaxed) {
            $crate::print::print(4, ::core::format_args!($($args)*));
        }
    }};
}

/// Handles a panic as a BUG: prints file and line, and ends the task.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let line = Line::new(format_args!("{info}"));
    let text = line.bytes();
    // SAFETY: The text is valid.
    unsafe { glue::stock_bug(text.as_ptr(), text.len()) };
    // SAFETY: Ends the task, if BUG has not, as BUG does. objtool knows it as an end.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
