//! What a NATS server sends to its clients, and how they publish. Only messages are decoded; other lines are passed on.

use std::fmt;

use bytes::{Buf, BufMut, Bytes};
use memchr::memmem;

/// The longest line that begins a message: servers accept 4 KiB by default.
const LONGEST_LINE: usize = 64 << 10;

/// How much longer a message is than its `max_payload`: its line, and headers that a server may add.
const MARGIN: usize = 1 << 20;

/// The most that `max_payload` can be.
const MOST_PAYLOAD: usize = 64 << 20;

/// The longest of the other lines, which are passed on in parts.
const LONGEST_OTHER: usize = 1 << 20;

/// How much to allocate in advance for an incomplete message: its line may claim any length.
const MOST_AHEAD: usize = 1 << 20;

/// The end of a line, and of a body.
pub const LINE_END: &[u8] = b"\r\n";

/// A message that a server delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The number of the subscription.
    pub subscription: u64,
    pub subject: &'a [u8],
    /// The reply subject; empty if no answer is wanted.
    pub reply_to: &'a [u8],
    /// The header block; empty if there is none.
    pub block: &'a [u8],
    pub body: &'a [u8],
}

/// The first item in what a server has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First<'a> {
    /// A message, and its total length.
    Message(Delivery<'a>, usize),
    /// Another line, and its length including its end.
    Line(usize),
    /// The beginning of either, and its total length if known.
    Part(Option<usize>),
}

/// Finds the first item.
pub fn first(bytes: &[u8]) -> First<'_> {
    let Some(end) = memmem::find(&bytes[..bytes.len().min(LONGEST_LINE)], LINE_END) else {
        return if bytes.len() < LONGEST_LINE { First::Part(None) } else { First::Line(LONGEST_LINE) };
    };
    let start = end + LINE_END.len();
    let Some((delivery, block, size)) = read(&bytes[..end]) else { return First::Line(start) };
    let Some(end) = start.checked_add(size).and_then(|end| end.checked_add(LINE_END.len())) else {
        return First::Line(start);
    };
    match bytes.get(start..start + size) {
        Some(content) if end <= bytes.len() => {
            let (block, body) = content.split_at(block);
            First::Message(Delivery { block, body, ..delivery }, end)
        }
        _ => First::Part(Some(end)),
    }
}

/// Not NATS: a message or line is longer than a server may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless;

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message or a line is longer than any that a NATS server sends")
    }
}

/// Something whole that a server has sent.
enum Item<'a> {
    /// It lies in the input; a message, unless it is another line.
    Here(Option<Delivery<'a>>, &'a [u8]),
    /// It came in parts.
    Gathered(Bytes),
}

/// A message, or another line or a part of one, as bytes that may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Where the message has its parts, if it is one.
    pub message: Option<Message>,
    /// All its bytes.
    pub bytes: Bytes,
}

/// A [`Delivery`] that may be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The number of the subscription.
    pub subscription: u64,
    pub subject: Bytes,
    /// The reply subject; empty if no answer is wanted.
    pub reply_to: Bytes,
    /// The header block; empty if there is none.
    pub block: Bytes,
    pub body: Bytes,
}

/// Splits what a server sends into messages and lines, wherever it was cut.
#[derive(Debug)]
pub struct Inflow {
    /// How much was passed on of an incomplete line.
    unended: usize,
    /// The beginning of an item.
    begun: Vec<u8>,
    /// The total length of that item, if known.
    whole: Option<usize>,
    /// The longest message.
    longest: usize,
}

impl Default for Inflow {
    fn default() -> Self {
        Self { unended: 0, begun: vec![], whole: None, longest: MOST_PAYLOAD + MARGIN }
    }
}

impl Inflow {
    /// Refuses messages that are much larger than this `max_payload`.
    pub fn set_max_payload(&mut self, bytes: usize) {
        self.longest = bytes.min(MOST_PAYLOAD) + MARGIN;
    }

