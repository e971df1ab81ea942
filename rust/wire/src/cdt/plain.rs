//! JSON in its common form: an object of texts without escapes, whole numbers and bytes. This parser is several times
//! as fast as the general one, which reads all other bodies and reports faults.

use super::Content;
use super::draft::Draft;
use super::message::Kind;
use super::utf8;

/// Reads a body into a draft; `None` if it does not have the common form. `content` decodes bytes.
pub(super) fn read<'a>(
    body: &'a [u8],
    kind: Kind,
    draft: &mut Draft<'a>,
    content: impl Fn(&'a [u8]) -> Option<Content<'a>>,
) -> Option<()> {
    let mut reader = Reader { left: body };
    // Most senders write the fields in the order of the schemas.
    let mut expected = kind.entries().iter();
    reader.token(b'{')?;
    loop {
        reader.space();
        let entry = match expected.next() {
            Some(entry) if reader.takes(|json| entry.field.after(json)) => Some(entry),
            _ => {
                let name = reader.text()?;
                let at = kind.entries().iter().position(|entry| entry.field.name() == name);
                expected = kind.entries()[at.map_or(0, |at| at + 1)..].iter();
                reader.token(b':')?;
                at.map(|at| &kind.entries()[at])
            }
        };
        reader.space();
        let value = reader.value()?;
        match (entry, value) {
            (Some(entry), _) if draft.has(entry.field) => return None,
            (Some(entry), Value::Text(text)) => draft.text(*entry, text),
            (Some(entry), Value::Number(number)) => draft.number(*entry, number),
            (Some(entry), Value::Bytes(written)) => draft.content(*entry, content(written)),
            (None, Value::Text(_) | Value::Number(_)) => {}
            (None, Value::Bytes(_)) => return None,
        }
        reader.space();
        match reader.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    reader.space();
    reader.left.is_empty().then_some(())
}

enum Value<'a> {
    Text(&'a str),
    Number(i64),
    /// Bytes, still encoded.
    Bytes(&'a [u8]),
}

struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<u8> {
        let (byte, left) = self.left.split_first()?;
        self.left = left;
        Some(*byte)
    }

    #[inline]
    fn space(&mut self) {
        // White space is rare, so that one comparison comes before the others.
        while let [byte @ ..=b' ', left @ ..] = self.left
            && matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
        {
            self.left = left;
        }
    }

    fn token(&mut self, token: u8) -> Option<()> {
        self.space();
        (self.next()? == token).then_some(())
    }

    /// Skips what is expected, if it is there; `after` returns what follows it.
    fn takes(&mut self, after: impl Fn(&'a [u8]) -> Option<&'a [u8]>) -> bool {
        let after = after(self.left);
        self.left = after.unwrap_or(self.left);
        after.is_some()
    }

    #[inline]
    fn value(&mut self) -> Option<Value<'a>> {
        match self.left.first()? {
            b'"' => self.text().map(Value::Text),
            b'{' => self.bytes(),
            _ => self.number(),
        }
    }

    /// The text between quotes; `end` finds its end.
    #[inline]
    fn quoted(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> Option<&'a [u8]> {
        let left = self.left.strip_prefix(b"\"")?;
        let (quoted, left) = left.split_at_checked(end(left)?)?;
        self.left = left.strip_prefix(b"\"")?;
        Some(quoted)
    }

    #[inline]
    fn text(&mut self) -> Option<&'a str> {
        utf8(self.quoted(special)?).ok()
    }

    /// `{"bytes": "…"}`
    #[inline]
    fn bytes(&mut self) -> Option<Value<'a>> {
        self.token(b'{')?;
        self.space();
        self.takes(|json| json.strip_prefix(b"\"bytes\"")).then_some(())?;
        self.token(b':')?;
        self.space();
        let written = self.quoted(|left| memchr::memchr(b'"', left))?;
        self.token(b'}')?;
        Some(Value::Bytes(written))
    }

    #[inline]
    fn number(&mut self) -> Option<Value<'a>> {
        let is_negative = self.takes(|json| json.strip_prefix(b"-"));
        let start = self.left;
        let mut number = 0_i64;
        while let [digit @ b'0'..=b'9', left @ ..] = self.left {
            number = number.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
            self.left = left;
        }
        let digits = start.len() - self.left.len();
        // The fraction or exponent of any other number then fails as the end of a value.
        let is_whole = if start.starts_with(b"0") { digits == 1 && !is_negative } else { digits > 0 };
        is_whole.then_some(Value::Number(if is_negative { -number } else { number }))
    }
}

