//! What a server of NATS sends to its clients, and how they publish. Only messages are read; the rest is left to others.

use memchr::memmem;

/// The longest line that begins a message: servers take none over 4 KiB unless they are told to.
const LONGEST_LINE: usize = 64 << 10;

/// What ends a line, and a body.
pub const LINE_END: &[u8] = b"\r\n";

/// A message that a server delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The number of the subscription.
    pub subscription: u64,
    /// The subject.
    pub subject: &'a [u8],
    /// Where an answer goes; empty where none is wanted.
    pub reply_to: &'a [u8],
    /// The header block; empty where there is none.
    pub block: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

/// What stands first in what a server has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First<'a> {
    /// A message, and its length in all.
    Message(Delivery<'a>, usize),
    /// The beginning of a message, and the length that is there at least once it is whole.
    Part(usize),
    /// Nothing, or anything else.
    Other,
}

/// Looks at what stands first.
pub fn first(bytes: &[u8]) -> First<'_> {
    let (has_block, rest) = match bytes {
        [b'M', b'S', b'G', b' ' | b'\t', rest @ ..] => (false, rest),
        [b'H', b'M', b'S', b'G', b' ' | b'\t', rest @ ..] => (true, rest),
        _ => return First::Other,
    };
    let Some(line) = memmem::find(&rest[..rest.len().min(LONGEST_LINE)], LINE_END).map(|end| &rest[..end]) else {
        let is_begun = bytes.len() < LONGEST_LINE;
        return if is_begun { First::Part(bytes.len() + 1) } else { First::Other };
    };
    let start = bytes.len() - rest.len() + line.len() + LINE_END.len();
    let Some((delivery, block, size)) = read(line, has_block) else { return First::Other };
    let Some(end) = start.checked_add(size).and_then(|end| end.checked_add(LINE_END.len())) else {
        return First::Other;
    };
    match bytes.get(start..end) {
        None => First::Part(end),
        Some(content) if content.ends_with(LINE_END) => {
            let (block, body) = content[..size].split_at(block);
            First::Message(Delivery { block, body, ..delivery }, end)
        }
        Some(_) => First::Other,
    }
}

/// Reads the line of a message: what it says, and the sizes of block and content.
fn read(line: &[u8], has_block: bool) -> Option<(Delivery<'_>, usize, usize)> {
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let (subject, subscription) = (words.next()?, number(words.next()?)?);
    let left = [words.next(), words.next(), words.next(), words.next()];
    let (reply_to, block, size): (&[u8], &[u8], _) = match (has_block, left) {
        (false, [Some(size), None, ..]) => (b"", b"0", size),
        (false, [Some(reply_to), Some(size), None, _]) => (reply_to, b"0", size),
        (true, [Some(block), Some(size), None, _]) => (b"", block, size),
        (true, [Some(reply_to), Some(block), Some(size), None]) => (reply_to, block, size),
        _ => return None,
    };
    let (block, size) = (usize::try_from(number(block)?).ok()?, usize::try_from(number(size)?).ok()?);
    let delivery = Delivery { subscription, subject, reply_to, block: b"", body: b"" };
    (block <= size).then_some((delivery, block, size))
}

fn number(word: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(word).ok().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

/// What stands before the body of a message that is published; a [`LINE_END`] stands behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    subject: &'a [u8],
    reply_to: &'a [u8],
    size: usize,
}

impl<'a> Head<'a> {
    /// That of a message with a body of this size, unless a subject of it would end a word or a line. There may be no `reply_to`.
    pub fn new(subject: &'a [u8], reply_to: &'a [u8], size: usize) -> Option<Self> {
        let is_word = |text: &[u8]| !text.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
        let is_good = !subject.is_empty() && is_word(subject) && is_word(reply_to);
        is_good.then_some(Self { subject, reply_to, size })
    }

