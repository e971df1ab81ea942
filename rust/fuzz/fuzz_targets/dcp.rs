//! Any messages of any peers at any time, to a broker whose transport takes them or not. The first three bytes of a message
//! say who sends it and how it begins, when it comes, and in how many frames; each frame begins with its length.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use trunkline_wire::dcp::{Broker, BrokerSettings, ClientAddress, Front, Overflow, Role, Settings, decode};
use trunkline_wire::{Frames, Incoming, Machine, Nanos, Output, SocketEvent, Unsent};

const MAX_QUEUE: usize = 4;
const MAX_QUEUE_BYTES: usize = 4096;

/// A byte and what comes after it.
fn byte(input: &mut &[u8]) -> Option<u8> {
    let (first, rest) = input.split_first()?;
    *input = rest;
    Some(*first)
}

fn message(input: &mut &[u8], how: u8) -> Option<Frames> {
    let count = byte(input)?;
    let mut frames = Frames::new();
    // Mostly it begins as a message does: random bytes seldom would.
    if how & 0x80 == 0 {
        frames.extend([vec![].into(), b"DGBX\x01".to_vec().into(), vec![1 + (how >> 4) % 6].into()]);
    }
    for _ in 0..count % 12 {
        let length = usize::from(byte(input)? % 16).min(input.len());
        let (frame, rest) = input.split_at(length);
        *input = rest;
        frames.push(frame.to_vec().into());
    }
    Some(frames)
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let Some(how) = byte(&mut input) else { return };
    let is = |bit: u8| how & bit != 0;
    let mut broker = Broker::new(BrokerSettings {
        bind: vec!["tcp://127.0.0.1:*".into()],
        max_queue: MAX_QUEUE,
        max_queue_bytes: MAX_QUEUE_BYTES,
        queue_ttl: Duration::from_secs(1),
        overflow: if is(1) { Overflow::DropOldest } else { Overflow::RejectNewest },
        heartbeat_interval: Duration::from_millis(100),
        requeue: is(2),
        busy_ping_grants: !is(4),
        client_address: if is(8) { ClientAddress::WorkersOnly } else { ClientAddress::Any },
        compat_dagbox: is(16),
        ..BrokerSettings::default()
    });
    let (mut now, mut received) = (Nanos(0), 0);
    drain(&mut broker, now, 0);
    while let (Some(how), Some(pause)) = (byte(&mut input), byte(&mut input)) {
        now = now + Duration::from_millis(u64::from(pause));
        if broker.poll_timeout().is_some_and(|at| at <= now) {
            broker.handle_timeout(now);
            drain(&mut broker, now, pause);
            assert!(broker.poll_timeout().is_none_or(|at| at > now), "what is due is done");
        }
        let Some(frames) = message(&mut input, how) else { break };
        received += 1;
        let settings = Settings { role: Some(Role::Broker), compat_dagbox: is(16) };
        let expected = decode(&frames, settings).err().map(|error| error.kind);
        let peer = Some(vec![how & 0x07].into());
        let kind = broker.handle_message(now, Incoming { socket: Front, peer, user_id: None, host: None, frames }).error;
        assert_eq!(kind, expected);
        drain(&mut broker, now, how);
        let stats = broker.stats();
        assert_eq!(stats.received, received);
        assert!(stats.services.iter().all(|service| service.free <= service.workers));
        assert!(stats.services.iter().all(|service| is(2) || service.queued <= MAX_QUEUE as u64));
    }
    broker.handle_close(now, Duration::from_secs(1));
    drain(&mut broker, now, 0);
    broker.handle_timeout(now + Duration::from_secs(2));
    drain(&mut broker, now, 0);
    broker.handle_socket(now, Front, SocketEvent::Closed);
    assert!(broker.is_closed());
});

/// Takes what the broker wants and says; one peer in eight is not there.
fn drain(broker: &mut Broker, now: Nanos, gone: u8) {
    while let Some(output) = broker.poll_output() {
        if let Output::Send { id: Some(id), to, .. } = output {
            let is_gone = to.is_some_and(|to| to.first() == Some(&(gone >> 3 & 0x07)));
            let event = if is_gone { SocketEvent::Unsent(id, Unsent::Unreachable) } else { SocketEvent::Sent(id) };
            broker.handle_socket(now, Front, event);
        }
    }
    while broker.poll_event().is_some() {}
}
