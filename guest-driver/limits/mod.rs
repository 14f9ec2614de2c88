// SPDX-License-Identifier: GPL-2.0-only

//! The driver's limits: those of module and device, the budgets of each user, and the ring descriptors of each session.
//! session.

pub(crate) mod account;
pub(crate) mod params;
pub(crate) mod places;
pub(crate) mod users;
