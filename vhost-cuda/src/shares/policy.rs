// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides which virtual machine may start work on a GPU: a state machine without I/O.
//!
//! Each machine has a *virtual time*: the GPU time that it has used, divided by its weight. While at least two
//! machines want the GPU they take turns, and the next turn goes to the machine with the smallest virtual time. A
//! turn excludes the others, which saves the hardware's context switches. There are two exceptions, because a kernel
//! cannot be interrupted from here. A kernel that outlasts its machine's turn continues beside the next turn.
//! Machines with short kernels may work beside a machine whose kernels are longer than a turn. The hardware's time
//! slices then divide the GPU, and [`Policy`] charges each machine with its part.

use std::collections::BTreeMap;
use std::fmt;

/// The length of a round in which each machine has one turn, in nanoseconds. Longer rounds waste less time on
/// switches between machines. Shorter rounds keep shares exact in short windows. A turn lasts until the kernel that
/// passes its end has completed, and then the hardware switches. With kernels of 1 ms a round of two machines takes
/// 20 ms, so 100 ms are whole rounds.
pub const ROUND: u64 = 18_000_000;
/// The same for three and more machines, whose turns follow each other less evenly.
const ROUND_OF_MANY: u64 = 9_000_000;
/// The minimum length of a turn, in nanoseconds.
const MIN_TURN: u64 = 1_500_000;
/// The time for which a machine still wants the GPU after its last work, in nanoseconds. Programs that wait for each
/// kernel need a moment to start the next one.
const LINGER: u64 = 150_000;
/// Machines that have requested the GPU within this time count as competitors, in nanoseconds.
pub const RECENT: u64 = 100_000_000;
/// The maximum length of a short kernel, in nanoseconds: the hardware completes it within one of its time slices.
const SHORT: u64 = 2_000_000;
/// The next machine may start when at most this much work of an ended turn is left, in nanoseconds. Its first work
/// takes as long to arrive, and the GPU would otherwise be idle.
const HAND_OVER: u64 = 120_000;
/// The maximum time that work of an ended turn may delay the next turn of a machine with short kernels, in nanoseconds.
const PATIENCE: u64 = 300_000;
/// The same for machines with long kernels, which gain nothing from the hardware's time slices. In nanoseconds.
const LONG_PATIENCE: u64 = 50_000_000;
/// Overlapping work is charged in windows of this length, in nanoseconds: several of the hardware's time slices.
const WINDOW: u64 = 8_000_000;
/// A machine may leave the GPU idle for at most one `PAUSES`th of a turn without being charged for it.
const PAUSES: u64 = 3;
/// The maximum difference between charged and reported time that is remembered, in nanoseconds.
const MAX_PAUSES: i64 = ROUND.cast_signed();
/// The maximum advantage that a machine keeps while it does not use the GPU, in nanoseconds of an equal share.
const CREDIT: u64 = 3 * ROUND / 2;
/// The maximum advantage in any case, in nanoseconds of an equal share. Bounds how long a machine is held back for a
/// very long kernel.
const MAX_LAG: u64 = 2_000_000_000;
/// The length of the hardware's time slices, in nanoseconds, as measured on an H200.
const SLICE: u64 = 2_000_000;
/// The time that the hardware takes to switch between the work of two processes, in nanoseconds, as measured on an
/// H200.
const SWITCH: u64 = 137_000;
/// Virtual time per nanosecond at weight 1.
const SCALE: u64 = 1 << 10;

/// A virtual machine.
pub type Id = u64;

/// The state of a machine's workers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// True if a thread waits at a gate, or has started work without waiting since the last step.
    pub waiting: bool,
    /// True if work was started that has not completed.
    pub busy: bool,
    /// GPU time of work that has completed since the last step, in nanoseconds.
    pub reported: u64,
    /// The number of completed pieces of work in `reported`.
    pub pieces: u64,
    /// The number of processes that wait or have work.
    pub processes: u64,
    /// The typical length of a piece of work, in nanoseconds.
    pub typical: u64,
    /// Age of the oldest piece of work that has not completed, in nanoseconds.
    pub oldest: u64,
    /// The GPU time that the work in flight will probably still take, in nanoseconds; `u64::MAX` if it is unknown.
    pub left: u64,
}

