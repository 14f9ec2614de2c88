// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recipe of a session, as its worker describes it.

use vhost_cuda_common::link::{TO_DEEPEN, TO_RECIPE};
use vhost_cuda_common::recipes::Description;

use super::Session;
use super::asked::AskError;

impl Session {
    /// Returns the length of the session's recipe, and whether it is complete.
    ///
    /// Errors: see [`AskError`].
    pub fn recipe(&self) -> Result<Description, AskError> {
        let answer = self.ask(&self.recipe, TO_RECIPE, &[])?;
        Description::read(&answer).ok_or(AskError::Malformed)
    }

    /// Ends the driver's objects of the suspended session, until it is resumed. Returns the reason if they have not ended: then it is
    /// suspended as before.
    ///
    /// Errors: see [`AskError`].
    pub fn deepen(&self) -> Result<Option<String>, AskError> {
        self.residence.deepens();
        let answer = self.ask(&self.recipe, TO_DEEPEN, &[])?;
        Description::read(&answer).map(|answer| answer.obstacle).ok_or(AskError::Malformed)
    }
}
