//! Any columns of frames, cut anywhere and with any counts beside them: what is decoded agrees with the codec. The first
//! three bytes of a message say how it begins, where it is cut and what is null, and how many frames it has; each frame
//! begins with its length.
#![no_main]

use arrow_array::{
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use libfuzzer_sys::fuzz_target;
use trunkline_columns::{Mode, Payload, dcp::Options};
use trunkline_fuzz::Input;
use trunkline_fuzz::rows::{self, MESSAGES, Row, modes_agree, table, value};
use trunkline_wire::dcp::{Dcp, Layout, Settings, decode};

fn begin(how: u8) -> Vec<Vec<u8>> {
    vec![vec![], b"DGBX\x01".to_vec(), vec![1 + (how >> 4) % 6]]
}

fn frame(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let length = input.byte()?;
    Some(rows::frame(input, length))
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(plan) = input.byte() else { return };
    let settings = Settings { role: None, compat_dagbox: plan & 1 == 0 };
    let options =
        |mode| Options { settings, mode, payload: if plan & 2 == 0 { Payload::Frames } else { Payload::None } };
    let messages: Vec<_> = std::iter::from_fn(|| Row::read(&mut input, begin, frame)).take(MESSAGES).collect();
    let parts = rows::parts(&messages, plan);

    let batch = table::<Dcp>(options(Mode::Permissive), &parts).expect("small").columns;
    assert_eq!(batch.num_rows(), messages.len());
    let mut kept = vec![];
    for (row, message) in messages.iter().enumerate() {
        let frames = message.frames();
        let decoded = frames.as_deref().map(|frames| decode(frames, settings));
        if !matches!(decoded, Some(Err(_))) {
            kept.push(u32::try_from(row).expect("few"));
        }
        let text = |name| value(&batch, name, row).map(|column| column.as_string::<i32>().value(row));
        let bytes = |name| value(&batch, name, row).map(|column| column.as_binary::<i32>().value(row));
        assert_eq!(text("error"), decoded.as_ref().and_then(|one| one.as_ref().err()).map(|error| error.kind.slug()));
        let layout = decoded.as_ref().and_then(|one| one.as_ref().ok());
        assert_eq!(text("type"), layout.map(|layout| layout.message_type().slug()));
        let frames = frames.as_deref().unwrap_or_default();
        assert_eq!(bytes("service"), layout.and_then(Layout::service).map(|at| frames[at]));
        let body = layout.and_then(Layout::body);
        assert_eq!(bytes("client"), body.and_then(|body| body.client).map(|at| frames[at]));
        // There is never less data than is here, whatever the counts say.
        let data = body.map(|body| &frames[body.data()]);
        let data_parts = value(&batch, "data_parts", row).map(|column| column.as_primitive::<Int32Type>().value(row));
        let data_bytes = value(&batch, "data_bytes", row).map(|column| column.as_primitive::<Int64Type>().value(row));
        if let (Some(data), Some(parts)) = (data, data_parts) {
            assert!(usize::try_from(parts).is_ok_and(|parts| parts >= data.len()));
        }
        if let (Some(data), Some(bytes)) = (data, data_bytes) {
            assert!(usize::try_from(bytes).is_ok_and(|bytes| bytes >= data.iter().map(|part| part.len()).sum()));
        }
    }

    modes_agree::<Dcp>(options, &parts, &messages, &batch, &kept);
});
