//! An authenticator that is asked by anybody about anybody.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive};
use trunkline_wire::Frames;
use trunkline_wire::question::Token;
use trunkline_wire::zap::{Allowed, Authenticator, Rule, ZapVerb};

struct Any;

impl Calls<Authenticator> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        let peer = Bytes::copy_from_slice(&[input.byte()? & 7]);
        let how = input.byte()?;
        let mut frames: Frames =
            [&b""[..], b"1.0", b"7", b"", b"127.0.0.1", b"", b"CURVE"].map(Bytes::from_static).into_iter().collect();
        frames.push(if how & 1 == 0 { Bytes::from(vec![how & 7; 32]) } else { input.bytes()? });
        if how & 0xf0 == 0 {
            frames.truncate(usize::from(input.byte()? % 9));
        }
        Some((Some(peer), frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<ZapVerb> {
        let how = input.byte()?;
        Some(if how & 0x0f == 0 {
            ZapVerb::Allow(Allowed::from([([how >> 4; 32], "who".to_owned())]))
        } else {
            ZapVerb::Answer(Token(u64::from(input.byte()?)), (how & 1 == 0).then(|| "who".to_owned()))
        })
    }
}

fuzz_target!(|input: &[u8]| {
    drive(Authenticator::new(Rule::Asked), Any, input);
});
