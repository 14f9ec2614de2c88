// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::os::fd::AsFd;

use super::*;
use crate::hand_over::files::keep_open;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn message(request: Request, body: Vec<u8>, files: usize) -> Message {
    let open = |_| File::open("/dev/null").unwrap();
    Message { files: (0..files).map(open).collect(), ..Message::request(request as u32, body) }
}

fn region(number: u8) -> Vec<u8> {
    vec![number; REGION]
}

fn table(numbers: &[u8]) -> Message {
    let mut body = words(&[numbers.len() as u32, 0]);
    body.extend(numbers.iter().flat_map(|&number| region(number)));
    message(Request::SET_MEM_TABLE, body, numbers.len())
}

fn noted(messages: &[Message]) -> Record {
    let mut record = Record::default();
    messages.iter().for_each(|message| record.note(message).unwrap());
    record
}

/// The requests that are repeated, with their bodies' first words.
fn repeated(record: &Record) -> Vec<(u32, Option<u32>, usize)> {
    let messages = record.messages().unwrap();
    messages.iter().map(|message| (message.request, message.word(4), message.files.len())).collect()
}

fn queue(index: u32) -> Vec<Message> {
    vec![
        message(Request::SET_VRING_KICK, words(&[index, 0]), 1),
        message(Request::SET_VRING_NUM, words(&[index, 64]), 0),
        message(Request::SET_VRING_BASE, words(&[index, 0]), 0),
        message(Request::SET_VRING_CALL, words(&[index, 0]), 1),
        message(Request::SET_VRING_ENABLE, words(&[index, 1]), 0),
    ]
}

#[test]
fn the_last_messages_count_in_the_order_that_the_library_needs() {
    let mut messages = queue(1);
    messages.extend([table(&[1]), message(Request::SET_OWNER, vec![], 0), table(&[2, 3])]);
    messages.push(message(Request::SET_FEATURES, words(&[5, 0]), 0));
    messages.push(message(Request::SET_FEATURES, words(&[5, 7]), 0));
    messages.push(message(Request::GET_CONFIG, vec![], 0));
    let mut record = noted(&messages);
    record.set_positions(&[None, Some(9)]);
    let requests = [
        (Request::SET_OWNER, None, 0),
        (Request::SET_FEATURES, Some(7), 0),
        (Request::SET_MEM_TABLE, Some(0), 2),
        (Request::SET_VRING_NUM, Some(64), 0),
        (Request::SET_VRING_BASE, Some(9), 0),
        (Request::SET_VRING_CALL, Some(0), 1),
        (Request::SET_VRING_KICK, Some(0), 1),
        (Request::SET_VRING_ENABLE, Some(1), 0),
    ];
    let expected: Vec<_> = requests.map(|(request, word, files)| (request as u32, word, files)).into();
    assert_eq!(repeated(&record), expected);
}

/// The position that is repeated for queue 0.
fn position(record: &Record) -> Option<u32> {
    let messages = record.messages().unwrap();
    messages.iter().find(|message| message.request == Request::SET_VRING_BASE as u32)?.word(4)
}

#[test]
fn a_position_counts_until_the_front_end_says_another_one() {
    let mut record = noted(&queue(0));
    record.set_positions(&[Some(9)]);
    assert_eq!(position(&record), Some(9));
    // The next program was replaced before it has taken a chain.
    record.set_positions(&[None]);
    assert_eq!(position(&record), Some(9));
    let saved = record.save(&mut Leaving::default());
    assert!(saved.queues.contains(
        &Message::request(Request::SET_VRING_BASE as u32, words(&[0, 9])).save(&mut Leaving::default())
    ));
    record.note(&message(Request::SET_VRING_BASE, words(&[0, 3]), 0)).unwrap();
    assert_eq!(position(&record), Some(3));
    record.set_positions(&[None; 40]);
    record.set_positions(&[Some(1); 40]);
    assert_eq!(record.queues.keys().filter(|&&(queue, _)| queue >= MAX_QUEUES).count(), 0);
}

