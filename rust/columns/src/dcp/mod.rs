//! DCP messages as columns.

mod writing;

use std::sync::Arc;

use arrow_array::{
    ArrayRef,
    types::{Int32Type, Int64Type},
};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::dcp::{Dcp, Layout, MessageType, Settings};

use crate::{
    Asked, Builder, ColumnError, ColumnKind, Input, Message, Mode, Need, Setting, Table,
    faults::Faults,
    output::{Bytes, BytesLists, Numbers, Slugs, list_type},
    payload::{Column, Fault, Payload, PayloadFrames},
    table::Mismatches,
    writing::{StructFields, Writer},
};

/// The options of decoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The settings of valid frames.
    pub settings: Settings,
    /// The handling of invalid messages.
    pub mode: Mode,
    /// What becomes of the parts of the data.
    pub payload: Payload,
}

impl Table for Dcp {
    type Options = Options;
    type Rows = Messages;
    type Structs = Messages;

    const OPTIONS: &'static [(&'static str, Setting<Options>)] = &[
        ("mode", Setting::Mode(|options| &mut options.mode)),
        ("compat_dagbox", Setting::Flag(|options| &mut options.settings.compat_dagbox)),
        ("payload", Setting::Payload(|options| &mut options.payload)),
    ];
    const INPUTS: &'static [Input] = &[
        Input { name: "envelope", need: Need::Always },
        Input { name: "header", need: Need::Always },
        Input { name: "payload", need: Need::HeadUnless(&["data"]) },
        Input { name: "n_frames", need: Need::For(&["data_parts"]) },
        Input { name: "n_bytes", need: Need::For(&["data_bytes"]) },
    ];
    const KEPT: &'static [&'static str] =
        &["capture_id", "segment", "seq", "received_at_ns", "endpoint", "peer", "direction"];
    const COLUMN_KINDS: &'static [ColumnKind] = &[ColumnKind::PayloadExceedsVariant, ColumnKind::MessageTooLarge];

    fn message_types() -> Vec<&'static str> {
        MessageType::ALL.map(MessageType::slug).into()
    }

    fn settings(options: &Options) -> &Settings {
        &options.settings
    }

    fn mode(options: &Options) -> Mode {
        options.mode
    }

    fn payload(options: &mut Options) -> &mut Payload {
        &mut options.payload
    }

    fn writer(_: &Options, given: StructFields<'_>) -> Result<Box<dyn Writer>, ColumnError> {
        Ok(Box::new(writing::Messages::of(given)?))
    }
}

/// The columns of messages, being built; rows and structs have the same.
#[derive(Debug)]
pub struct Messages {
    message_type: Slugs,
    service: Bytes,
    client: Bytes,
    metadata: BytesLists,
    data_parts: Numbers<Int32Type>,
    data_bytes: Numbers<Int64Type>,
    data: Column<BytesLists>,
    faults: Faults,
}

impl Builder<Dcp> for Messages {
    fn fields(options: &Options) -> Fields {
        let frames = || list_type(DataType::Binary);
        let mut fields = vec![
            Field::new("type", DataType::Utf8, true),
            Field::new("service", DataType::Binary, true),
            Field::new("client", DataType::Binary, true),
            Field::new("metadata", frames(), true),
            Field::new("data_parts", DataType::Int32, true),
            Field::new("data_bytes", DataType::Int64, true),
        ];
        let payload = options.payload.fields(|| Field::new("data", frames(), true));
        fields.extend(payload.iter().map(|field| field.as_ref().clone()));
        fields.extend(Faults::fields(options.mode));
        fields.into()
    }

    fn new(options: &Options, asked: &Asked) -> Self {
        Self {
            message_type: Slugs::asked(asked.has("type")),
            service: Bytes::asked(asked.has("service")),
            client: Bytes::asked(asked.has("client")),
            metadata: BytesLists::asked(asked.has("metadata")),
            data_parts: Numbers::asked(asked.has("data_parts")),
            data_bytes: Numbers::asked(asked.has("data_bytes")),
            data: Column::new(&options.payload, "data", options.mode, asked),
            faults: Faults::new(options.mode, asked),
        }
    }

    fn bytes(&self) -> usize {
        self.message_type.bytes()
            + self.service.bytes()
            + self.client.bytes()
            + self.data_parts.bytes()
            + self.data_bytes.bytes()
            + self.metadata.bytes()
            + self.data.bytes()
            + self.faults.bytes()
    }

    fn mismatches(&self) -> Mismatches {
        self.data.mismatches()
    }

    fn check(&mut self, message: &Message<'_>, layout: &Layout, _: usize) -> Result<(), Fault> {
        let Some(start) = layout.body().map(|body| body.data().start) else { return Ok(()) };
        let is_whole = message.sizes().0 == message.frames.len();
        self.data.check(is_whole.then(|| PayloadFrames::of(&message.frames[start..])), start)
    }

    #[inline]
    fn push(&mut self, message: &Message<'_>, layout: &Layout, _: usize) -> Result<(), ColumnError> {
        let frames = message.frames;
        self.message_type.push(Some(layout.message_type().slug()));
        self.service.push(layout.service().map(|service| frames[service]))?;
        if let Some(body) = layout.body() {
            self.client.push(body.client.map(|client| frames[client]))?;
            self.metadata.push(frames[body.metadata.clone()].iter().copied())?;
            let (n_frames, n_bytes) = message.sizes();
            let start = body.data().start;
            let before: usize = frames[..start].iter().map(|frame| frame.len()).sum();
            self.data_parts.push(i32::try_from(n_frames - start).ok());
            self.data_bytes.push(i64::try_from(n_bytes - before).ok());
            let is_whole = n_frames == frames.len();
            let fault = self.data.push(message.row, Some(&frames[start..]), start, is_whole)?;
            return self.faults.push(fault, None);
        }
        self.skip_body()?;
        self.faults.push(None, None)
    }

    fn push_error(&mut self, kind: &'static str, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.skip()?;
        self.faults.push(Some(kind), frames)
    }

    fn push_null(&mut self) -> Result<(), ColumnError> {
        self.skip()?;
        self.faults.push(None, None)
    }

    fn finish(mut self, _: &Options) -> Result<Vec<ArrayRef>, ColumnError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.message_type.finish()?),
            Arc::new(self.service.finish()?),
            Arc::new(self.client.finish()?),
            self.metadata.finish()?,
            Arc::new(self.data_parts.finish()?),
            Arc::new(self.data_bytes.finish()?),
        ];
        columns.extend(self.data.finish()?);
        columns.extend(self.faults.finish()?);
        Ok(columns)
    }
}

impl Messages {
    fn skip(&mut self) -> Result<(), ColumnError> {
        self.message_type.push(None);
        self.service.push(None)?;
        self.skip_body()
    }

    fn skip_body(&mut self) -> Result<(), ColumnError> {
        self.client.push(None)?;
        self.metadata.push_null()?;
        self.data_parts.push(None);
        self.data_bytes.push(None);
        self.data.push_null()
    }
}
