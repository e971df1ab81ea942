//! CDTP headers as columns.

mod body;
mod builders;
mod message;
mod writing;

pub use builders::{Rows, Structs};

use trunkline_wire::{
    DecodeError,
    cdtp::{Cdtp, Layout, MessageType, Settings, Variant, decode_header},
};

use crate::{
    ColumnError, ColumnKind, Input, Message, Mode, Need, PlanError, Setting, Table, Tags,
    payload::Payload,
    writing::{StructFields, Writer},
};

/// The options of decoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The settings of valid headers.
    pub settings: Settings,
    /// The handling of invalid messages.
    pub mode: Mode,
    /// The columns of the tags.
    pub tags: Tags,
    /// What becomes of payloads. Those of CDTP1 come from [`Parts::payload`](crate::Parts::payload).
    pub payload: Payload,
}

impl Table for Cdtp {
    type Options = Options;
    type Rows = Rows;
    type Structs = Structs;

    const OPTIONS: &'static [(&'static str, Setting<Options>)] = &[
        ("tags", Setting::Tags(|options| &mut options.tags)),
        ("mode", Setting::Mode(|options| &mut options.mode)),
        ("accept", Setting::Names { get: accepted, set: accept }),
        ("strict", Setting::Flag(|options| &mut options.settings.strict)),
        ("payload", Setting::Payload(|options| &mut options.payload)),
    ];
    const INPUTS: &'static [Input] = &[
        Input { name: "header", need: Need::Always },
        // Their number decides whether it is a message.
        Input { name: "n_frames", need: Need::Always },
        Input { name: "n_bytes", need: Need::For(&["payload_bytes"]) },
        Input { name: "payload", need: Need::For(&["payload"]) },
    ];
    const HAS_TAGS: bool = true;
    const KEPT: &'static [&'static str] = &["capture_id", "segment", "seq", "received_at_ns", "endpoint"];
    const COLUMN_KINDS: &'static [ColumnKind] = &[
        ColumnKind::SequenceExceedsBigint,
        ColumnKind::TimestampExceedsBigint,
        ColumnKind::TagsExceedVariant,
        ColumnKind::PayloadExceedsVariant,
        ColumnKind::MessageTooLarge,
    ];

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
        Ok(Box::new(writing::Headers::of(given)?))
    }

    /// The header gives all but the number of frames.
    #[inline(never)] // its callees are inlined into it; inlined into the loop, fewer would be
    fn read(message: &Message<'_>, settings: &Settings) -> Result<Layout, DecodeError> {
        decode_header(header(message), frames(message), settings)
    }
}

/// The first frame: without it there is no message.
#[inline]
fn header<'a>(message: &Message<'a>) -> &'a [u8] {
    first(message.frames)
}

#[inline]
fn first<'a>(frames: &[&'a [u8]]) -> &'a [u8] {
    frames.first().copied().unwrap_or_default()
}

/// The number of frames, if known.
#[inline]
fn frames(message: &Message<'_>) -> Option<usize> {
    if message.has_payload {
        return Some(message.sizes().0);
    }
    // A negative count is as wrong as no frames at all.
    message.n_frames.map(|frames| usize::try_from(frames).unwrap_or(0))
}

/// The bytes after the header, if known.
#[inline]
fn payload_bytes(message: &Message<'_>) -> Option<i64> {
    let bytes = if message.has_payload { i64::try_from(message.sizes().1).ok() } else { message.n_bytes };
    bytes?.checked_sub_unsigned(header(message).len() as u64).filter(|&bytes| bytes >= 0)
}

fn accepted(options: &Options) -> Vec<String> {
    let accept = options.settings.accept;
    Variant::ALL
        .into_iter()
        .filter(|variant| accept.contains(*variant))
        .map(|variant| variant.slug().to_owned())
        .collect()
}

fn accept(options: &mut Options, slugs: &[String]) -> Result<(), PlanError> {
    let variants = slugs.iter().map(|slug| {
        let unknown = |()| PlanError::UnknownName("accept", slug.clone(), Variant::ALL.map(Variant::slug).to_vec());
        slug.parse::<Variant>().map_err(unknown)
    });
    options.settings.accept = variants.collect::<Result<_, _>>()?;
    Ok(())
}
