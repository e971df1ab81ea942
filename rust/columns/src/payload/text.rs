//! The text of a layout, read token by token, with the place of what is wrong in it.

use std::{error::Error, fmt};

/// Why the text of a layout is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutError {
    /// From 1 on.
    pub line: usize,
    /// In characters, from 1 on.
    pub column: usize,
    /// What was expected there instead of what is there.
    pub reason: String,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

impl Error for LayoutError {}

/// How much of what is there an error quotes.
const QUOTED: usize = 20;

/// A position in a text.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) const fn position(&self) -> usize {
        self.at
    }

    /// What is left of the text.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips to the next token, and gives its first character.
    pub(super) fn next(&mut self) -> Option<char> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next()
    }

    /// Reads this token if it is the next.
    pub(super) fn take(&mut self, token: &str) -> bool {
        self.next();
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    /// Reads this token, the one that must follow.
    pub(super) fn need(&mut self, token: &str) -> Result<(), LayoutError> {
        if self.take(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }

    /// The word that is next, of letters, digits and `_`; empty if there is none.
    pub(super) fn word(&mut self) -> &'a str {
        self.next();
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..length]
    }

    /// Reads a name: a word, or anything between backticks, in which two stand for one.
    pub(super) fn name(&mut self, expected: &str) -> Result<String, LayoutError> {
        let word = self.word();
        if !word.is_empty() {
            self.at += word.len();
            return Ok(word.to_owned());
        }
        let start = self.clone();
        if !self.take("`") {
            return Err(self.expected(expected));
        }
        let mut name = String::new();
        loop {
            let Some(end) = self.rest().find('`') else { return Err(start.wrong("a backtick is not closed")) };
            name.push_str(&self.rest()[..end]);
            self.at += end + 1;
            if !self.rest().starts_with('`') {
                break;
            }
            name.push('`');
            self.at += 1;
        }
        if name.is_empty() { Err(start.expected(expected)) } else { Ok(name) }
    }

    /// An error here: something else was expected than what is there.
    pub(super) fn expected(&self, expected: &str) -> LayoutError {
        let mut here = self.clone();
        let found = match here.next() {
            None => "the end".to_owned(),
            Some(first) => {
                let word = here.word();
                let word = if word.is_empty() { first.to_string() } else { word.chars().take(QUOTED).collect() };
                format!("'{word}'")
            }
        };
        here.wrong(&format!("expected {expected}, not {found}"))
    }

    /// An error here.
    pub(super) fn wrong(&self, reason: &str) -> LayoutError {
        let before = &self.text[..self.at];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        LayoutError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            reason: reason.to_owned(),
        }
    }

    /// The same at an earlier position.
    pub(super) fn wrong_at(&self, at: usize, reason: &str) -> LayoutError {
        Self { text: self.text, at }.wrong(reason)
    }
}

/// A name as a layout takes it.
pub(super) fn quoted(name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_') && name != "pad";
    if is_plain { name.to_owned() } else { format!("`{}`", name.replace('`', "``")) }
}
