//! Laws of the codec, on generated messages and on invalid bytes.

use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, de::IgnoredAny};
use serde_bytes::ByteBuf;
use trunkline_wire::{
    ErrorKind,
    cdtp::{Layout, MessageType, Settings, Variant, decode, encode_batch, encode_header},
    msgpack::{self, Reader, Timestamp},
};

/// A MessagePack extension in `rmp-serde`'s form.
#[derive(Debug, Deserialize)]
#[serde(rename = "_ExtStruct")]
struct Extension((i8, ByteBuf));

/// Any MessagePack object, encoded canonically.
fn object() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(vec![0xc0]),
        any::<bool>().prop_map(|value| written(|out| msgpack::write_bool(out, value))),
        any::<i64>().prop_map(|value| written(|out| msgpack::write_signed(out, value))),
        any::<u64>().prop_map(|value| written(|out| msgpack::write_unsigned(out, value))),
        any::<f32>().prop_map(|value| written(|out| msgpack::write_f32(out, value))),
        any::<f64>().prop_map(|value| written(|out| msgpack::write_f64(out, value))),
        timestamp().prop_map(|value| written(|out| msgpack::write_timestamp(out, value))),
        ".{0,40}".prop_map(|value| written(|out| msgpack::write_string(out, &value).expect("short"))),
        vec(any::<u8>(), 0..40).prop_map(|value| written(|out| msgpack::write_binary(out, &value).expect("short"))),
        (0..=i8::MAX, vec(any::<u8>(), 0..20))
            .prop_map(|(code, body)| written(|out| msgpack::write_ext(out, code, &body).expect("short"))),
    ];
    leaf.prop_recursive(6, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|members| {
                let mut out = written(|out| msgpack::write_array(out, members.len()).expect("few"));
                out.extend(members.concat());
                out
            }),
            vec((inner.clone(), inner), 0..4).prop_map(|pairs| {
                let mut out = written(|out| msgpack::write_map(out, pairs.len()).expect("few"));
                out.extend(pairs.into_iter().flat_map(|(key, value)| [key, value]).flatten());
                out
            }),
        ]
    })
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    let seconds = prop_oneof![any::<i64>(), 0..=1_i64 << 35, any::<u32>().prop_map(i64::from)];
    let nanoseconds = prop_oneof![Just(0), 0..=Timestamp::MAX_NANOSECONDS];
    (seconds, nanoseconds).prop_filter_map("a second or more", |(seconds, rest)| Timestamp::new(seconds, rest))
}

fn tags() -> impl Strategy<Value = Vec<u8>> {
    vec((".{0,12}", object()), 0..6).prop_map(|tags| {
        let mut out = written(|out| msgpack::write_map(out, tags.len()).expect("few"));
        for (name, value) in tags {
            msgpack::write_string(&mut out, &name).expect("short");
            out.extend(value);
        }
        out
    })
}

#[derive(Clone, Debug)]
struct Message {
    variant: Variant,
    sender: String,
    timestamp: Timestamp,
    kind: MessageType,
    records: Vec<(u64, Vec<u8>, Vec<Vec<u8>>)>,
}

fn message() -> impl Strategy<Value = Message> {
    let blocks = vec(vec(any::<u8>(), 0..40), 0..4);
    (
        prop::sample::select(&Variant::ALL[..]),
        ".{0,40}",
        timestamp(),
        prop::sample::select(&MessageType::ALL[..]),
        vec((any::<u64>(), tags(), blocks), 1..4),
    )
        .prop_map(|(variant, sender, timestamp, kind, records)| Message {
            variant,
            sender,
            timestamp,
            kind,
            records,
        })
}

impl Message {
    /// Its frames; of CDTP1 only the first record's.
    fn encode(&self) -> Vec<Vec<u8>> {
        if self.variant == Variant::Two {
            let records: Vec<_> =
                self.records.iter().map(|(sequence, tags, blocks)| (*sequence, &tags[..], &blocks[..])).collect();
            return vec![encode_batch(&self.sender, self.kind, &records).expect("short")];
        }
        let (sequence, tags, _) = &self.records[0];
        let mut header = Vec::new();
        let (kind, timestamp) = (self.kind, self.timestamp);
        encode_header(&mut header, self.variant, &self.sender, timestamp, kind, *sequence, tags).expect("short");
        vec![header, vec![0x80]]
    }
}

