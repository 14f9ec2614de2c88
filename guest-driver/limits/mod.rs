// SPDX-License-Identifier: GPL-2.0-only

//! The driver's limits: those of module and device, budgets of each user, places in the rings for each
//! session.

pub(crate) mod account;
pub(crate) mod params;
pub(crate) mod places;
pub(crate) mod users;
