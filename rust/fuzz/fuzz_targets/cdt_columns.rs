//! Any columns of bodies of CDT, with any subjects and any counts beside them: what is decoded agrees with the codec. The
//! first byte says how, the next three of a message how it begins, where it is cut and what is null, and how many frames
//! it has; its next says its subject.
#![no_main]

use std::sync::Arc;

use arrow_array::{
    ArrayRef, StringArray,
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use libfuzzer_sys::fuzz_target;
use trunkline_columns::{Mode, Payload, cdt::Options};
use trunkline_fuzz::Input;
use trunkline_fuzz::rows::{self, MESSAGES, Row, modes_agree, table, value};
use trunkline_wire::Protocol as _;
use trunkline_wire::cdt::{BytesEncoding, Cdt, Codec, Settings, subject};

const SUBJECTS: [&str; 8] = [
    "kaa.v1.service.cdp.cmx2cdp.ConfigRequest",
    "kaa.v1.replica.r-1.cmx2cdp.ConfigResponse",
    "kaa.v1.service.cdp.cmx2cdp.ConfigPush",
    "kaa.v1.replica.r-1.cmx2cdp.ConfigPushResponse",
    "kaa.v1.events.cdp.endpoint.config.ConfigNewAvailable",
    "kaa.v1.events.cmx.endpoint.config.ConfigUpdated",
    "kaa.v1.events.cmx.endpoint.metadata.Updated",
    "",
];

/// What is seldom hit upon; together these make messages.
const PIECES: [&[u8]; 15] = [
    b"{\"correlationId\":\"1\",\"timestamp\":17,\"timeout\":-1",
    b",\"endpointMessageId\":\"2\",\"appVersionName\":\"3\",\"endpointId\":\"4\"",
    b",\"contentType\":\"5\",\"configId\":\"6\",\"statusCode\":200",
    b",\"reasonPhrase\":\"OK\\u0021\"",
    b",\"content\":{\"bytes\":\"AAEC\"}",
    b",\"content\": \"AAE=\"",
    b",\"content\":null",
    b",\"eventTimestamp\":9223372036854775807,\"originatorReplicaId\":\"r\"",
    b"}",
    b"\"",
    b"\x02c\x22\x01\x02m\x02a\x02e",
    b"\x02t\x02i\x90\x03\x04OK\x02\x04\0\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\0",
    b"\x02x",
];

/// A body of so many pieces, or of bytes.
fn body(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let count = input.byte()?;
    let mut body = vec![];
    for _ in 0..count % 12 {
        let which = input.byte()?;
        match PIECES.get(usize::from(which >> 4)) {
            Some(piece) => body.extend_from_slice(piece),
            None => body.extend(rows::frame(input, which)),
        }
    }
    Some(body)
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(plan) = input.byte() else { return };
    let settings = Settings {
        codec: if plan & 16 == 0 { Codec::Json } else { Codec::Avro },
        bytes_encoding: if plan & 32 == 0 { BytesEncoding::Base64 } else { BytesEncoding::Latin1 },
        strict: plan & 64 == 0,
        kind: None,
    };
    let options =
        |mode| Options { settings, mode, payload: if plan & 2 == 0 { Payload::Frames } else { Payload::None } };
    let mut subjects: Vec<Option<&str>> = vec![];
    let messages = std::iter::from_fn(|| {
        let message = Row::read(&mut input, |_| vec![], body)?;
        let subject = usize::from(input.byte()?);
        subjects.push(SUBJECTS.get(subject % (SUBJECTS.len() + 1)).copied());
        Some(message)
    });
    let messages: Vec<_> = messages.take(MESSAGES).collect();
    let mut parts = rows::parts(&messages, plan);
    parts.topic = Some(Arc::new(StringArray::from(subjects.clone())) as ArrayRef);

    let batch = table::<Cdt>(options(Mode::Permissive), &parts).expect("small").columns;
    assert_eq!(batch.num_rows(), messages.len());
    let mut kept = vec![];
    for (row, message) in messages.iter().enumerate() {
        let frames = message.frames();
        let decoded = frames.as_deref().map(|frames| {
            let parsed = subjects[row].map(subject::parse).unwrap_or_default();
            let is_nobody = frames.last().is_none_or(|body| body.is_empty()) && parsed.replica.is_some();
            Cdt::decode(frames, &Settings { kind: parsed.kind.filter(|_| !is_nobody), ..settings })
        });
        if !matches!(decoded, Some(Err(_))) {
            kept.push(u32::try_from(row).expect("few"));
        }
        let text = |name| value(&batch, name, row).map(|column| column.as_string::<i32>().value(row));
        let number = |name| value(&batch, name, row).map(|column| column.as_primitive::<Int64Type>().value(row));
        let said = decoded.as_ref().and_then(|one| one.as_ref().ok()).and_then(Option::as_ref);
        let exceeds = said.is_some_and(|said| said.timestamp_ms.checked_mul(1000).is_none());
        let error = decoded.as_ref().and_then(|one| one.as_ref().err()).map(|error| error.kind.slug());
        assert_eq!(text("error"), error.or(exceeds.then_some("timestamp_exceeds_bigint")));
        assert_eq!(text("type"), said.map(|said| said.kind.name()));
        assert_eq!(number("timestamp_ms"), said.map(|said| said.timestamp_ms));
        assert_eq!(number("timeout_ms"), said.map(|said| said.timeout_ms));
        assert_eq!(value(&batch, "timestamp", row).is_some(), said.is_some() && !exceeds);
        let texts = [
            ("correlation_id", said.map(|said| &said.correlation_id)),
            ("endpoint_message_id", said.map(|said| &said.endpoint_message_id)),
            ("app_version_name", said.map(|said| &said.app_version_name)),
            ("endpoint_id", said.map(|said| &said.endpoint_id)),
            ("config_id", said.map(|said| &said.config_id)),
            ("content_type", said.map(|said| &said.content_type)),
            ("reason_phrase", said.map(|said| &said.reason_phrase)),
            ("originator_replica_id", said.map(|said| &said.originator_replica_id)),
        ];
        for (name, expected) in texts {
            assert_eq!(text(name), expected.map(|text| &**text).filter(|text| !text.is_empty()), "{name}");
        }
        let status = value(&batch, "status_code", row).map(|column| column.as_primitive::<Int32Type>().value(row));
        assert_eq!(status, said.filter(|said| said.kind.has_status()).map(|said| said.status_code));
        let content = said.and_then(|said| said.content.as_deref());
        assert_eq!(number("content_bytes"), content.map(|content| i64::try_from(content.len()).expect("small")));
        let found = value(&batch, "content", row).map(|column| column.as_binary::<i32>().value(row));
        assert_eq!(found, content.filter(|_| plan & 2 == 0));
    }

    modes_agree::<Cdt>(options, &parts, &messages, &batch, &kept);
});
