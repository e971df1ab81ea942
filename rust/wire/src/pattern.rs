//! Patterns of names in policies.

/// A pattern: `*` matches any text, `?` one character, and every other character itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Box<[u8]>);

impl Pattern {
    /// A pattern from its text.
    pub fn new(text: &[u8]) -> Self {
        Self(text.into())
    }

    /// Whether it matches the whole text. A byte that is not UTF-8 counts as one character.
    pub fn matches(&self, text: &[u8]) -> bool {
        let pattern = &self.0;
        let (mut at, mut place) = (0, 0);
        // Where to try again if the text after the last `*` does not match: the `*` then takes one character more.
        let mut again: Option<(usize, usize)> = None;
        loop {
            match pattern.get(place) {
                Some(b'*') => {
                    place += 1;
                    again = Some((place, at));
                    continue;
                }
                Some(b'?') if at < text.len() => {
                    at += character(&text[at..]);
                    place += 1;
                    continue;
                }
                Some(byte) if text.get(at) == Some(byte) => {
                    at += 1;
                    place += 1;
                    continue;
                }
                None if at == text.len() => return true,
                Some(_) | None => {}
            }
            match again {
                Some((rest, taken)) if taken < text.len() => {
                    let taken = taken + character(&text[taken..]);
                    (place, at, again) = (rest, taken, Some((rest, taken)));
                }
                Some(_) | None => return false,
            }
        }
    }
}

/// The length of the first character.
fn character(text: &[u8]) -> usize {
    let length = match text[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if text.get(..length).is_some_and(|start| std::str::from_utf8(start).is_ok()) { length } else { 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns() {
        let rows: &[(&str, &[u8], bool)] = &[
            ("", b"", true),
            ("", b"a", false),
            ("a", b"a", true),
            ("a", b"ab", false),
            ("*", b"", true),
            ("*", b"runs.1", true),
            ("runs.*", b"runs.", true),
            ("runs.*", b"runs", false),
            ("*.end", b"a.end.end", true),
            ("a*b*c", b"aXbYbZc", true),
            ("a*b*c", b"aXcYb", false),
            ("?", "ä".as_bytes(), true),
            ("??", "ä".as_bytes(), false),
            ("?", b"\xff", true),
            ("?", b"", false),
            ("*?", b"", false),
            ("[ab]", b"a", false),
            ("[ab]", b"[ab]", true),
            ("?x", "\u{20ac}x".as_bytes(), true),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(Pattern::new(pattern.as_bytes()).matches(text), *expected, "{pattern} {text:?}");
        }
    }

    #[test]
    fn a_long_text_takes_no_long_time() {
        let pattern = Pattern::new(b"*a*a*a*a*a*a*a*a*a*b");
        assert!(!pattern.matches(&vec![b'a'; 1 << 16]));
    }

    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|at| naive(rest, &text[at..])),
            ['?', rest @ ..] => !text.is_empty() && naive(rest, &text[1..]),
            [one, rest @ ..] => text.first() == Some(one) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_is_what_it_says(pattern in "[ab*?ä]{0,8}", text in "[abä]{0,10}") {
            let (chars, said): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(Pattern::new(pattern.as_bytes()).matches(text.as_bytes()), naive(&chars, &said));
        }
    }
}
