//! Any body to the codecs of CDT: what is read is written, and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::Input;
use trunkline_wire::cdt::{BytesEncoding, Codec, Kind, Settings, decode, encode, subject};

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some(kind), Some(how)) = (input.pick(Kind::ALL), input.byte()) else { return };
    let settings = Settings {
        codec: if how & 1 == 0 { Codec::Json } else { Codec::Avro },
        bytes_encoding: if how & 2 == 0 { BytesEncoding::Base64 } else { BytesEncoding::Latin1 },
        strict: how & 4 == 0,
        kind: None,
    };
    let body = input.0;
    if let Ok(text) = str::from_utf8(body) {
        let parsed = subject::parse(text);
        assert!(parsed.kind.is_none() || text.ends_with(parsed.kind.map_or("", Kind::name)));
    }
    let message = match decode(body, kind, &settings) {
        Ok(message) => message,
        Err(rejected) => return assert!(rejected.fault.offset <= body.len()),
    };
    let again = encode(&message, &settings);
    let read = decode(&again, kind, &settings).expect("what is written is read");
    assert_eq!(read, message);
    if settings.codec == Codec::Avro && message.timeout_ms >= -1 {
        assert!(again.len() <= body.len(), "there are shorter numbers than the shortest");
    }
});
