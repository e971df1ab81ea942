//! One reply after the other: REP, of RFC 28.

use trunkline_wire::Frames;

use super::ConnectionId;

/// Gives one request at a time, and sends the reply where it came from.
#[derive(Debug, Default)]
pub struct Rep {
    /// Where the reply goes: a connection, and the envelope with its delimiter.
    open: Option<(Option<ConnectionId>, Frames)>,
    strays: u64,
}

impl Rep {
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a request is taken now: only after the reply to the last.
    pub fn is_readable(&self) -> bool {
        self.open.is_none()
    }

    /// Takes a message; gives the request without its envelope. `None` if it is no request, or comes before the last
    /// was answered: it is discarded, and counted.
    pub fn receive(&mut self, connection: ConnectionId, mut frames: Frames) -> Option<Frames> {
        let delimiter = frames.iter().position(bytes::Bytes::is_empty);
        let body = delimiter.map(|at| at + 1).filter(|at| *at < frames.len() && self.open.is_none());
        let Some(body) = body else {
            self.strays += 1;
            return None;
        };
        let request = frames.drain(body..).collect();
        self.open = Some((Some(connection), frames));
        Some(request)
    }

    /// Gives the reply to the open request as it is to be sent, and its connection. `None` when no request is open, or
    /// its connection is gone.
    pub fn reply(&mut self, frames: Frames) -> Option<(ConnectionId, Frames)> {
        let (connection, mut envelope) = self.open.take()?;
        envelope.extend(frames);
        Some((connection?, envelope))
    }

    /// A connection is gone, and with it the request that was open on it.
    pub fn disconnected(&mut self, connection: ConnectionId) {
        if let Some((open, _)) = &mut self.open
            && *open == Some(connection)
        {
            *open = None;
        }
    }

    /// Messages that were no requests.
    pub fn strays(&self) -> u64 {
        self.strays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const ONE: ConnectionId = ConnectionId(1);

    fn frames(frames: &[&'static [u8]]) -> Frames {
        frames.iter().map(|frame| Bytes::from_static(frame)).collect()
    }

    #[test]
    fn replies_go_back_in_their_envelopes() {
        let mut rep = Rep::new();
        assert_eq!(rep.reply(frames(&[b"early"])), None);
        let request = frames(&[b"hop", b"hop", b"", b"what", b"", b"now"]);
        assert_eq!(rep.receive(ONE, request), Some(frames(&[b"what", b"", b"now"])));
        assert!(!rep.is_readable());
        assert_eq!(rep.receive(ConnectionId(2), frames(&[b"", b"me too"])), None);
        assert_eq!(rep.reply(frames(&[b"that"])), Some((ONE, frames(&[b"hop", b"hop", b"", b"that"]))));
        assert!(rep.is_readable());
        assert_eq!((rep.receive(ONE, frames(&[b"no delimiter"])), rep.receive(ONE, frames(&[b""]))), (None, None));
        assert_eq!(rep.strays(), 3);
    }

    #[test]
    fn nobody_gets_the_reply_of_who_is_gone() {
        let mut rep = Rep::new();
        assert_eq!(rep.receive(ONE, frames(&[b"", b"what"])), Some(frames(&[b"what"])));
        rep.disconnected(ConnectionId(2));
        rep.disconnected(ONE);
        assert!(!rep.is_readable());
        assert_eq!(rep.reply(frames(&[b"that"])), None);
        assert!(rep.is_readable());
    }
}
