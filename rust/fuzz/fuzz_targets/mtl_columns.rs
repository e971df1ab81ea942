//! Any columns of frames of MTL, cut anywhere and with any counts beside them: what is decoded agrees with the codec. The
//! first three bytes of a message say how it begins, where it is cut and what is null, and how many frames it has; each
//! frame begins with its length, or with which of a few it is.
#![no_main]

use arrow_array::{
    cast::AsArray,
    types::{Decimal128Type, Int32Type, Int64Type},
};
use libfuzzer_sys::fuzz_target;
use trunkline_columns::{Mode, Payload, RestType, Tags, mtl::Options};
use trunkline_fuzz::Input;
use trunkline_fuzz::rows::{self, MESSAGES, Row, modes_agree, table, value};
use trunkline_wire::Protocol as _;
use trunkline_wire::mtl::data::{Kind, Layout};
use trunkline_wire::mtl::{Mtl, Spoken};

/// What is seldom hit upon.
const PIECES: [&[u8]; 14] = [
    b"Connection.Writer",
    b"202",
    b"{\"lease\": \"00ff\", \"port\": 1}",
    b"{\"a\": [1e300, null, {\"b\": 18446744073709551615}]}",
    b"\x01\0\0\0\0\0\0\0\x01\x0400ff",
    b"\x02\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x03\0\0\0\0\0\0\0\x02\x04jobs",
    b"\x05\0\0\0\0\0\0\0\x03\0\0\0\0\0",
    b"\x05\0\0\0\0\0\0\0\x03\x01j\0\0\0\x10\x0bredeliveredt\x01\x01kV",
    b"\x05\0\0\0\0\0\0\0\x03\0\0\0\0\x0f\x01kF\0\0\0\x03\x01kV\x01dD\x02\0",
    b"\x06\0\0\0\0\0\0\0\x03\x01",
    b"\x07\0\0\0\0\0\0\0\x03\0\x01",
    b"\x08",
    b"200",
];

fn begin(how: u8) -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = (how & 0x40 == 0).then(Vec::new).into_iter().collect();
    frames.push(PIECES[usize::from(how >> 2) % PIECES.len()].to_vec());
    frames
}

fn frame(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let length = input.byte()?;
    let piece = PIECES.get(usize::from(length >> 4)).map(|piece| piece.to_vec());
    Some(piece.unwrap_or_else(|| rows::frame(input, length)))
}

fn layout(said: &Spoken) -> Option<&Layout> {
    if let Spoken::Data(layout) = said { Some(layout) } else { None }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(plan) = input.byte() else { return };
    let tags =
        || Tags::new(vec![], Some(if plan & 1 == 0 { RestType::Variant } else { RestType::Json })).expect("none");
    let options = |mode| Options {
        properties: tags(),
        json: tags(),
        mode,
        payload: if plan & 2 == 0 { Payload::Frames } else { Payload::None },
    };
    let messages: Vec<_> = std::iter::from_fn(|| Row::read(&mut input, begin, frame)).take(MESSAGES).collect();
    let parts = rows::parts(&messages, plan);

    let batch = table::<Mtl>(options(Mode::Permissive), &parts).expect("small").columns;
    assert_eq!(batch.num_rows(), messages.len());
    let mut kept = vec![];
    for (row, message) in messages.iter().enumerate() {
        let frames = message.frames();
        // A body that was left out is one: a header says all but what a response answers.
        let has_body_elsewhere = plan & 4 == 0 && message.n_frames() == Some(2);
        let decoded = frames.as_deref().map(|frames| match frames {
            [header] if has_body_elsewhere => Mtl::decode(&[*header, &[]], &()),
            frames => Mtl::decode(frames, &()),
        });
        if !matches!(decoded, Some(Err(_))) {
            kept.push(u32::try_from(row).expect("few"));
        }
        let text = |name| value(&batch, name, row).map(|column| column.as_string::<i32>().value(row).to_owned());
        let flag = |name| value(&batch, name, row).map(|column| column.as_boolean().value(row));
        let error = decoded.as_ref().and_then(|one| one.as_ref().err()).map(|error| error.kind.slug());
        assert_eq!(text("error").as_deref(), error);
        let said = decoded.as_ref().and_then(|one| one.as_ref().ok());
        let data = said.and_then(layout);
        let flow = said.map(|said| if layout(said).is_some() { "data" } else { "control" });
        assert_eq!(text("flow").as_deref(), flow);
        let (name, status, kind, json) = match said {
            None => (None, None, None, false),
            Some(Spoken::Command(command)) => (Some(command.name.as_str()), None, Some("command"), true),
            Some(Spoken::Reply(reply)) => (None, Some(reply.status), Some("reply"), true),
            Some(Spoken::Data(layout)) => {
                let status = Some(layout.status).filter(|_| layout.kind == Kind::Response);
                (None, status, Some(layout.kind.name()), false)
            }
        };
        assert_eq!(text("name").as_deref(), name);
        assert_eq!(text("type").as_deref(), kind);
        let found = value(&batch, "status", row).map(|column| column.as_primitive::<Int32Type>().value(row));
        assert_eq!(found, status.map(i32::from));
        assert_eq!(value(&batch, "json", row).is_some(), json);
        let is = |kinds: &[Kind]| data.filter(|layout| kinds.contains(&layout.kind));
        let numbered = data.filter(|layout| !matches!(layout.kind, Kind::Ping | Kind::Pong));
        let found = value(&batch, "sequence", row).map(|column| column.as_primitive::<Decimal128Type>().value(row));
        assert_eq!(found, numbered.map(|layout| i128::from(layout.sequence)));
        let named = |layout: &Layout| {
            let header = frames.as_deref().unwrap_or_default()[0];
            String::from_utf8_lossy(&header[layout.name.clone()]).into_owned()
        };
        assert_eq!(text("resource"), is(&[Kind::Summon, Kind::Dismiss, Kind::Content]).map(named));
        assert_eq!(flag("multiple"), is(&[Kind::Confirm, Kind::Reject]).map(|layout| layout.multiple));
        assert_eq!(flag("recycle"), is(&[Kind::Reject]).map(|layout| layout.recycle));
        assert_eq!(value(&batch, "properties", row).is_some(), is(&[Kind::Content]).is_some());
        // Never the lease, and always as many digits.
        let hash = text("lease_hash");
        assert!(
            hash.as_ref().is_none_or(|hash| hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()))
        );
        assert!(is(&[Kind::Lease]).is_none() || hash.is_some());
        // There is never less of a body than is here, whatever the counts say.
        let body_bytes = value(&batch, "body_bytes", row).map(|column| column.as_primitive::<Int64Type>().value(row));
        assert_eq!(body_bytes.is_some(), is(&[Kind::Content]).is_some());
        let here = frames.as_deref().and_then(|frames| frames.get(1)).map_or(0, |body| body.len());
        assert!(body_bytes.is_none_or(|bytes| usize::try_from(bytes).is_ok_and(|bytes| bytes >= here)));
    }

    modes_agree::<Mtl>(options, &parts, &messages, &batch, &kept);
});
