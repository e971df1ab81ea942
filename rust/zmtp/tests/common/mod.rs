//! What the tests of connections share.
#![allow(dead_code)] // each test uses some of it

pub(crate) mod crypto;

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use trunkline_wire::{Frames, Nanos};
use trunkline_zmtp::{Connection, Event, Reason, Settings, Side, SocketType};

/// A connection of a socket with these settings.
pub(crate) fn connection(settings: &Settings, side: Side) -> Connection {
    Connection::new(Arc::new(settings.clone()), side, Nanos(0))
}

/// A connection of a nameless socket without security.
pub(crate) fn plain(socket: SocketType, side: Side) -> Connection {
    connection(&Settings::new(socket, Bytes::new()), side)
}

/// Takes all pending bytes.
pub(crate) fn written(connection: &mut Connection) -> Bytes {
    connection.answer_ping();
    let mut all = vec![];
    while connection.backlog().bytes > 0 {
        let bytes = connection.chunks().collect::<Vec<_>>().concat();
        connection.handle_written(bytes.len());
        all.extend(bytes);
    }
    all.into()
}

/// All events.
pub(crate) fn events(connection: &mut Connection) -> Vec<Event> {
    let mut all = vec![];
    loop {
        match connection.poll_event() {
            Some(event) => all.push(event),
            None if connection.is_opening() => {}
            None => return all,
        }
    }
}

/// Makes a connection read bytes in pieces of these sizes, over and over; long frames in place.
pub(crate) fn read(connection: &mut Connection, bytes: &[u8], sizes: &[usize]) -> Vec<Event> {
    let (mut rest, mut happened) = (bytes, events(connection));
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            return happened;
        }
        let size = (*size).clamp(1, rest.len());
        let mut taken = 0;
        if size & 1 == 0
            && let Some(mut landing) = connection.landing()
        {
            taken = size.min(landing.remaining_mut());
            landing.put_slice(&rest[..taken]);
            connection.handle_landed(Nanos(1));
        }
        connection.receive(Nanos(1), Bytes::copy_from_slice(&rest[taken..size]));
        rest = &rest[size..];
        happened.extend(events(connection));
    }
    happened
}

/// Carries bytes between two connections until both are idle; gives the events of each.
pub(crate) fn talk(one: &mut Connection, other: &mut Connection) -> [Vec<Event>; 2] {
    let mut happened = [events(one), events(other)];
    for _ in 0..100 {
        let [there, back] = [written(one), written(other)];
        if there.is_empty() && back.is_empty() {
            return happened;
        }
        other.receive(Nanos(1), there);
        one.receive(Nanos(1), back);
        happened[0].extend(events(one));
        happened[1].extend(events(other));
    }
    panic!("they never stop");
}

/// Why a connection was given up, if it was.
pub(crate) fn reason(events: &[Event]) -> Option<Reason> {
    match events.last() {
        Some(Event::Failed(failure)) => Some(failure.reason),
        _ => None,
    }
}

/// The messages among the events.
pub(crate) fn messages(events: &[Event]) -> Vec<Frames> {
    let message = |event: &Event| if let Event::Message(frames) = event { Some(frames.clone()) } else { None };
    events.iter().filter_map(message).collect()
}

/// A message of these frames.
pub(crate) fn frames(frames: &[&[u8]]) -> Frames {
    frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect()
}
