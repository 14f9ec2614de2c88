// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One call of a library, answered from the guest's state or by the worker.

mod known;

use std::sync::atomic::Ordering;

use cuda_environment::speed;
use cuda_library_rows::block::{MAX_TEXT, SLOT, padded};
use cuda_library_rows::{Answer, Asked, Body, Call, Element, Host, Kind, Note};
use zerocopy::IntoBytes;

use super::{Failure, Front};
use crate::answers::text;
use crate::bridge;
use crate::encode::{Arguments, Slots, first_word};
use crate::handles::{State, Step};
use crate::proven::{Key, mix};

/// One call.
///
/// # Invariants
///
/// `given` are the arguments of `call`, in the slots of the row of `function`: each pointer among them is null or has
/// room as the row specifies.
pub(super) struct Exchange<'a> {
    front: &'a Front,
    function: usize,
    call: &'static Call,
    given: &'a [u64],
    /// The first handle among the arguments; 0 if there is none.
    handle: u64,
    /// Set for a question of this library, whose answer the program does not get.
    internal: bool,
}

/// The worker's input for a call.
struct Prepared<'b> {
    /// The slots, and behind them the memory that the library reads.
    block: &'b [u64],
    answer_bytes: usize,
    /// Identifies the call with its arguments, and with what is known of its handles.
    key: u64,
    /// The same without that.
    said: u64,
    /// Identifies the scalars that the library reads.
    scalars: u64,
    state: State,
    /// What is known of the handles ([`Exchange::handles_key`]).
    handles: u64,
    made: Option<Made>,
}

impl<'a> Exchange<'a> {
    /// # Safety
    ///
    /// The type's invariant holds for the arguments.
    pub(super) unsafe fn new(
        front: &'a Front,
        function: usize,
        call: &'static Call,
        given: &'a [u64],
    ) -> Self {
        let handle = call.roles.handle.and_then(|index| given.get(index)).copied().unwrap_or(0);
        Self { front, function, call, given, handle, internal: false }
    }

    /// Executes the call and writes its results. Returns the function's value.
    pub(super) fn run(&self) -> Result<u64, Failure> {
        let roles = &self.call.roles;
        if let Some(place) = roles.out_stream {
            let place = self.given_at(place);
            self.write(place, self.front.handles.state(self.handle).stream)?;
            return Ok(self.success());
        }
        let Some(state) = self.state()? else { return Ok(self.success()) };
        if speed::is_on()
            && roles.is_plain
            && self.first_works()
            && let Some(posted) = self.post_known(state)
        {
            return posted.map(|()| self.success());
        }
        self.run_in(state)
    }

    /// Executes the call with a handle in that state, whether the guest could answer it or not.
    fn run_in(&self, state: State) -> Result<u64, Failure> {
        let roles = &self.call.roles;
        let mut block = Slots::new();
        let prepared = &self.prepare(state, &mut block)?;
        if let Some(place) = roles.table
            && let Some(table) = self.front.table(prepared.key)
        {
            self.write(self.given_at(place), table)?;
            return Ok(self.success());
        }
        let waits = self.waits(prepared);
        let (answers, kept) = self.cross(prepared, waits)?;
        if roles.is_plain && !waits && self.first_works() {
            self.keep(prepared);
        }
        let answers = &answers[..];
        let value = if waits { slot(answers)? } else { self.success() };
        let succeeded = self.call.answer != Answer::Status || self.front.rows.statuses.is_good(value as i32);
        if waits && answers.len() >= prepared.answer_bytes {
            // SAFETY: by the type's invariant, and the slots were made of these arguments.
            unsafe { self.arguments().read(prepared.block, answers, succeeded) }?;
        }
        if waits && succeeded {
            self.learn(prepared, answers, kept);
        }
        if succeeded {
            self.note(prepared);
            self.describe(prepared);
        }
        self.take_notes(prepared, answers, succeeded);
        if self.call.facts.sets || self.call.facts.pointer_mode || self.call.facts.stream_of {
            self.front.settings.fetch_add(1, Ordering::Relaxed);
        }
        if self.call.facts.sets {
            self.front.handles.set(self.function, &self.call.facts, self.handle, self.others(), succeeded);
        }
        match self.call.answer {
            Answer::Text => text_of(value, answers),
            _ => Ok(value),
        }
    }

