//! A middleware of mc0, at any time and in any order, with the messages of many peers.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::mc0::{Clients, Entry, Middleware, MiddlewareSettings, MiddlewareVerb, Overflow, Policy, Settings};
use trunkline_wire::{Frames, Pattern};

struct Any;

fn policy(input: &mut Input<'_>) -> Option<Policy> {
    let pattern = |input: &mut Input<'_>| Some(Pattern::new(input.pick(&[&b"t"[..], b"*", b"?", b"u*"])?));
    let entry = |input: &mut Input<'_>| {
        let clients = if input.byte()? & 1 == 0 { Clients::All } else { Clients::Named(b"nobody"[..].into()) };
        Some(Entry { clients, publish: input.several(pattern)?, subscribe: input.several(pattern)? })
    };
    input.several(entry).map(Policy)
}

impl Calls<Middleware> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        let peer = Bytes::copy_from_slice(&[input.byte()? & 7]);
        Some((Some(peer), messages::mc0(input)?))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<MiddlewareVerb> {
        let is_any = input.byte()? & 1 == 0;
        Some(MiddlewareVerb::Enforce(if is_any { None } else { Some(policy(input)?) }))
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some(how), Some(max_ttl_ms)) = (input.byte(), input.number()) else { return };
    let middleware = Middleware::new(MiddlewareSettings {
        bind: vec!["tcp://127.0.0.1:*".to_owned()],
        decode: Settings { max_ttl_ms },
        overflow: [Overflow::DropNewest, Overflow::DropOldest, Overflow::Disconnect][usize::from(how % 3)],
        client_queue_messages: 1 + usize::from(how >> 2 & 3),
        client_queue_bytes: 2048,
        queue_bytes: 4096,
        max_topics: 3,
        ..MiddlewareSettings::default()
    });
    drive(middleware, Any, input.0);
});
