// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recipe of a session, as its worker describes it.

use super::Session;
use super::asked::AskError;
use crate::sessions::link::TO_RECIPE;
use crate::sessions::recipes::Description;

impl Session {
    /// Returns the length of the session's recipe, and whether it is complete.
    ///
    /// Errors: see [`AskError`].
    pub fn recipe(&self) -> Result<Description, AskError> {
        let answer = self.ask(&self.recipe, TO_RECIPE, &[])?;
        Description::read(&answer).ok_or(AskError::Malformed)
    }
}