    /// Takes the first item of the input, which it shortens; `None` once all of it is taken.
    ///
    /// # Errors
    /// If an item is longer than any server sends; nothing more may be read then.
    pub fn take(&mut self, sent: &mut Bytes) -> Result<Option<Whole>, Endless> {
        let mut rest = &sent[..];
        let (whole, taken) = match self.step(&mut rest)? {
            None => (None, sent.len()),
            Some(Item::Here(delivery, whole)) => {
                let message = delivery.map(|delivery| kept(&delivery, sent));
                (Some(Whole { message, bytes: sent.slice_ref(whole) }), sent.len() - rest.len())
            }
            Some(Item::Gathered(bytes)) => {
                let message = delivery(&bytes).map(|delivery| kept(&delivery, &bytes));
                (Some(Whole { message, bytes }), sent.len() - rest.len())
            }
        };
        sent.advance(taken);
        Ok(whole)
    }

    /// The first item, if there is one in what came before and the input, which is shortened by what is taken.
    #[inline]
    fn step<'a>(&mut self, sent: &mut &'a [u8]) -> Result<Option<Item<'a>>, Endless> {
        while !sent.is_empty() {
            if !self.begun.is_empty() {
                *sent = self.gather(sent);
                let is_line = self.begun.ends_with(LINE_END) || self.begun.len() == LONGEST_LINE;
                if self.whole.is_none() && !is_line {
                    return Ok(None);
                }
                if let First::Part(whole) = first(&self.begun) {
                    self.begin(whole)?;
                    continue;
                }
                let whole = Bytes::from(std::mem::take(&mut self.begun));
                if delivery(&whole).is_none() {
                    self.pass(&whole)?;
                }
                return Ok(Some(Item::Gathered(whole)));
            }
            match first(sent) {
                First::Part(whole) => {
                    self.begin(whole)?;
                    self.begun.extend_from_slice(sent);
                    *sent = &[];
                }
                First::Message(delivery, length) => {
                    let (whole, rest) = sent.split_at(length);
                    *sent = rest;
                    if length > self.longest {
                        return Err(Endless);
                    }
                    return Ok(Some(Item::Here(Some(delivery), whole)));
                }
                First::Line(length) => {
                    let (line, rest) = sent.split_at(length);
                    *sent = rest;
                    self.pass(line)?;
                    return Ok(Some(Item::Here(None, line)));
                }
            }
        }
        Ok(None)
    }

    /// Passes on a line, or a part of one.
    fn pass(&mut self, line: &[u8]) -> Result<(), Endless> {
        self.unended = if line.ends_with(LINE_END) { 0 } else { self.unended + line.len() };
        if self.unended > LONGEST_OTHER { Err(Endless) } else { Ok(()) }
    }

    fn begin(&mut self, whole: Option<usize>) -> Result<(), Endless> {
        if whole.is_some_and(|whole| whole > self.longest) {
            return Err(Endless);
        }
        self.whole = whole;
        let missing = whole.map_or(0, |whole| whole - self.begun.len());
        self.begun.reserve_exact(missing.min(MOST_AHEAD));
        Ok(())
    }

    /// Completes the begun item from the input. Returns what is left.
    fn gather<'a>(&mut self, sent: &'a [u8]) -> &'a [u8] {
        let missing = match self.whole {
            Some(whole) => whole - self.begun.len(),
            None => self.line_end(sent).min(LONGEST_LINE - self.begun.len()),
        };
        let (more, rest) = sent.split_at(missing.min(sent.len()));
        self.begun.extend_from_slice(more);
        rest
    }

    /// Where the begun line ends; the end of the input if it does not.
    fn line_end(&self, sent: &[u8]) -> usize {
        let is_end =
            |at: &usize| at.checked_sub(1).map_or_else(|| self.begun.last(), |before| sent.get(before)) == Some(&b'\r');
        memchr::memchr_iter(b'\n', sent).find(is_end).map_or(sent.len(), |at| at + 1)
    }
}

/// The message, if this is one.
fn delivery(whole: &[u8]) -> Option<Delivery<'_>> {
    if let First::Message(delivery, _) = first(whole) { Some(delivery) } else { None }
}

fn kept(delivery: &Delivery<'_>, whole: &Bytes) -> Message {
    let [subject, reply_to, block, body] =
        [delivery.subject, delivery.reply_to, delivery.block, delivery.body].map(|part| whole.slice_ref(part));
    Message { subscription: delivery.subscription, subject, reply_to, block, body }
}

