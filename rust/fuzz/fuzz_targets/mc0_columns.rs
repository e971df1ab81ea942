//! Any columns of frames, cut anywhere and with any counts beside them: what is decoded agrees with the codec. The first
//! three bytes of a message say how it begins, where it is cut and what is null, and how many frames it has; each frame
//! begins with its length, or with which of a few it is.
#![no_main]

use std::collections::HashSet;

use arrow_array::{
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use libfuzzer_sys::fuzz_target;
use trunkline_columns::{Mode, Payload, mc0::Options};
use trunkline_fuzz::Input;
use trunkline_fuzz::rows::{self, MESSAGES, Row, modes_agree, table, value};
use trunkline_wire::mc0::{Mc0, Settings, Verb, decode};

/// What is seldom hit upon.
const KEYS: [&[u8]; 8] = [b"ID", b"TOPIC", b"VERSION", b"TTL", b"MESSAGE", b"X-a", b"X-\xff", b"0.3"];

fn begin(how: u8) -> Vec<Vec<u8>> {
    let verb = Verb::ALL[usize::from(how >> 2) % Verb::ALL.len()];
    let mut frames: Vec<_> = (how & 0x40 == 0).then(Vec::new).into_iter().collect();
    frames.push(verb.name().into());
    frames
}

fn frame(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let length = input.byte()?;
    let key = KEYS.get(usize::from(length >> 4)).map(|key| key.to_vec());
    Some(key.unwrap_or_else(|| rows::frame(input, length)))
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(plan) = input.byte() else { return };
    let settings = Settings::default();
    let options =
        |mode| Options { settings, mode, payload: if plan & 2 == 0 { Payload::Frames } else { Payload::None } };
    let messages: Vec<_> = std::iter::from_fn(|| Row::read(&mut input, begin, frame)).take(MESSAGES).collect();
    let parts = rows::parts(&messages, plan);

    let batch = table::<Mc0>(options(Mode::Permissive), &parts).expect("small").columns;
    assert_eq!(batch.num_rows(), messages.len());
    let mut kept = vec![];
    for (row, message) in messages.iter().enumerate() {
        let frames = message.frames();
        let decoded = frames.as_deref().map(|frames| decode(frames, settings));
        if !matches!(decoded, Some(Err(_))) {
            kept.push(u32::try_from(row).expect("few"));
        }
        let text = |name| value(&batch, name, row).map(|column| column.as_string::<i32>().value(row).to_owned());
        let error = decoded.as_ref().and_then(|one| one.as_ref().err()).map(|error| error.kind.slug());
        assert_eq!(text("error").as_deref(), error);
        let layout = decoded.as_ref().and_then(|one| one.as_ref().ok());
        assert_eq!(text("verb").as_deref(), layout.map(|layout| layout.verb.name()));
        let frames = frames.as_deref().unwrap_or_default();
        let lossy = |at: usize| String::from_utf8_lossy(frames[at]).into_owned();
        assert_eq!(text("id"), layout.and_then(|layout| layout.id).map(lossy));
        let topics = layout.filter(|layout| matches!(layout.verb, Verb::Sub | Verb::Unsub));
        let found = value(&batch, "topics", row).map(|column| column.as_list::<i32>().value(row));
        assert_eq!(found.is_some(), topics.is_some());
        for (layout, found) in topics.into_iter().zip(&found) {
            let found: Vec<_> = found.as_string::<i32>().iter().flatten().collect();
            assert_eq!(found, (layout.body..frames.len()).map(lossy).collect::<Vec<_>>());
        }
        // A name is there once, whatever it was made of.
        let headers = value(&batch, "headers", row).map(|column| column.as_map().value(row));
        assert_eq!(headers.is_some(), layout.is_some());
        for (layout, headers) in layout.into_iter().zip(&headers) {
            let names: Vec<_> = headers.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect();
            let own = layout.keys().filter(|key| frames[*key].starts_with(b"X-")).map(lossy);
            assert_eq!(names.iter().cloned().collect::<HashSet<_>>(), own.collect());
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        }
        let puts = layout.filter(|layout| matches!(layout.verb, Verb::Put | Verb::Message));
        assert_eq!(text("topic"), puts.and_then(|layout| layout.topic).map(lossy));
        // There is never less of a body than is here, whatever the counts say.
        let body = puts.map(|layout| &frames[layout.positional()]);
        let body_frames = value(&batch, "body_frames", row).map(|column| column.as_primitive::<Int32Type>().value(row));
        let body_bytes = value(&batch, "body_bytes", row).map(|column| column.as_primitive::<Int64Type>().value(row));
        if let (Some(body), Some(frames)) = (body, body_frames) {
            assert!(usize::try_from(frames).is_ok_and(|frames| frames >= body.len()));
        }
        if let (Some(body), Some(bytes)) = (body, body_bytes) {
            assert!(usize::try_from(bytes).is_ok_and(|bytes| bytes >= body.iter().map(|frame| frame.len()).sum()));
        }
    }

    modes_agree::<Mc0>(options, &parts, &messages, &batch, &kept);
});