impl Seen {
    /// Returns [`Seen::left`] of a process with `in_flight` pieces of work.
    pub fn left_of(in_flight: u64, typical: u64, oldest: u64) -> u64 {
        match (in_flight, typical) {
            (0, _) => 0,
            (_, 0) => u64::MAX,
            _ => in_flight.saturating_mul(typical).saturating_sub(oldest),
        }
    }
}

/// The work that a machine may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Any work, because no machine competes.
    Free,
    /// No new work.
    Hold,
    /// Work that is expected to complete before `until`.
    Go {
        /// Nanoseconds of the clock that [`Policy::step`] gets.
        until: u64,
    },
}

/// The GPU time and waits of a machine while machines competed, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// GPU time that was charged.
    pub used: u64,
    /// The part of it in which work of other machines ran, too.
    pub beside: u64,
    /// Charges that were undone, for the program's pauses.
    pub forgiven: u64,
    /// The time in which it waited.
    pub held: u64,
    /// GPU time that its workers reported.
    pub reported: u64,
    /// The number of pieces of work in `reported`.
    pub pieces: u64,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: u64| time as f64 / 1e6;
        let Self { used, beside, forgiven, held, reported, pieces } = *self;
        write!(
            f,
            "charged {:.1} ms, {:.1} of them beside others, {:.1} more taken back; reported {:.1} ms in {pieces} pieces; \
             held back {:.1} ms",
            ms(used),
            ms(beside),
            ms(forgiven),
            ms(reported),
            ms(held)
        )
    }
}

#[derive(Debug)]
struct Machine {
    weight: u64,
    /// Virtual time.
    virtual_time: u64,
    account: Account,
    seen: Seen,
    was_busy: bool,
    /// The time when it last wanted the GPU, or `None`.
    wanted: Option<u64>,
    grant: Grant,
    /// For the window of overlapping work: the reported time, and whether it had any work.
    window: (u64, bool),
    /// The charged time that was not reported, in nanoseconds: its pauses, and work in flight. It is negative for
    /// time of other processes between its own.
    pauses: i64,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    machine: Id,
    /// Time charged in this turn, in nanoseconds.
    used: u64,
    /// The time since which its machine may start no more work.
    draining: Option<u64>,
}

impl Turn {
    /// Returns a turn that begins.
    fn of(machine: Id) -> Self {
        Self { machine, used: 0, draining: None }
    }
}

/// The arbitration of one GPU.
#[derive(Debug, Default)]
pub struct Policy {
    machines: BTreeMap<Id, Machine>,
    turn: Option<Turn>,
    now: u64,
    /// The time of overlapping work that is not charged yet, in nanoseconds.
    overlap: u64,
}

impl Machine {
    fn charge(&mut self, time: u64) {
        self.account.used = self.account.used.saturating_add(time);
        self.virtual_time = self.virtual_time.saturating_add(time.saturating_mul(SCALE) / self.weight);
        self.set_pauses(self.pauses.saturating_add_unsigned(time));
    }

    fn set_pauses(&mut self, pauses: i64) {
        self.pauses = pauses.clamp(-MAX_PAUSES, MAX_PAUSES);
    }

    /// Undoes the charges for pauses when a turn ends for which `charged` was charged, up to a limit. A program that
    /// waits for each kernel leaves the GPU idle for moments that are too short for others.
    fn forgive(&mut self, charged: u64) {
        if self.length() > SHORT {
            return;
        }
        let time = u64::try_from(self.pauses).unwrap_or(0).min(charged / PAUSES);
        self.pauses -= time.cast_signed();
        self.account.used = self.account.used.saturating_sub(time);
        self.account.forgiven = self.account.forgiven.saturating_add(time);
        self.virtual_time = self.virtual_time.saturating_sub(time * SCALE / self.weight);
    }

    fn wants(&self, now: u64) -> bool {
        self.wanted.is_some_and(|then| now.saturating_sub(then) <= LINGER)
    }

    fn is_recent(&self, now: u64) -> bool {
        self.wanted.is_some_and(|then| now.saturating_sub(then) <= RECENT)
    }

