//! CDT messages as columns.

mod writing;

use std::sync::Arc;

use arrow_array::{
    ArrayRef,
    types::{Int32Type, Int64Type, TimestampMicrosecondType},
};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::{
    DecodeError, Protocol as _,
    cdt::{
        BytesEncoding, Cdt, Codec, Kind, Message as Said, Settings,
        subject::{Parsed, parse},
    },
};

use crate::{
    Asked, Builder, ColumnError, ColumnKind, Input, Message, Mode, Need, PlanError, Setting, Table,
    options::{UTC, timestamp_type},
    output::{Bytes, Numbers, Slugs},
    payload::{Column, Fault, Payload, PayloadFrames},
    table::Mismatches,
    writing::{StructFields, Writer},
};

/// The options of decoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The encoding of bodies.
    pub settings: Settings,
    /// The handling of invalid messages.
    pub mode: Mode,
    /// What becomes of the contents.
    pub payload: Payload,
}

const CODECS: [(&str, Codec); 2] = [("json", Codec::Json), ("avro", Codec::Avro)];
const ENCODINGS: [(&str, BytesEncoding); 2] = [("base64", BytesEncoding::Base64), ("latin1", BytesEncoding::Latin1)];

fn name_of<T: Copy + PartialEq>(known: &[(&'static str, T)], value: T) -> &'static str {
    known.iter().find(|(_, one)| *one == value).map_or("", |(name, _)| name)
}

fn named<T: Copy>(option: &'static str, known: &[(&'static str, T)], name: &str) -> Result<T, PlanError> {
    let found = known.iter().find(|(one, _)| *one == name);
    let names = || known.iter().map(|(name, _)| *name).collect();
    found.map(|(_, value)| *value).ok_or_else(|| PlanError::UnknownName(option, name.to_owned(), names()))
}

impl Table for Cdt {
    type Options = Options;
    type Rows = Messages;
    type Structs = Messages;

    const OPTIONS: &'static [(&'static str, Setting<Options>)] = &[
        (
            "codec",
            Setting::Name {
                get: |options| name_of(&CODECS, options.settings.codec),
                set: |options, name| named("codec", &CODECS, name).map(|codec| options.settings.codec = codec),
            },
        ),
        (
            "bytes_encoding",
            Setting::Name {
                get: |options| name_of(&ENCODINGS, options.settings.bytes_encoding),
                set: |options, name| {
                    named("bytes_encoding", &ENCODINGS, name).map(|encoding| options.settings.bytes_encoding = encoding)
                },
            },
        ),
        ("strict", Setting::Flag(|options| &mut options.settings.strict)),
        ("mode", Setting::Mode(|options| &mut options.mode)),
        ("payload", Setting::Payload(|options| &mut options.payload)),
    ];
    const INPUTS: &'static [Input] = &[
        Input { name: "envelope", need: Need::Always },
        Input { name: "header", need: Need::Always },
        Input { name: "payload", need: Need::Always },
        // It gives the kind of message in a body.
        Input { name: "topic", need: Need::Always },
    ];
    const KEPT: &'static [&'static str] =
        &["capture_id", "segment", "seq", "received_at_ns", "direction", "topic", "reply_to"];
    const COLUMN_KINDS: &'static [ColumnKind] =
        &[ColumnKind::TimestampExceedsBigint, ColumnKind::PayloadExceedsVariant, ColumnKind::MessageTooLarge];

    fn message_types() -> Vec<&'static str> {
        Kind::ALL.iter().map(|kind| kind.name()).collect()
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

    fn writer(options: &Options, given: StructFields<'_>) -> Result<Box<dyn Writer>, ColumnError> {
        Ok(Box::new(writing::Messages::of(options.settings, given)?))
    }

    #[inline]
    fn read(message: &Message<'_>, settings: &Settings) -> Result<Option<Said<'static>>, DecodeError> {
        let parsed = subject(message);
        let body = message.frames.last().copied().unwrap_or_default();
        // An empty answer reports that the request had no responder.
        let kind = parsed.kind.filter(|_| !(body.is_empty() && parsed.replica.is_some()));
        Self::decode(message.frames, &Settings { kind, ..*settings })
    }
}

/// The frame that the record is in.
const fn last(message: &Message<'_>) -> usize {
    message.frames.len().saturating_sub(1)
}

fn subject<'a>(message: &Message<'a>) -> Parsed<'a> {
    message.topic.map(parse).unwrap_or_default()
}

