//! Questions that a machine asks its user; each is answered, or given up after a time.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::Nanos;

/// The number of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A machine's pending questions, each with what depends on it. All have the same time limit.
#[derive(Debug)]
pub struct Questions<T> {
    open: HashMap<Token, T>,
    /// In the order in which they expire; answered ones are skipped.
    due: VecDeque<(Nanos, Token)>,
    time: Duration,
    most: usize,
    next: u64,
}

impl<T> Questions<T> {
    /// At most `most` pending questions, each for this time.
    pub fn new(most: usize, time: Duration) -> Self {
        Self { open: HashMap::new(), due: VecDeque::new(), time, most, next: 0 }
    }

    /// Asks a question.
    ///
    /// # Errors
    /// If too many are pending, with `what`.
    pub fn ask(&mut self, now: Nanos, what: T) -> Result<Token, T> {
        if self.open.len() >= self.most {
            return Err(what);
        }
        let token = Token(self.next);
        self.next += 1;
        self.open.insert(token, what);
        self.due.push_back((now + self.time, token));
        Ok(token)
    }

    /// Takes what depends on an answered question; `None` if it was given up, or never asked.
    pub fn answered(&mut self, token: Token) -> Option<T> {
        let what = self.open.remove(&token);
        self.forget_answered();
        what
    }

    /// Gives up the first expired question. Returns it with what depends on it.
    pub fn expired(&mut self, now: Nanos) -> Option<(Token, T)> {
        let (due, token) = *self.due.front()?;
        if due > now {
            return None;
        }
        let what = self.open.remove(&token);
        self.forget_answered();
        what.map(|what| (token, what))
    }

    /// Gives up a question early; `None` if none is pending.
    pub fn give_up(&mut self) -> Option<T> {
        let (_, token) = *self.due.front()?;
        self.answered(token)
    }

    /// How many are pending.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is pending.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// When the next one expires.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.due.front().map(|(due, _)| *due)
    }

    fn forget_answered(&mut self) {
        while self.due.front().is_some_and(|(_, token)| !self.open.contains_key(token)) {
            self.due.pop_front();
        }
        // Out-of-order answers leave gaps, which must not accumulate.
        if self.due.len() > 2 * self.open.len() + 16 {
            self.due.retain(|(_, token)| self.open.contains_key(token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_is_answered_once_or_given_up_in_its_time() {
        let mut questions = Questions::new(3, SECOND);
        let [a, b, c] = ["a", "b", "c"].map(|what| questions.ask(Nanos(0), what).expect("room"));
        assert_eq!(questions.ask(Nanos(0), "d"), Err("d"));
        assert_eq!((questions.answered(b), questions.answered(b)), (Some("b"), None));
        let later = Nanos(0) + SECOND / 2;
        let d = questions.ask(later, "d").expect("room");
        assert_eq!(questions.answered(a), Some("a"));
        assert_eq!(questions.poll_timeout(), Some(Nanos(0) + SECOND));
        assert_eq!(questions.expired(later), None);
        assert_eq!(questions.expired(Nanos(0) + SECOND), Some((c, "c")));
        assert_eq!((questions.expired(Nanos(0) + SECOND), questions.answered(c)), (None, None));
        assert_eq!(questions.poll_timeout(), Some(later + SECOND));
        assert_eq!(questions.answered(d), Some("d"));
        assert_eq!(questions.poll_timeout(), None);
    }

    #[test]
    fn answers_in_any_order_leave_nothing_behind() {
        let mut questions = Questions::new(10_000, SECOND);
        let first = questions.ask(Nanos(0), 0).expect("room");
        for number in 1..100_000 {
            let token = questions.ask(Nanos(0), number).expect("room");
            assert_eq!(questions.answered(token), Some(number));
        }
        assert!(questions.due.len() < 100, "{} are kept", questions.due.len());
        assert_eq!(questions.answered(first), Some(0));
        assert!(questions.due.is_empty());
    }
}
