//! Types of sockets, and their compatibility: RFC 37, "The Socket-Type Property".

/// The type of a socket: those of RFC 28 and RFC 30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketType {
    Dealer,
    Pull,
    Push,
    Rep,
    Req,
    Router,
}

impl SocketType {
    pub const ALL: [Self; 6] = [Self::Dealer, Self::Pull, Self::Push, Self::Rep, Self::Req, Self::Router];

    /// The value of the property Socket-Type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dealer => "DEALER",
            Self::Pull => "PULL",
            Self::Push => "PUSH",
            Self::Rep => "REP",
            Self::Req => "REQ",
            Self::Router => "ROUTER",
        }
    }

    /// The type of this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|socket| socket.name().as_bytes() == name)
    }

    /// Whether the two may be connected.
    pub const fn suits(self, other: Self) -> bool {
        match self {
            Self::Dealer => matches!(other, Self::Dealer | Self::Rep | Self::Router),
            Self::Pull => matches!(other, Self::Push),
            Self::Push => matches!(other, Self::Pull),
            Self::Rep => matches!(other, Self::Dealer | Self::Req),
            Self::Req => matches!(other, Self::Rep | Self::Router),
            Self::Router => matches!(other, Self::Dealer | Self::Req | Self::Router),
        }
    }

    /// Whether a socket of this type may have a routing id of its own: RFC 37, "The Identity Property".
    pub const fn has_identity(self) -> bool {
        matches!(self, Self::Dealer | Self::Req | Self::Router)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_suits_one_suits_the_other() {
        let pairs = SocketType::ALL.into_iter().flat_map(|one| SocketType::ALL.map(|other| (one, other)));
        assert!(pairs.clone().all(|(one, other)| one.suits(other) == other.suits(one)));
        assert_eq!(pairs.filter(|(one, other)| one.suits(*other)).count(), 12);
    }

    #[test]
    fn names_are_read_back() {
        assert!(SocketType::ALL.into_iter().all(|socket| SocketType::named(socket.name().as_bytes()) == Some(socket)));
        assert_eq!(SocketType::named(b"dealer"), None);
        assert_eq!(SocketType::named(b"PUB"), None);
    }
}