/// The text between quotes, if it has no escapes.
pub(super) fn text(quoted: &[u8]) -> Option<&str> {
    if special(quoted).is_none() { utf8(quoted).ok() } else { None }
}

/// The first byte that is not a plain character of a JSON text. Most texts are about as long as a UUID, for which eight
/// bytes at a time is fastest; one test covers all special bytes.
#[inline]
fn special(text: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Marks the bytes below a number; after the first such byte, others may be marked by mistake.
    let below = |bytes: u64, number: u64| bytes.wrapping_sub(ONES * number) & !bytes & (ONES << 7);
    let same = |bytes: u64, byte: u8| below(bytes ^ (ONES * u64::from(byte)), 1);
    let (eights, rest) = text.as_chunks();
    for (at, eight) in eights.iter().enumerate() {
        let bytes = u64::from_le_bytes(*eight);
        let found = below(bytes, b' '.into()) | same(bytes, b'"') | same(bytes, b'\\');
        if found != 0 {
            return Some(8 * at + found.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\'));
    found.map(|at| 8 * eights.len() + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{BytesEncoding, Message, Settings, encode, json};
    use super::*;

    /// Texts that are JSON, nearly JSON, or in the common form.
    fn bodies() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            Just(r#""correlationId""#.to_owned()),
            Just(r#""timestamp":17"#.to_owned()),
            Just(r#""timeout": -1"#.to_owned()),
            Just(r#""content":{"bytes":"AAEC"}"#.to_owned()),
            Just(r#""content": { "bytes" : "AAE=" }"#.to_owned()),
            "[{}\":, \\\\n\u{1}0-9.eé]{1,4}",
            Just("null".to_owned()),
            Just(",".to_owned()),
            Just(":".to_owned()),
        ];
        let other = prop::collection::vec(token, 0..8).prop_map(|tokens| format!("{{{}}}", tokens.concat()));
        other.prop_map(String::into_bytes)
    }

    fn assert_same(body: &[u8], kind: Kind, encoding: BytesEncoding) {
        let settings = Settings { bytes_encoding: encoding, ..Settings::default() };
        let any = json::decode_any(body, kind, settings);
        if let Some(message) = json::decode_plain(body, kind, settings) {
            assert_eq!(any, Ok(message), "{}", String::from_utf8_lossy(body));
        }
    }

    proptest! {
        #[test]
        fn plain_bodies_are_read_as_any(body in bodies(), latin1: bool) {
            for kind in Kind::ALL {
                assert_same(&body, *kind, if latin1 { BytesEncoding::Latin1 } else { BytesEncoding::Base64 });
            }
        }

        #[test]
        fn bodies_with_a_change_are_read_as_any(at in 0_usize..200, to: u8, latin1: bool) {
            let settings = Settings {
                bytes_encoding: if latin1 { BytesEncoding::Latin1 } else { BytesEncoding::Base64 },
                ..Settings::default()
            };
            for kind in Kind::ALL {
                let mut body = encode(&message(*kind), &settings);
                assert!(json::decode_plain(&body, *kind, settings).is_some(), "{}", String::from_utf8_lossy(&body));
                let at = at % body.len();
                body[at] = to;
                assert_same(&body, *kind, settings.bytes_encoding);
            }
        }
    }

    proptest! {
        #[test]
        fn special_bytes_are_found_where_they_are(
            text in prop::collection::vec(prop_oneof![20 => b'a'..=b'z', 1 => any::<u8>(), 1 => Just(b'"')], 0..60),
        ) {
            let first = text.iter().position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\');
            prop_assert_eq!(special(&text), first);
        }
    }

    fn message(kind: Kind) -> Message<'static> {
        Message {
            kind,
            correlation_id: "a".into(),
            timestamp_ms: 1_490_303_342_158,
            timeout_ms: -1,
            endpoint_message_id: "b".into(),
            app_version_name: "c".into(),
            endpoint_id: "d".into(),
            config_id: "e".into(),
            content_type: "f".into(),
            status_code: 200,
            content: kind.has_content().then_some(Content::Part(b"once")),
            ..Message::default()
        }
    }
}