proptest! {
    #[test] // req: CDTP-02 CDTP-05 CDTP-07 CDTP-13 CDTP-14 CDTP-22
    fn what_is_written_is_read(message in message()) {
        let frames = message.encode();
        let header = &frames[0];
        let layout = decode(&frames, &Settings::default()).expect("our own");
        prop_assert_eq!(layout.variant(), message.variant);
        prop_assert_eq!(&header[layout.sender()], message.sender.as_bytes());
        match layout {
            Layout::Single(head) => {
                let (sequence, tags, _) = &message.records[0];
                let typed = message.variant != Variant::S;
                prop_assert_eq!(head.timestamp, (message.variant != Variant::B).then_some(message.timestamp));
                prop_assert_eq!(head.message_type, typed.then_some(message.kind));
                prop_assert_eq!(head.sequence, typed.then_some(*sequence));
                prop_assert_eq!(&header[head.tags], &tags[..]);
            }
            Layout::Batch(batch) => {
                prop_assert_eq!(batch.message_type, message.kind);
                prop_assert_eq!(batch.records.len(), message.records.len());
                for (record, (sequence, tags, blocks)) in batch.records.iter().zip(&message.records) {
                    prop_assert_eq!(record.sequence, *sequence);
                    prop_assert_eq!(&header[record.tags.clone()], &tags[..]);
                    let read: Vec<_> = record.blocks(header).map(|block| header[block].to_vec()).collect();
                    prop_assert_eq!(&read, blocks);
                }
            }
        }
    }

    /// An independent library reads in a header what was written, and nothing after it.
    #[test] // req: CDTP-02 CDTP-03 CDTP-05 CDTP-22
    fn what_is_written_is_messagepack_to_others(message in message()) {
        let frames = message.encode();
        let mut left = &frames[0][..];
        let mut oracle = rmp_serde::Deserializer::new(&mut left);
        let version = if message.variant == Variant::Two { 2 } else { 1 };
        prop_assert_eq!(String::deserialize(&mut oracle).expect("the name"), format!("CDTP{}", char::from(version)));
        prop_assert_eq!(String::deserialize(&mut oracle).expect("the sender"), message.sender.clone());
        if matches!(message.variant, Variant::S | Variant::A) {
            let Extension((kind, bytes)) = Extension::deserialize(&mut oracle).expect("a timestamp");
            let written = written(|out| msgpack::write_timestamp(out, message.timestamp));
            prop_assert_eq!((kind, &bytes[..]), (-1, &written[written.len() - bytes.len()..]));
        }
        let number = message.kind.number();
        if message.variant == Variant::Two {
            prop_assert_eq!(u64::deserialize(&mut oracle).expect("the type"), number);
            let records = Vec::<(u64, IgnoredAny, Vec<ByteBuf>)>::deserialize(&mut oracle).expect("the records");
            let records: Vec<_> = records.into_iter().map(|(sequence, _, blocks)| (sequence, blocks)).collect();
            let blocks = |blocks: &[Vec<u8>]| blocks.iter().cloned().map(ByteBuf::from).collect();
            let expected: Vec<_> =
                message.records.iter().map(|(sequence, _, given)| (*sequence, blocks(given))).collect();
            prop_assert_eq!(records, expected);
        } else {
            if message.variant != Variant::S {
                prop_assert_eq!(u64::deserialize(&mut oracle).expect("the type"), number);
                prop_assert_eq!(u64::deserialize(&mut oracle).expect("the sequence"), message.records[0].0);
            }
            IgnoredAny::deserialize(&mut oracle).expect("the tags");
        }
        drop(oracle);
        prop_assert!(left.is_empty());
    }

    #[test] // req: CDTP-11
    fn a_message_cut_short_is_truncated_where_it_ends(message in message()) {
        let frames = message.encode();
        for end in 0..frames[0].len() {
            let error = decode(&[&frames[0][..end], &[]], &Settings::default()).expect_err("cut short");
            prop_assert_eq!((error.kind, error.frame, error.offset), (ErrorKind::Truncated, 0, end));
        }
    }

    #[test] // req: CDTP-10
    fn bytes_after_the_header_are_counted_or_refused(message in message(), trailing in vec(any::<u8>(), 1..9)) {
        let mut frames = message.encode();
        let end = frames[0].len();
        frames[0].extend(&trailing);
        let error = decode(&frames, &Settings::default()).expect_err("strict");
        prop_assert_eq!((error.kind, error.frame, error.offset), (ErrorKind::TrailingBytes, 0, end));
        let lenient = Settings { strict: false, ..Settings::default() };
        let counted = match decode(&frames, &lenient).expect("lenient") {
            Layout::Single(head) => head.trailing,
            Layout::Batch(batch) => batch.trailing,
        };
        prop_assert_eq!(counted, trailing.len());
    }

    #[test] // req: CDTP-11
    fn one_changed_byte_gives_a_message_or_an_error_inside_it(
        message in message(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut frames = message.encode();
        let at = at.index(frames[0].len());
        frames[0][at] = byte;
        if let Err(error) = decode(&frames, &Settings::default()) {
            prop_assert!(error.frame > 0 || error.offset <= frames[0].len(), "{error}");
        }
    }

    #[test] // req: CDTP-11
    fn any_bytes_give_a_message_or_an_error_inside_them(frames in vec(vec(any::<u8>(), 0..200), 0..4)) {
        if let Err(error) = decode(&frames, &Settings::default()) {
            prop_assert!(error.offset <= frames.get(error.frame).map_or(0, Vec::len), "{error}");
        }
    }

    #[test] // req: CDTP-07 CDTP-09
    fn objects_are_passed_whole(object in object()) {
        let mut reader = Reader::new(&object, ErrorKind::BadHeader);
        prop_assert_eq!(reader.skip(0), Ok(()));
        prop_assert!(reader.rest().is_empty());
    }
}