#[test]
fn a_stopped_queue_has_no_events_and_a_reset_device_no_features() {
    let mut messages = queue(0);
    messages.push(message(Request::GET_VRING_BASE, words(&[0, 0]), 0));
    let requests =
        |record: &Record| -> Vec<u32> { repeated(record).into_iter().map(|(request, ..)| request).collect() };
    let stopped = noted(&messages);
    for gone in [Request::SET_VRING_KICK, Request::SET_VRING_CALL] {
        assert!(!requests(&stopped).contains(&(gone as u32)));
    }
    assert!(requests(&stopped).contains(&(Request::SET_VRING_NUM as u32)));
    messages.push(message(Request::SET_OWNER, vec![], 0));
    messages.push(message(Request::SET_FEATURES, words(&[5, 7]), 0));
    messages.push(message(Request::RESET_DEVICE, vec![], 0));
    let reset = requests(&noted(&messages));
    assert!(reset.contains(&(Request::SET_OWNER as u32)));
    for gone in [Request::SET_FEATURES, Request::SET_VRING_ENABLE] {
        assert!(!reset.contains(&(gone as u32)));
    }
    messages.push(message(Request::RESET_OWNER, vec![], 0));
    assert!(!requests(&noted(&messages)).contains(&(Request::SET_OWNER as u32)));
}

#[test]
fn memory_is_added_and_removed_by_regions() {
    let one = |request, number: u8| {
        let body = [vec![0; BEFORE_REGIONS], region(number)].concat();
        message(request, body, usize::from(request == Request::ADD_MEM_REG))
    };
    let mut messages = vec![table(&[1, 2, 3, 4, 5, 6, 7])];
    messages.extend((8..12).map(|number| one(Request::ADD_MEM_REG, number)));
    messages.push(one(Request::REM_MEM_REG, 2));
    messages.push(one(Request::REM_MEM_REG, 99));
    let record = noted(&messages);
    let added = Request::ADD_MEM_REG as u32;
    assert_eq!(
        repeated(&record).iter().map(|&(request, _, files)| (request, files)).collect::<Vec<_>>(),
        [(Request::SET_MEM_TABLE as u32, TABLE), (added, 1), (added, 1)]
    );
    assert!(record.regions.iter().all(|region| region.bytes[0] != 2));
}

#[test]
fn messages_of_any_form_are_noted_or_not_and_bounded() {
    let mut record = Record::default();
    for request in 0..64 {
        for length in [0, 1, 4, 7, 8, 39, 40, 4096] {
            for files in [0, 1, 2] {
                let open = |_| File::open("/dev/null").unwrap();
                let files = (0..files).map(open).collect();
                let body = vec![0xff; length];
                record.note(&Message { files, ..Message::request(request, body) }).unwrap();
            }
        }
    }
    for index in 0..1000 {
        queue(index).iter().for_each(|message| record.note(message).unwrap());
    }
    assert!(record.queues.len() <= MAX_QUEUES as usize * OF_QUEUE.len());
    assert!(record.regions.len() <= MAX_REGIONS);
    record.notify();
}

#[test]
fn a_record_comes_back_as_it_was() {
    let mut messages = queue(0);
    messages.extend([table(&[1, 2]), message(Request::SET_OWNER, vec![], 0)]);
    let record = noted(&messages);
    let mut leaving = Leaving::default();
    let saved: SavedRecord =
        serde_json::from_slice(&serde_json::to_vec(&record.save(&mut leaving)).unwrap()).unwrap();
    let numbers = leaving.numbers();
    keep_open(&numbers, true).unwrap();
    let before = repeated(&record);
    // The descriptors are the next program's now.
    record.regions.into_iter().for_each(|region| std::mem::forget(region.file));
    for message in record.device.into_values().chain(record.queues.into_values()) {
        message.files.into_iter().for_each(std::mem::forget);
    }
    let mut inherited = Inherited::of(&numbers).unwrap();
    inherited.commit();
    let restored = Record::restore(saved.clone(), &mut inherited).unwrap();
    assert_eq!(repeated(&restored), before);
    assert!(Record::restore(saved, &mut inherited).is_err(), "the descriptors are taken");
    assert!(restored.regions.iter().all(|region| region.file.as_fd().try_clone_to_owned().is_ok()));
}