    /// Returns the state of the handle, after making its deferred calls. `None`: the guest has answered the call.
    fn state(&self) -> Result<Option<State>, Failure> {
        loop {
            match self.front.handles.step(self.function, &self.call.facts, self.handle, self.others()) {
                Step::Cross(state) => return Ok(Some(state)),
                Step::Answer(value) => {
                    if let (Some(value), Some(&place)) = (value, self.others().first()) {
                        self.write(place, value as u32)?;
                    }
                    return Ok(None);
                }
                Step::First(first, values) => {
                    let Body::Forward(setter) = &self.front.rows.functions[first].body else {
                        return Err(Failure::Internal);
                    };
                    let given: Slots = std::iter::once(self.handle).chain(values).collect();
                    // SAFETY: a function that sets something takes numbers and device addresses, which the program gave
                    // before.
                    let deferred = unsafe { Exchange::new(self.front, first, setter, &given) };
                    // Not `run`: the setting has not changed, so that would defer it again.
                    deferred.run_in(self.front.handles.state(self.handle))?;
                }
            }
        }
    }

    /// Encodes the arguments in `block`, which is empty.
    fn prepare<'b>(&self, state: State, block: &'b mut Slots) -> Result<Prepared<'b>, Failure> {
        let made = self.call.roles.new.map(|(index, kind)| {
            let is_int = self.front.rows.handles[kind].is_int;
            let handle = self.front.new_handles.next(self.front.rows.number, is_int);
            Made { place: self.given_at(index), is_int, handle }
        });
        // The library could not detect that the program passed null for the new handle.
        if made.as_ref().is_some_and(|made| made.place == 0) {
            return Err(Failure::BadSize);
        }
        let arguments = self.arguments();
        let handle = made.as_ref().map_or(0, |made| made.handle);
        // SAFETY: `given` are the arguments of the row (invariant), so each place is null or has room as the row
        // specifies.
        unsafe {
            let noted = |note: Note| self.front.handles.note(self.given_at(note.handle), note.note);
            arguments.slots(state.device_scalars, |_| handle, noted, |asked| self.ask(asked), block);
        }
        let answer_bytes = self.call.answer_bytes(self.front.rows, block)?;
        let mut key = Key::new(self.function, self.call, block);
        key.add_handle(state.birth);
        // SAFETY: by the type's invariant, and the slots were made of these arguments.
        unsafe { arguments.write(block, &mut key) }?;
        let (said, scalars, handles) = (key.get(), key.scalars(), self.handles_key());
        key.add_handle(handles);
        Ok(Prepared { block, answer_bytes, key: key.get(), said, scalars, state, handles, made })
    }

    /// Returns a number for what is known of the handles: which they are, if they work, else what they describe.
    fn handles_key(&self) -> u64 {
        self.call.roles.handles.iter().fold(0, |mixed: u64, &index| {
            let (handle, kind) = (self.given_at(index), &self.call.parameters[index].kind);
            let known = match kind {
                Kind::Handle { kind, .. } if self.front.rows.handles[*kind].works => handle,
                _ => self.front.handles.state(handle).contents,
            };
            (mixed.rotate_left(23) ^ known).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }

    /// Records what a call makes of a handle that describes something.
    fn describe(&self, prepared: &Prepared<'_>) {
        let handles = &self.front.rows.handles;
        if let (Some(made), Some((_, kind))) = (&prepared.made, self.call.roles.new)
            && !handles[kind].works
        {
            self.front.handles.describe(made.handle, 0, prepared.said);
        }
        let first = self.call.roles.handles.first().map_or(0, |first| self.given_at(*first));
        if first != 0 && !self.first_works() && self.call.roles.writes.is_empty() {
            // Replaced by what a later call with the same second argument says: that may be the number of an attribute.
            let second = self.call.parameters.get(1).is_some_and(|one| matches!(one.kind, Kind::Value(_)));
            let attribute = if second { self.given_at(1) << 32 } else { 0 };
            self.front.handles.describe(first, attribute + 1 + self.function as u64, prepared.said);
        }
    }

    /// Returns whether the call has no handle, or its first one works. Else the call may change what that describes.
    fn first_works(&self) -> bool {
        let first = self.call.roles.handles.first().map(|first| &self.call.parameters[*first].kind);
        match first {
            Some(Kind::Handle { kind, .. }) => self.front.rows.handles[*kind].works,
            _ => true,
        }
    }

    /// Asks the library for a number that it knows of a handle.
    fn ask(&self, asked: &Asked) -> Option<i64> {
        let Body::Forward(call) = &self.front.rows.functions[asked.function].body else { return None };
        let ask = |arguments: &[u64]| {
            // SAFETY: `Asked::ask` passes the handle, and memory for all that the function writes; the parser has checked
            // that its row has no other parameters than these and the lengths of its arrays.
            let exchange = unsafe { Exchange::new(self.front, asked.function, call, arguments) };
            let exchange = Exchange { internal: true, ..exchange };
            let status = exchange.run().map_err(|_| ())? as i32;
            if self.front.rows.statuses.is_good(status) { Ok(()) } else { Err(()) }
        };
        asked.ask(call, self.given_at(asked.handle), ask).ok()?
    }

    /// Returns whether the program must wait for the worker's reply.
    fn waits(&self, prepared: &Prepared<'_>) -> bool {
        let in_doubt = self.call.facts.wait_unless.is_some_and(|birth| birth != prepared.state.birth);
        self.call.roles.answers
            || prepared.answer_bytes > SLOT
            || in_doubt
            || !speed::is_on()
            || !self.front.proven.contains(prepared.key)
    }

    /// Returns the results: those of an equal earlier call, then with true, or those of the worker's reply.
    fn cross(&self, prepared: &Prepared<'_>, waits: bool) -> Result<(Vec<u8>, bool), Failure> {
        let pure = speed::is_on() && self.call.facts.pure;
        if let Some(kept) = pure.then(|| self.front.answers.get(prepared.key, self.handle)).flatten() {
            return Ok((kept, true));
        }
        let room = match (waits, self.call.answer) {
            (false, _) => 0,
            (true, Answer::Text) => prepared.answer_bytes + MAX_TEXT,
            (true, _) => prepared.answer_bytes,
        };
        let mut answers = vec![0; room];
        let work = self.work(prepared.key, prepared.scalars);
        self.send(self.stream(prepared), work, prepared.block.as_bytes(), &mut answers)?;
        Ok((answers, false))
    }

    /// Returns the stream on which the work runs.
    fn stream(&self, prepared: &Prepared<'_>) -> u64 {
        let sent = self.call.roles.stream.and_then(|index| prepared.block.get(index)).copied();
        sent.unwrap_or(prepared.state.stream)
    }

    /// Returns the number of the work that a call of this key queues with these scalars.
    fn work(&self, key: u64, scalars: u64) -> u64 {
        mix(mix(key, scalars), self.front.settings.load(Ordering::Relaxed))
    }

    /// Returns the handle of the graph that the call gets as an argument, or 0 if no argument is a graph.
    fn graph(&self) -> u64 {
        let mut arguments = self.call.parameters.iter().zip(self.given);
        let graph = arguments.find(|(parameter, _)| matches!(parameter.kind, Kind::Graph));
        graph.map_or(0, |(_, given)| *given)
    }

    /// Sends a block to the worker, and waits for the results if there is room for any.
    fn send(&self, stream: u64, work: u64, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
        bridge::call(&bridge::Arguments {
            library: self.front.rows.number,
            function: self.front.rows.functions[self.function].number,
            stream,
            input: input.as_ptr(),
            input_bytes: input.len(),
            output: output.as_mut_ptr(),
            output_bytes: output.len(),
            internal: self.internal.into(),
            graph: if output.is_empty() { 0 } else { self.graph() },
            work,
        })
        .map_err(Failure::Cuda)
    }

    /// Records that an equal call succeeds, and caches its results if they never change.
    fn learn(&self, prepared: &Prepared<'_>, answers: &[u8], kept: bool) {
        self.front.proven.add(prepared.key);
        if let Some(place) = self.call.roles.table
            // SAFETY: by the type's invariant; the answers have filled it.
            && let Some(table) = unsafe { (self.given_at(place) as *const u64).as_ref() }
        {
            self.front.keep_table(prepared.key, *table);
        }
        if self.call.facts.pure && !kept {
            self.front.answers.keep(prepared.key, self.handle, answers);
        }
    }

    /// Records the effects of a successful call on handles.
    fn note(&self, prepared: &Prepared<'_>) {
        let (front, facts) = (self.front, &self.call.facts);
        if let Some(made) = &prepared.made {
            // SAFETY: by the type's invariant the place is null or has room for a handle.
            unsafe { made.write() };
            let of_device = || match prepared.state.birth {
                0 => bridge::current_device().map_or(0, |device| 1 + device as u64),
                parent => parent,
            };
            let birth = facts.birth.and_then(|index| prepared.block.get(index).copied());
            if let Some(birth) = birth.or_else(|| facts.on_device.then(of_device)) {
                front.handles.change(made.handle, |state| state.birth = birth);
            }
        }
        for index in self.call.roles.ends {
            front.handles.forget(self.given_at(*index));
        }
        let second = self.given.get(1).copied().unwrap_or(0);
        if facts.pointer_mode {
            front.handles.change(self.handle, |state| state.device_scalars = second as u32 != 0);
        }
        if facts.stream_of {
            front.handles.change(self.handle, |state| state.stream = second);
        }
    }

    /// Stores the numbers that a call sets for handles. After a failed call they are unknown.
    fn take_notes(&self, prepared: &Prepared<'_>, answers: &[u8], succeeded: bool) {
        let handles = &self.front.handles;
        for Note { handle, note } in self.call.notes.changed() {
            handles.set_note(self.given_at(handle), note, None);
        }
        let value = |index: usize| {
            let known = self.call.integer(index, prepared.block);
            known.or_else(|| self.written(index, prepared.block, answers))
        };
        for (Note { handle, note }, expression) in self.call.notes.takes.iter().filter(|_| succeeded) {
            let value = expression.value(&value).and_then(|value| i64::try_from(value).ok());
            handles.set_note(self.given_at(*handle), *note, value);
        }
    }

    /// Returns the number that the library has written for the parameter `index`.
    fn written(&self, index: usize, slots: &[u64], answers: &[u8]) -> Option<i128> {
        let Kind::Host(Host { element: Element::Number(number), count: None, .. }) =
            self.call.parameters[index].kind
        else {
            return None;
        };
        let before = self.call.roles.writes.iter().filter(|before| **before < index);
        let bytes =
            before.map(|before| self.call.memory_bytes(self.front.rows, *before, slots).map(padded).ok());
        let start = bytes.sum::<Option<usize>>()? + SLOT;
        number.integer(first_word(answers.get(start..)?))
    }

    /// Returns the argument at `index`.
    fn given_at(&self, index: usize) -> u64 {
        self.given.get(index).copied().unwrap_or(0)
    }

    /// Writes a result that the guest computed to a pointer among the arguments.
    ///
    /// Errors: the pointer is null.
    fn write<T>(&self, place: u64, value: T) -> Result<(), Failure> {
        // SAFETY: by the type's invariant the place is null or has room for the row's type.
        unsafe { (place as *mut T).as_mut() }.map(|place| *place = value).ok_or(Failure::BadSize)
    }

    fn arguments(&self) -> Arguments<'_> {
        let library = self.front.rows;
        Arguments { number: library.number, library, call: self.call, given: self.given }
    }

    /// Returns the arguments after the first.
    fn others(&self) -> &[u64] {
        self.given.get(1..).unwrap_or_default()
    }

    fn success(&self) -> u64 {
        u64::from(self.front.rows.statuses.success as u32)
    }
}