/// The columns of messages, being built; rows and structs have the same.
#[derive(Debug)]
pub struct Messages {
    message_type: Slugs,
    instance: Bytes,
    replica: Bytes,
    originator: Bytes,
    correlation_id: Bytes,
    timestamp_ms: Numbers<Int64Type>,
    timestamp: Numbers<TimestampMicrosecondType>,
    timeout_ms: Numbers<Int64Type>,
    endpoint_message_id: Bytes,
    app_version_name: Bytes,
    endpoint_id: Bytes,
    config_id: Bytes,
    content_type: Bytes,
    status_code: Numbers<Int32Type>,
    reason_phrase: Bytes,
    originator_replica_id: Bytes,
    content_bytes: Numbers<Int64Type>,
    content: Column<Bytes>,
    error: Slugs,
    corrupt_record: Option<Bytes>,
}

impl Builder<Cdt> for Messages {
    fn fields(options: &Options) -> Fields {
        let text = |name| Field::new(name, DataType::Utf8, true);
        let bigint = |name| Field::new(name, DataType::Int64, true);
        let mut fields = vec![
            text("type"),
            text("instance"),
            text("replica"),
            text("originator"),
            text("correlation_id"),
            bigint("timestamp_ms"),
            Field::new("timestamp", timestamp_type(), true),
            bigint("timeout_ms"),
            text("endpoint_message_id"),
            text("app_version_name"),
            text("endpoint_id"),
            text("config_id"),
            text("content_type"),
            Field::new("status_code", DataType::Int32, true),
            text("reason_phrase"),
            text("originator_replica_id"),
            bigint("content_bytes"),
        ];
        let payload = options.payload.fields(|| Field::new("content", DataType::Binary, true));
        fields.extend(payload.iter().map(|field| field.as_ref().clone()));
        fields.push(text("error"));
        if options.mode == Mode::Permissive {
            fields.push(Field::new("_corrupt_record", DataType::Binary, true));
        }
        fields.into()
    }

    fn new(options: &Options, asked: &Asked) -> Self {
        Self {
            message_type: Slugs::asked(asked.has("type")),
            instance: Bytes::asked(asked.has("instance")),
            replica: Bytes::asked(asked.has("replica")),
            originator: Bytes::asked(asked.has("originator")),
            correlation_id: Bytes::asked(asked.has("correlation_id")),
            timestamp_ms: Numbers::asked(asked.has("timestamp_ms")),
            timestamp: Numbers::asked(asked.has("timestamp")),
            timeout_ms: Numbers::asked(asked.has("timeout_ms")),
            endpoint_message_id: Bytes::asked(asked.has("endpoint_message_id")),
            app_version_name: Bytes::asked(asked.has("app_version_name")),
            endpoint_id: Bytes::asked(asked.has("endpoint_id")),
            config_id: Bytes::asked(asked.has("config_id")),
            content_type: Bytes::asked(asked.has("content_type")),
            status_code: Numbers::asked(asked.has("status_code")),
            reason_phrase: Bytes::asked(asked.has("reason_phrase")),
            originator_replica_id: Bytes::asked(asked.has("originator_replica_id")),
            content_bytes: Numbers::asked(asked.has("content_bytes")),
            content: Column::new(&options.payload, "content", options.mode, asked),
            error: Slugs::asked(asked.has("error")),
            corrupt_record: (options.mode == Mode::Permissive).then(|| Bytes::asked(asked.has("_corrupt_record"))),
        }
    }

    #[inline]
    fn weight(message: &Message<'_>, _: &Option<Said<'static>>, _: usize) -> (usize, usize) {
        (message.weight + message.topic.map_or(0, str::len), 1)
    }

    fn bytes(&self) -> usize {
        let texts = [
            Some(&self.instance),
            Some(&self.replica),
            Some(&self.originator),
            Some(&self.correlation_id),
            Some(&self.endpoint_message_id),
            Some(&self.app_version_name),
            Some(&self.endpoint_id),
            Some(&self.config_id),
            Some(&self.content_type),
            Some(&self.reason_phrase),
            Some(&self.originator_replica_id),
            self.corrupt_record.as_ref(),
        ];
        let numbers = [&self.timestamp_ms, &self.timeout_ms, &self.content_bytes];
        self.message_type.bytes()
            + self.error.bytes()
            + texts.into_iter().flatten().map(Bytes::bytes).sum::<usize>()
            + numbers.into_iter().map(Numbers::bytes).sum::<usize>()
            + self.content.bytes()
            + self.timestamp.bytes()
            + self.status_code.bytes()
    }

    fn mismatches(&self) -> Mismatches {
        self.content.mismatches()
    }

    fn check(&mut self, message: &Message<'_>, said: &Option<Said<'static>>, _: usize) -> Result<(), Fault> {
        let content = said.as_ref().and_then(|said| said.content.as_deref());
        self.content
            .check(content.as_ref().map(|content| PayloadFrames::of(std::slice::from_ref(content))), last(message))
    }

