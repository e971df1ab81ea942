//! Which clients may publish and subscribe to which topics.

use crate::Pattern;

/// The clients that an entry applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// All clients, also those without a name.
    All,
    /// The client with exactly this name.
    Named(Box<[u8]>),
    /// Clients whose name matches.
    Like(Pattern),
}

/// The rights of some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub clients: Clients,
    /// The topics that they may put messages to.
    pub publish: Vec<Pattern>,
    /// The topics that they may subscribe to.
    pub subscribe: Vec<Pattern>,
}

/// The rights of all clients: the first entry that applies to a client decides; without one it may do nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy(pub Vec<Entry>);

impl Policy {
    /// Whether a client with this proved name may put messages to a topic.
    pub fn may_publish(&self, user: Option<&[u8]>, topic: &[u8]) -> bool {
        self.entry(user).is_some_and(|entry| entry.publish.iter().any(|pattern| pattern.matches(topic)))
    }

    /// Whether a client may subscribe to a topic.
    pub fn may_subscribe(&self, user: Option<&[u8]>, topic: &[u8]) -> bool {
        self.entry(user).is_some_and(|entry| entry.subscribe.iter().any(|pattern| pattern.matches(topic)))
    }

    fn entry(&self, user: Option<&[u8]>) -> Option<&Entry> {
        self.0.iter().find(|entry| match (&entry.clients, user) {
            (Clients::All, _) => true,
            (Clients::Named(name), Some(user)) => **name == *user,
            (Clients::Like(pattern), Some(user)) => pattern.matches(user),
            (Clients::Named(_) | Clients::Like(_), None) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_decides() {
        let like = |pattern: &str| Clients::Like(Pattern::new(pattern.as_bytes()));
        let all = || vec![Pattern::new(b"*")];
        let policy = Policy(vec![
            Entry { clients: Clients::Named(b"daq*"[..].into()), publish: vec![], subscribe: vec![] },
            Entry { clients: like("daq*"), publish: all(), subscribe: vec![] },
            Entry { clients: Clients::All, publish: vec![], subscribe: all() },
        ]);
        assert!(policy.may_publish(Some(b"daq1"), b"t"));
        assert!(!policy.may_subscribe(Some(b"daq1"), b"t"));
        assert!(!policy.may_publish(Some(b"daq*"), b"t"));
        assert!(policy.may_subscribe(None, b"t") && !policy.may_publish(None, b"t"));
        assert!(!Policy::default().may_subscribe(Some(b"daq1"), b"t"));
    }
}