/// Reads the line of a message: its fields, and the sizes of the header block and the content.
fn read(line: &[u8]) -> Option<(Delivery<'_>, usize, usize)> {
    let (has_block, line) = match line {
        [b'M', b'S', b'G', b' ' | b'\t', line @ ..] => (false, line),
        [b'H', b'M', b'S', b'G', b' ' | b'\t', line @ ..] => (true, line),
        _ => return None,
    };
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

/// What precedes the header block and the body of a published message; a [`LINE_END`] follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    subject: &'a [u8],
    reply_to: &'a [u8],
    block: usize,
    size: usize,
}

impl<'a> Head<'a> {
    /// The head of a message with a body of this size; `None` if a subject would end a word or a line. `reply_to` may
    /// be empty.
    pub fn new(subject: &'a [u8], reply_to: &'a [u8], size: usize) -> Option<Self> {
        let is_good = is_word(subject) && (reply_to.is_empty() || is_word(reply_to));
        is_good.then_some(Self { subject, reply_to, block: 0, size })
    }

    /// The same with a header block of this size before the body.
    #[must_use]
    pub fn with_block(self, size: usize) -> Self {
        Self { block: size, size: self.size + size, ..self }
    }

    /// Appends it.
    pub fn write(&self, into: &mut impl BufMut) {
        let command = if self.block > 0 { &b"HPUB"[..] } else { b"PUB" };
        for word in [command, self.subject, self.reply_to].into_iter().filter(|word| !word.is_empty()) {
            into.put_slice(word);
            into.put_u8(b' ');
        }
        if self.block > 0 {
            put_number(into, self.block as u64);
            into.put_u8(b' ');
        }
        put_number(into, self.size as u64);
        into.put_slice(LINE_END);
    }
}

/// Whether it may stand in a line: neither a space nor the end of the line is in it.
pub(super) fn is_word(text: &[u8]) -> bool {
    !text.is_empty() && !text.iter().any(|byte| *byte <= b' ' || *byte == 0x7f)
}