/// A handle that a call creates.
struct Made {
    /// Where the program wants the handle.
    place: u64,
    is_int: bool,
    handle: u64,
}

impl Made {
    /// # Safety
    ///
    /// `place` is null or has room for a handle.
    unsafe fn write(&self) {
        if self.place == 0 {
            return;
        }
        // SAFETY: the place is not null, so `# Safety` promises room for a handle.
        unsafe {
            if self.is_int {
                (self.place as *mut u32).write(self.handle as u32);
            } else {
                (self.place as *mut u64).write(self.handle);
            }
        }
    }
}

/// Returns the first slot of the results.
fn slot(answers: &[u8]) -> Result<u64, Failure> {
    answers.first_chunk::<SLOT>().map(|bytes| u64::from_le_bytes(*bytes)).ok_or(Failure::BadSize)
}

/// Returns the address of a text that the library returned. `length` is that of the text plus 1, or 0 for null.
fn text_of(length: u64, answers: &[u8]) -> Result<u64, Failure> {
    let Some(bytes) = length.checked_sub(1) else { return Ok(0) };
    let found = answers.get(SLOT..).and_then(|rest| rest.get(..usize::try_from(bytes).ok()?));
    Ok(text(found.ok_or(Failure::BadSize)?).as_ptr() as u64)
}