    /// Returns the length of its work, as far as it is known. Work may be old because it waits for the hardware's
    /// time slice.
    fn length(&self) -> u64 {
        let Seen { typical, oldest, .. } = self.seen;
        if typical > 0 && oldest < 8 * SHORT { typical } else { typical.max(oldest) }
    }
}

impl Policy {
    /// Adds a machine that begins to use the GPU, unless it is present already. Weights are relative to each other.
    pub fn join(&mut self, id: Id, weight: u32) {
        self.machines.entry(id).or_insert_with(|| Machine {
            weight: u64::from(weight.max(1)),
            virtual_time: 0,
            account: Account::default(),
            seen: Seen::default(),
            was_busy: false,
            wanted: None,
            grant: Grant::Free,
            window: (0, false),
            pauses: 0,
        });
    }

    /// Removes a machine. Its turn ends with it.
    pub fn leave(&mut self, id: Id) {
        self.machines.remove(&id);
        self.turn.take_if(|turn| turn.machine == id);
    }

    /// Returns whether no machine is left.
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    /// Returns whether machines compete.
    pub fn is_contended(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns the work that a machine may do.
    pub fn grant(&self, id: Id) -> Grant {
        self.machines.get(&id).map_or(Grant::Free, |machine| machine.grant)
    }

    /// Returns the account of a machine.
    pub fn account(&self, id: Id) -> Account {
        self.machines.get(&id).map(|machine| machine.account).unwrap_or_default()
    }

    /// Records the machines' present state, and decides again.
    pub fn step(&mut self, now: u64, seen: impl Fn(Id) -> Seen) {
        // A longer pause would leave no advantage, and this keeps charges far from an overflow.
        let passed = now.saturating_sub(std::mem::replace(&mut self.now, now)).min(MAX_LAG);
        for (&id, machine) in &mut self.machines {
            machine.was_busy = std::mem::replace(&mut machine.seen, seen(id)).busy;
            machine.set_pauses(machine.pauses.saturating_sub_unsigned(machine.seen.reported));
            let account = &mut machine.account;
            account.reported = account.reported.saturating_add(machine.seen.reported);
            account.pieces = account.pieces.saturating_add(machine.seen.pieces);
            if machine.seen.waiting && machine.grant == Grant::Hold {
                account.held = account.held.saturating_add(passed);
            }
        }
        self.charge(passed);
        self.note_wants();
        let competitors = self.machines.values().filter(|machine| machine.is_recent(now)).count();
        if competitors < 2 {
            self.turn = None;
            self.machines.values_mut().for_each(|machine| machine.grant = Grant::Free);
            return;
        }
        self.take_turns();
        self.set_grants();
    }

    /// Charges the time since the last step.
    fn charge(&mut self, passed: u64) {
        let holder = self.turn.map(|turn| turn.machine);
        let now = self.now;
        let working = |id: Id, machine: &Machine| {
            let holds = holder == Some(id) && machine.wants(now) && matches!(machine.grant, Grant::Go { .. });
            holds || machine.seen.busy || machine.was_busy
        };
        let active: Vec<Id> =
            self.machines.iter().filter(|&(&id, machine)| working(id, machine)).map(|(&id, _)| id).collect();
        if holder.is_none() {
            return;
        }
        match active[..] {
            [] => {}
            [alone] => {
                self.settle();
                // The switches between the machine's own processes are not charged.
                let many = self.machines.get(&alone).is_some_and(|machine| machine.seen.processes > 1);
                self.charge_one(alone, if many { passed * SLICE / (SLICE + SWITCH) } else { passed });
            }
            _ => {
                self.overlap += passed;
                for id in active {
                    let Some(machine) = self.machines.get_mut(&id) else { continue };
                    machine.window.0 = machine.window.0.saturating_add(machine.seen.reported);
                    machine.window.1 = true;
                }
                if self.overlap >= WINDOW {
                    self.settle();
                }
            }
        }
    }

    fn charge_one(&mut self, id: Id, time: u64) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.charge(time);
        }
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.machine == id) {
            turn.used += time;
        }
    }

    /// Divides the time of overlapping work. Completed work is charged with its own time. The rest, without the
    /// hardware's switches, is charged to the machines whose work continues.
    fn settle(&mut self) {
        let window = std::mem::take(&mut self.overlap);
        let mut parts: Vec<(Id, u64)> = Vec::new();
        let mut ongoing: Vec<Id> = Vec::new();
        let mut pieces = 0_u64;
        for (&id, machine) in &mut self.machines {
            let (reported, active) = std::mem::take(&mut machine.window);
            let goes_on = reported > window || (reported == 0 && machine.seen.oldest >= window / 2);
            if active && goes_on && machine.length() > SHORT {
                ongoing.push(id);
            } else if active {
                parts.push((id, reported.min(window)));
                pieces = pieces.saturating_add(reported.checked_div(machine.seen.typical).unwrap_or(0));
            }
        }
        if window == 0 || parts.len() + ongoing.len() == 0 {
            return;
        }
        let count = (parts.len() + ongoing.len()) as u64;
        let sum: u64 = parts.iter().map(|(_, part)| part).sum();
        // The hardware gives each machine at most an equal part, if all want it.
        let most = if ongoing.is_empty() { window } else { window * parts.len() as u64 / count };
        if sum > most {
            parts.iter_mut().for_each(|(_, part)| *part = *part * most / sum.max(1));
        }
        let rest = window - parts.iter().map(|(_, part)| part).sum::<u64>().min(window);
        if ongoing.is_empty() {
            parts.iter_mut().for_each(|(_, part)| *part += rest / count);
        }
        // Each piece interrupts the running work, at most once in a slice, and the two switches are not charged.
        let switches = 2 * SWITCH * pieces.min(rest / (SLICE + 2 * SWITCH));
        let each = (rest - switches).checked_div(ongoing.len() as u64).unwrap_or(0);
        parts.extend(ongoing.into_iter().map(|id| (id, each)));
        for (id, part) in parts {
            self.charge_one(id, part);
            if let Some(machine) = self.machines.get_mut(&id) {
                machine.account.beside = machine.account.beside.saturating_add(part);
            }
        }
    }

    /// Records which machines want the GPU. A returning machine has an advantage of at most [`CREDIT`].
    fn note_wants(&mut self) {
        let now = self.now;
        let weights: u64 =
            self.machines.values().filter(|machine| machine.wants(now)).map(|machine| machine.weight).sum();
        let reference = self
            .machines
            .values()
            .filter(|machine| machine.wants(now))
            .map(|machine| machine.virtual_time)
            .min();
        let ahead = self
            .machines
            .values()
            .filter(|machine| machine.wants(now))
            .map(|machine| machine.virtual_time)
            .max();
        let per_weight = |time: u64, weights: u64| time * SCALE / weights.max(1);
        for machine in self.machines.values_mut() {
            let wants = machine.seen.waiting || machine.seen.busy;
            if wants && !machine.wants(now) {
                let least =
                    reference.unwrap_or(0).saturating_sub(per_weight(CREDIT, weights + machine.weight));
                machine.virtual_time = machine.virtual_time.max(least);
            }
            if let Some(ahead) = ahead {
                machine.virtual_time = machine.virtual_time.max(ahead.saturating_sub(per_weight(MAX_LAG, 1)));
            }
            if wants {
                machine.wanted = Some(now);
            }
        }
    }

    /// Returns the sum of the weights of the machines that want the GPU.
    fn weights(&self) -> u64 {
        self.machines
            .values()
            .filter(|machine| machine.wants(self.now))
            .map(|machine| machine.weight)
            .sum::<u64>()
            .max(1)
    }

    fn count(&self) -> u64 {
        self.machines.values().filter(|machine| machine.wants(self.now)).count().max(2) as u64
    }

    /// Returns the length of a round.
    fn round(&self) -> u64 {
        if self.count() > 2 { ROUND_OF_MANY } else { ROUND }
    }

    /// Returns a round in virtual time.
    fn quantum(&self) -> u64 {
        self.round() * SCALE / self.weights()
    }

    /// Returns the maximum lead of the machine whose turn it is over the next one, in virtual time. Turns of a whole
    /// round's part then follow each other.
    fn lead(&self) -> u64 {
        self.quantum() * (self.count() - 1) / self.count()
    }

    /// Returns the machine with the smallest virtual time that waits, or works beside `holder`.
    fn next_after(&self, holder: Option<Id>) -> Option<Id> {
        let waits = |(id, machine): &(&Id, &Machine)| {
            let beside = matches!(machine.grant, Grant::Go { .. }) && machine.wants(self.now);
            Some(**id) != holder && (machine.seen.waiting || beside)
        };
        self.machines.iter().filter(waits).min_by_key(|(_, machine)| machine.virtual_time).map(|(&id, _)| id)
    }

    fn take_turns(&mut self) {
        let now = self.now;
        let Some(mut turn) = self.turn else {
            let first = self.next_after(None).or_else(|| {
                let wants = |(_, machine): &(&Id, &Machine)| machine.wants(now);
                self.machines.iter().find(wants).map(|(&id, _)| id)
            });
            self.turn = first.or_else(|| self.machines.keys().next().copied()).map(Turn::of);
            return;
        };
        let (Some(holder), next) = (self.machines.get(&turn.machine), self.next_after(Some(turn.machine)))
        else {
            self.turn = None;
            return;
        };
        let Some((next, waiter)) = next.and_then(|next| Some((next, self.machines.get(&next)?))) else {
            // No machine waits: the turn is restarted at every step.
            self.turn = Some(Turn::of(turn.machine));
            return;
        };
        if !holder.wants(now) {
            self.hand_over(turn, next);
            return;
        }
        let lead = holder.virtual_time.saturating_sub(waiter.virtual_time);
        let (most, quantum) = (self.lead(), self.quantum());
        let over = lead >= most && (turn.used >= MIN_TURN || lead >= most + quantum / 2);
        if over || turn.draining.is_some() {
            let since = *turn.draining.get_or_insert(now);
            let patience = if waiter.length() <= SHORT {
                // For a long kernel that is about to complete, the hardware's switches are not worth it.
                let left = holder.seen.typical.saturating_sub(holder.seen.oldest);
                if holder.seen.typical > SHORT && (1..=SHORT).contains(&left) { 2 * SHORT } else { PATIENCE }
            } else {
                LONG_PATIENCE.min(holder.length().saturating_mul(2)).max(PATIENCE)
            };
            let ends = holder.length() <= SHORT && holder.seen.left <= HAND_OVER;
            if !holder.seen.busy || ends || now.saturating_sub(since) >= patience {
                self.hand_over(turn, next);
                return;
            }
        }
        self.turn = Some(turn);
    }

    /// Ends a turn, and begins that of `next`.
    fn hand_over(&mut self, turn: Turn, next: Id) {
        if let Some(machine) = self.machines.get_mut(&turn.machine) {
            machine.forgive(turn.used);
        }
        self.turn = Some(Turn::of(next));
    }

    fn set_grants(&mut self) {
        let Some(turn) = self.turn else { return };
        let Some(holder) = self.machines.get(&turn.machine) else { return };
        let (now, quantum, weights) = (self.now, self.quantum(), self.weights());
        let round = self.round();
        let own_length = |weight: u64| round * weight / weights.max(weight);
        let is_long = holder.length() >= own_length(holder.weight).max(4 * SHORT);
        let time = holder.virtual_time;
        let waiter = self.next_after(Some(turn.machine)).and_then(|next| self.machines.get(&next));
        let end = waiter.map_or(time + quantum, |waiter| waiter.virtual_time + self.lead());
        for (&id, machine) in &mut self.machines {
            let left = if id == turn.machine {
                let own = end.saturating_sub(time) * machine.weight / SCALE;
                turn.draining.is_none().then(|| own.max(MIN_TURN.saturating_sub(turn.used)))
            } else {
                let beside = is_long && machine.length() <= SHORT && machine.virtual_time <= time + quantum;
                // One piece at a time, because more would take the hardware's whole slices.
                beside.then_some(0)
            };
            // All processes together fill it.
            let processes = machine.seen.processes.max(1);
            machine.grant =
                left.map_or(Grant::Hold, |left| Grant::Go { until: now.saturating_add(left / processes) });
        }
    }
}

#[cfg(test)]
#[path = "policy_test.rs"]
mod tests;
