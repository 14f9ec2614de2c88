// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of `card` rows. Without a library some of them report that the value is unknown.

use super::{CARD_VALUES, DRIVER_VERSION_BYTES, Nvml, SENSORS};
use crate::family;

impl Nvml {
    /// Returns the release of the host's driver.
    pub fn nvml_driver_version(card: Option<&Self>) -> Option<([u8; DRIVER_VERSION_BYTES],)> {
        Some((card?.driver_version()?,))
    }

    /// Returns the machine's share of the GPU's time.
    pub fn nvml_utilization(card: Option<&Self>) -> Option<(u32, u32)> {
        card?.utilization_of(&family::workers())
    }

    /// Returns the card's sensors.
    pub fn nvml_sensors(card: Option<&Self>) -> Option<([u32; SENSORS],)> {
        Some((card.map_or([u32::MAX; SENSORS], Self::sensors),))
    }

    /// Returns further values of the card.
    pub fn nvml_card(card: Option<&Self>) -> Option<([u64; CARD_VALUES],)> {
        Some((card.map_or([u64::MAX; CARD_VALUES], Self::card),))
    }

    /// Returns a field of the card.
    pub fn nvml_field(card: Option<&Self>, field: u32, scope: u32) -> Option<(u32, u64)> {
        card?.field(field, scope)
    }

    /// Returns the load of the card's link, and its thermal margin.
    pub fn nvml_value(card: Option<&Self>, which: u32) -> Option<(u32,)> {
        Some((card?.single(which)?,))
    }
}
