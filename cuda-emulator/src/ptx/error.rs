// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of a PTX text.

use crate::symbols::{LoadError, LoadErrorKind};

/// An error in the text itself.
pub(crate) fn syntax(line: u32, message: impl Into<String>) -> LoadError {
    LoadError { line, message: message.into(), kind: LoadErrorKind::Syntax }
}

/// Correct PTX, as far as one can tell, that this device does not execute.
pub(crate) fn unsupported(line: u32, message: impl Into<String>) -> LoadError {
    LoadError { line, message: message.into(), kind: LoadErrorKind::Unsupported }
}
