//! What a machine cannot decide by itself: a question that somebody answers, or that is given up.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::Nanos;

/// The number of a question, for the answer to name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The questions of one machine that have no answer yet, each with what hangs on it. All have the same time.
#[derive(Debug)]
pub struct Questions<T> {
    open: HashMap<Token, T>,
    /// In the order in which they end; those with an answer are passed over.
    due: VecDeque<(Nanos, Token)>,
    time: Duration,
    most: usize,
    next: u64,
}

impl<T> Questions<T> {
    /// None yet: of at most so many at a time, each for so long.
    pub fn new(most: usize, time: Duration) -> Self {
        Self { open: HashMap::new(), due: VecDeque::new(), time, most, next: 0 }
    }

    /// Asks; gives what hangs on it back where too many are open already.
    ///
    /// # Errors
    /// With `what`, then.
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

    /// What hangs on a question that has its answer; `None` where it was given up, or never asked.
    pub fn answered(&mut self, token: Token) -> Option<T> {
        let what = self.open.remove(&token);
        self.forget_answered();
        what
    }

    /// The first question whose time is up, and what hangs on it; it is given up.
    pub fn expired(&mut self, now: Nanos) -> Option<(Token, T)> {
        let (due, token) = *self.due.front()?;
        if due > now {
            return None;
        }
        let what = self.open.remove(&token);
        self.forget_answered();
        what.map(|what| (token, what))
    }

    /// One that is open, and is given up before its time; `None` where there is none.
    pub fn give_up(&mut self) -> Option<T> {
        let (_, token) = *self.due.front()?;
        self.answered(token)
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// When the next one is given up.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.due.front().map(|(due, _)| *due)
    }

    fn forget_answered(&mut self) {
        while self.due.front().is_some_and(|(_, token)| !self.open.contains_key(token)) {
            self.due.pop_front();
        }
        // Answers in another order leave gaps, which are not to add up.
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