    #[inline]
    fn push(&mut self, message: &Message<'_>, said: &Option<Said<'static>>, _: usize) -> Result<(), ColumnError> {
        let appended = self.append(message.row, subject(message), said.as_ref());
        let fault = appended.map_err(|error| error.at(|_, offset| (last(message), offset)))?;
        self.fault(fault, None)
    }

    fn push_error(&mut self, kind: &'static str, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.append(0, Parsed::default(), None)?;
        self.fault(Some(kind), frames.and_then(<[_]>::last).copied())
    }

    fn push_null(&mut self) -> Result<(), ColumnError> {
        self.append(0, Parsed::default(), None)?;
        self.fault(None, None)
    }

    fn finish(mut self, _: &Options) -> Result<Vec<ArrayRef>, ColumnError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.message_type.finish()?),
            Arc::new(self.instance.finish_text()?),
            Arc::new(self.replica.finish_text()?),
            Arc::new(self.originator.finish_text()?),
            Arc::new(self.correlation_id.finish_text()?),
            Arc::new(self.timestamp_ms.finish()?),
            Arc::new(self.timestamp.finish()?.with_timezone(UTC)),
            Arc::new(self.timeout_ms.finish()?),
            Arc::new(self.endpoint_message_id.finish_text()?),
            Arc::new(self.app_version_name.finish_text()?),
            Arc::new(self.endpoint_id.finish_text()?),
            Arc::new(self.config_id.finish_text()?),
            Arc::new(self.content_type.finish_text()?),
            Arc::new(self.status_code.finish()?),
            Arc::new(self.reason_phrase.finish_text()?),
            Arc::new(self.originator_replica_id.finish_text()?),
            Arc::new(self.content_bytes.finish()?),
        ];
        columns.extend(self.content.finish()?);
        columns.push(Arc::new(self.error.finish()?));
        if let Some(column) = &mut self.corrupt_record {
            columns.push(Arc::new(column.finish()?));
        }
        Ok(columns)
    }
}

/// A text that is not empty.
fn filled(text: &str) -> Option<&[u8]> {
    Some(text.as_bytes()).filter(|text| !text.is_empty())
}

impl Messages {
    /// Appends a row, and gives what a column cannot hold of it.
    #[inline]
    fn append(
        &mut self,
        row: usize,
        parsed: Parsed<'_>,
        said: Option<&Said<'_>>,
    ) -> Result<Option<&'static str>, ColumnError> {
        // A subject alone makes no message.
        let parsed = if said.is_some() { parsed } else { Parsed::default() };
        self.message_type.push(parsed.kind.map(Kind::name));
        self.instance.push(parsed.instance.map(str::as_bytes))?;
        self.replica.push(parsed.replica.map(str::as_bytes))?;
        self.originator.push(parsed.originator.map(str::as_bytes))?;
        self.correlation_id.push(said.and_then(|said| filled(&said.correlation_id)))?;
        let timestamp_ms = said.map(|said| said.timestamp_ms);
        let micros = timestamp_ms.map(|ms| ms.checked_mul(1000));
        self.timestamp_ms.push(timestamp_ms);
        self.timestamp.push(micros.flatten());
        self.timeout_ms.push(said.map(|said| said.timeout_ms));
        self.endpoint_message_id.push(said.and_then(|said| filled(&said.endpoint_message_id)))?;
        self.app_version_name.push(said.and_then(|said| filled(&said.app_version_name)))?;
        self.endpoint_id.push(said.and_then(|said| filled(&said.endpoint_id)))?;
        self.config_id.push(said.and_then(|said| filled(&said.config_id)))?;
        self.content_type.push(said.and_then(|said| filled(&said.content_type)))?;
        self.status_code.push(said.filter(|said| said.kind.has_status()).map(|said| said.status_code));
        self.reason_phrase.push(said.and_then(|said| filled(&said.reason_phrase)))?;
        self.originator_replica_id.push(said.and_then(|said| filled(&said.originator_replica_id)))?;
        let content = said.and_then(|said| said.content.as_deref());
        self.content_bytes.push(content.and_then(|content| i64::try_from(content.len()).ok()));
        let fault = self.content.push(row, content.as_ref().map(std::slice::from_ref), 0, true)?;
        Ok(matches!(micros, Some(None)).then_some(ColumnKind::TimestampExceedsBigint.slug()).or(fault))
    }

    fn fault(&mut self, error: Option<&'static str>, body: Option<&[u8]>) -> Result<(), ColumnError> {
        self.error.push(error);
        self.corrupt_record.as_mut().map_or(Ok(()), |column| column.push(body))
    }
}