/// Appends a number in decimal digits.
pub(super) fn put_number(into: &mut impl BufMut, number: u64) {
    let mut digits = [0; 20];
    let (mut at, mut left) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b"0123456789"[usize::try_from(left % 10).unwrap_or_default()];
        left /= 10;
        if left == 0 {
            return into.put_slice(&digits[at..]);
        }
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
            for length in 1..bytes.len() {
                let First::Part(whole) = first(&bytes[..length]) else { panic!("{length} of {text}") };
                assert_eq!(whole.unwrap_or(bytes.len()), bytes.len(), "{length} of {text}");
            }
        }
    }

    #[test]
    fn what_is_left_to_others() {
        let others: [&[u8]; 12] = [
            b"PING\r\n",
            b"msg a 7 0\r\n",
            b"MSGa 7 0\r\n",
            b"MSG a 7\r\n",
            b"MSG a 7 r s 0\r\n",
            b"MSG a x 0\r\n",
            b"MSG a +7 0\r\n",
            b"MSG a 7 -1\r\n",
            b"MSG a 7 18446744073709551615\r\n",
            b"MSG a 7 99999999999999999999\r\n",
            b"HMSG a 7 5\r\n",
            b"HMSG a 7 6 5\r\n",
        ];
        for bytes in others {
            assert_eq!(first(bytes), First::Line(bytes.len()), "{}", bytes.escape_ascii());
        }
        assert_eq!(first(b""), First::Part(None));
        assert_eq!(first(&vec![b'\n'; LONGEST_LINE - 1]), First::Part(None));
        assert_eq!(first(&vec![b'\n'; 2 * LONGEST_LINE]), First::Line(LONGEST_LINE));
    }

    /// Takes all that came in pieces.
    fn take_all(inflow: &mut Inflow, pieces: &[&[u8]]) -> Result<Vec<Whole>, Endless> {
        let mut taken = vec![];
        for piece in pieces {
            let mut sent = Bytes::copy_from_slice(piece);
            while let Some(whole) = inflow.take(&mut sent)? {
                taken.push(whole);
            }
        }
        Ok(taken)
    }

    /// What was passed on: bodies of messages, and lines.
    fn fed(pieces: &[&[u8]]) -> Vec<(bool, Vec<u8>)> {
        let taken = take_all(&mut Inflow::default(), pieces).unwrap().into_iter();
        taken
            .map(|one| (one.message.is_some(), one.message.map_or(one.bytes, |message| message.body).to_vec()))
            .collect()
    }

    #[test]
    fn what_no_server_sends_is_not_gathered() {
        let feed = |pieces: &[&[u8]]| take_all(&mut Inflow::default(), pieces).map(drop);
        let message = |size: usize| format!("MSG a 7 {size}\r\n");
        assert_eq!(feed(&[message(64 << 20).as_bytes()]), Ok(()));
        assert_eq!(feed(&[message(1 << 27).as_bytes()]), Err(Endless));
        assert_eq!(feed(&[b"MSG a 7 ", b"999999999999999\r\n"]), Err(Endless));
        let part = vec![b'x'; LONGEST_LINE];
        assert_eq!(feed(&[&part[..]; 16]), Ok(()));
        assert_eq!(feed(&[&part[..]; 17]), Err(Endless));
    }

    #[test]
    fn a_line_that_never_ends_is_handed_over_in_parts() {
        let byte: &[u8] = b"\n";
        let taken = fed(&vec![byte; 2 * LONGEST_LINE + 1]);
        assert_eq!(taken, vec![(false, vec![b'\n'; LONGEST_LINE]); 2]);
    }

    #[test]
    fn a_size_that_is_only_announced_takes_no_memory() {
        let mut inflow = Inflow::default();
        assert_eq!(take_all(&mut inflow, &[b"MSG a 7 60000000\r\nabc"]), Ok(vec![]));
        assert!(inflow.begun.capacity() <= 2 * MOST_AHEAD);
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
        /// A published message reads as a server would deliver it.
        #[test]
        fn publications(subject in word(), reply_to in prop_oneof![Just(vec![]), word()], body: Vec<u8>, after: Vec<u8>) {
            let mut head = vec![];
            Head::new(&subject, &reply_to, body.len()).unwrap().write(&mut head);
            // A delivery also has the number of its subscription.
            let line = [b"MSG ".as_slice(), &subject, b" 7", &head[b"PUB ".len() + subject.len()..]].concat();
            let delivered = [&line, &*body, LINE_END, &after].concat();
            let expected = First::Message(delivery(&subject, &reply_to, b"", &body), delivered.len() - after.len());
            prop_assert_eq!(first(&delivered), expected);
        }

        /// Any input: what is read lies within it, and what is missing beyond it.
        #[test]
        fn anything(start in prop_oneof![Just(b"MSG ".to_vec()), Just(b"HMSG ".to_vec()), Just(vec![])], rest in "[a7 \r\n]{0,40}") {
            let bytes = [start, rest.into_bytes()].concat();
            match first(&bytes) {
                First::Message(_, length) | First::Line(length) => prop_assert!(0 < length && length <= bytes.len()),
                First::Part(whole) => prop_assert!(whole.is_none_or(|whole| whole > bytes.len())),
            }
        }

        /// Where the input is cut makes no difference.
        #[test]
        fn cuts(parts in vec(prop_oneof![
            Just(b"PING\r\n".to_vec()),
            Just(b"a\nb\rc\n\r\n".to_vec()),
            (word(), vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'M')], 0..9)).prop_map(|(subject, body)| {
                [b"MSG ".as_slice(), &subject, format!(" 7 {}\r\n", body.len()).as_bytes(), &body, LINE_END].concat()
            }),
        ], 0..6), places: Vec<proptest::sample::Index>) {
            let stream = parts.concat();
            let mut places: Vec<usize> = places.iter().map(|place| place.index(stream.len() + 1)).collect();
            places.extend([0, stream.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
            prop_assert_eq!(fed(&pieces), fed(&[&stream]));
            prop_assert_eq!(fed(&pieces).len(), parts.len());
        }
    }
}