    /// Writes it after what is there.
    pub fn write(&self, into: &mut Vec<u8>) {
        for word in [b"PUB", self.subject, self.reply_to].into_iter().filter(|word| !word.is_empty()) {
            into.extend_from_slice(word);
            into.push(b' ');
        }
        into.extend_from_slice(self.size.to_string().as_bytes());
        into.extend_from_slice(LINE_END);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn delivery<'a>(subject: &'a [u8], reply_to: &'a [u8], block: &'a [u8], body: &'a [u8]) -> Delivery<'a> {
        Delivery { subscription: 7, subject, reply_to, block, body }
    }

    #[test]
    fn messages() {
        let whole: &[(&[u8], Delivery<'_>)] = &[
            (b"MSG a.b 7 2\r\n{}\r\n", delivery(b"a.b", b"", b"", b"{}")),
            (b"MSG a 7 r.s 0\r\n\r\n", delivery(b"a", b"r.s", b"", b"")),
            (b"MSG\ta \t7  r\t2\r\n\r\n\r\n", delivery(b"a", b"r", b"", b"\r\n")),
            (b"HMSG a 7 3 5\r\nxyzab\r\n", delivery(b"a", b"", b"xyz", b"ab")),
            (b"HMSG a 7 r 3 3\r\nxyz\r\n", delivery(b"a", b"r", b"xyz", b"")),
            (b"MSG \xff 07 \xfe 1\r\n\0\r\n", delivery(b"\xff", b"\xfe", b"", b"\0")),
        ];
        for (bytes, expected) in whole {
            let text = bytes.escape_ascii();
            assert_eq!(first(bytes), First::Message(*expected, bytes.len()), "{text}");
            let more = [bytes, b"MSG".as_slice()].concat();
            assert_eq!(first(&more), First::Message(*expected, bytes.len()), "{text} and more");
            for length in 5..bytes.len() {
                let First::Part(least) = first(&bytes[..length]) else { panic!("{length} of {text}") };
                assert!(length < least && least <= bytes.len(), "{length} of {text}: {least}");
            }
        }
    }

    #[test]
    fn what_is_left_to_others() {
        let long = [b"MSG ".to_vec(), vec![b'a'; LONGEST_LINE]].concat();
        let others: [&[u8]; 16] = [
            b"",
            b"M",
            b"PING\r\n",
            b"msg a 7 0\r\n\r\n",
            b"MSGa 7 0\r\n\r\n",
            b"MSG a 7\r\n\r\n",
            b"MSG a 7 r s 0\r\n\r\n",
            b"MSG a x 0\r\n\r\n",
            b"MSG a +7 0\r\n\r\n",
            b"MSG a 7 -1\r\n\r\n",
            b"MSG a 7 18446744073709551615\r\n\r\n",
            b"MSG a 7 99999999999999999999\r\n\r\n",
            b"MSG a 7 1\r\nab\r\n",
            b"HMSG a 7 5\r\nxyzab\r\n",
            b"HMSG a 7 6 5\r\nxyzab\r\n",
            &long,
        ];
        for bytes in others {
            assert_eq!(first(bytes), First::Other, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn subjects_that_cannot_be_published_to() {
        for bad in ["", "a b", "a\r\nPUB b 0", "a\t", "\0", "\u{7f}"] {
            assert_eq!(Head::new(bad.as_bytes(), b"", 0), None, "{bad:?}");
        }
        assert_eq!(Head::new(b"a", b"r s", 0), None);
        assert!(Head::new("é.>".as_bytes(), b"", 0).is_some());
    }

    fn word() -> impl Strategy<Value = Vec<u8>> {
        vec(0x21_u8..0x7f, 1..20)
    }

    proptest! {
        /// What is published reads as a server would deliver it.
        #[test]
        fn publications(subject in word(), reply_to in prop_oneof![Just(vec![]), word()], body: Vec<u8>, after: Vec<u8>) {
            let mut head = vec![];
            Head::new(&subject, &reply_to, body.len()).unwrap().write(&mut head);
            // A delivery says which subscription it is for besides.
            let line = [b"MSG ".as_slice(), &subject, b" 7", &head[b"PUB ".len() + subject.len()..]].concat();
            let delivered = [&line, &*body, LINE_END, &after].concat();
            let expected = First::Message(delivery(&subject, &reply_to, b"", &body), delivered.len() - after.len());
            prop_assert_eq!(first(&delivered), expected);
        }

        /// Whatever comes, what is read lies within it, and what is missing beyond it.
        #[test]
        fn anything(start in prop_oneof![Just(b"MSG ".to_vec()), Just(b"HMSG ".to_vec()), Just(vec![])], rest in "[a7 \r\n]{0,40}") {
            let bytes = [start, rest.into_bytes()].concat();
            match first(&bytes) {
                First::Message(_, length) => prop_assert!(length <= bytes.len()),
                First::Part(least) => prop_assert!(least > bytes.len()),
                First::Other => {}
            }
        }
    }
}
