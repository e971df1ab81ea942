//! The NATS subjects of CDT messages.

use super::Kind;

/// Whether a text is one token of a subject: not empty, without dots, wildcards, white space and control characters
/// (CDT-11).
pub fn is_token(text: &str) -> bool {
    !text.is_empty()
        && !text.chars().any(|char| matches!(char, '.' | '*' | '>') || char.is_whitespace() || char.is_control())
}

/// The parts common to the subjects of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    /// The prefix of all, `kaa.v1`.
    pub prefix: String,
    /// The protocol's token in those of requests and answers, `cmx2cdp`.
    pub protocol: String,
}

impl Default for Subjects {
    fn default() -> Self {
        Self { prefix: "kaa.v1".to_owned(), protocol: "cmx2cdp".to_owned() }
    }
}

impl Subjects {
    /// A message to any replica of a service (CDT-01).
    pub fn service(&self, instance: &str, kind: Kind) -> String {
        format!("{}.service.{instance}.{}.{}", self.prefix, self.protocol, kind.name())
    }

    /// A message to one replica (CDT-02, CDT-06).
    pub fn replica(&self, replica: &str, kind: Kind) -> String {
        format!("{}.replica.{replica}.{}.{}", self.prefix, self.protocol, kind.name())
    }

    /// An event (CDT-07).
    pub fn event(&self, originator: &str, kind: Kind) -> String {
        format!("{}.events.{originator}.endpoint.config.{}", self.prefix, kind.name())
    }

    /// All events of configurations, of any originator (CDT-09).
    pub fn events(&self) -> String {
        format!("{}.events.*.endpoint.config.*", self.prefix)
    }
}

/// What a subject says about its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The kind of the message, if it is one of CDT.
    pub kind: Option<Kind>,
    /// The service it is for.
    pub instance: Option<&'a str>,
    /// The replica it is for.
    pub replica: Option<&'a str>,
    /// The originator of an event.
    pub originator: Option<&'a str>,
}

/// Parses a subject, with any prefix and protocol token.
pub fn parse(subject: &str) -> Parsed<'_> {
    let mut tokens = subject.rsplit('.');
    let kind = tokens.next().and_then(Kind::named);
    let [third, second, first] = [tokens.next(), tokens.next(), tokens.next()];
    match (kind, first, second, third) {
        (Some(kind), Some(originator), Some("endpoint"), Some("config"))
            if kind.is_event() && tokens.next() == Some("events") =>
        {
            Parsed { kind: Some(kind), originator: Some(originator), ..Parsed::default() }
        }
        (Some(kind), Some("service"), Some(instance), Some(_)) if !kind.is_event() => {
            Parsed { kind: Some(kind), instance: Some(instance), ..Parsed::default() }
        }
        (Some(kind), Some("replica"), Some(replica), Some(_)) if !kind.is_event() => {
            Parsed { kind: Some(kind), replica: Some(replica), ..Parsed::default() }
        }
        _ => Parsed::default(),
    }
}

/// The reply subject of an answer of another type than expected: the given subject with its last token replaced
/// (CDT-04).
pub fn answered_by(reply_to: &str, kind: Kind) -> String {
    match reply_to.rsplit_once('.') {
        Some((before, last)) if last != kind.name() && Kind::named(last).is_some() => {
            format!("{before}.{}", kind.name())
        }
        _ => reply_to.to_owned(),
    }
}

/// Whether a subject matches a pattern: `*` is one token, `>` at the end one or more.
pub fn matches(pattern: &str, subject: &str) -> bool {
    let (mut wanted, mut given) = (pattern.split('.'), subject.split('.'));
    loop {
        match (wanted.next(), given.next()) {
            (Some(">"), Some(_)) => return wanted.next().is_none(),
            (Some(want), Some(have)) if want == "*" || want == have => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a", false),
            ("a", "a.b", false),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("a.*.c", "a.b.c", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("*", "a", true),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern} {subject}");
        }
    }

    // req: CDT-11
    #[test]
    fn tokens() {
        for good in ["a", "cmx-1", "é", "a:b", "0"] {
            assert!(is_token(good), "{good:?}");
        }
        for bad in ["", ".", "a.b", "a*", ">", "a b", "a\tb", "a\r\n", "\u{7f}", "a\u{a0}b"] {
            assert!(!is_token(bad), "{bad:?}");
        }
    }

    // req: CDT-01, CDT-02, CDT-06, CDT-07, CDT-09
    #[test]
    fn subjects_and_what_they_say() {
        let ours = Subjects::default();
        let request = ours.service("cdp", Kind::ConfigRequest);
        assert_eq!(request, "kaa.v1.service.cdp.cmx2cdp.ConfigRequest");
        assert_eq!(
            parse(&request),
            Parsed { kind: Some(Kind::ConfigRequest), instance: Some("cdp"), ..Parsed::default() }
        );
        let answer = ours.replica("r1", Kind::ConfigResponse);
        assert_eq!(answer, "kaa.v1.replica.r1.cmx2cdp.ConfigResponse");
        assert_eq!(
            parse(&answer),
            Parsed { kind: Some(Kind::ConfigResponse), replica: Some("r1"), ..Parsed::default() }
        );
        let event = ours.event("cdp", Kind::ConfigUpdated);
        assert_eq!(event, "kaa.v1.events.cdp.endpoint.config.ConfigUpdated");
        assert_eq!(
            parse(&event),
            Parsed { kind: Some(Kind::ConfigUpdated), originator: Some("cdp"), ..Parsed::default() }
        );
        assert!(matches(&ours.events(), &event) && matches("kaa.v1.events.*.endpoint.>", &event));
        for foreign in ["", "a", "kaa.v1.service.cdp.cmx2cdp.Other", "kaa.v1.events.cdp.endpoint.config.ConfigRequest"]
        {
            assert_eq!(parse(foreign), Parsed::default(), "{foreign}");
        }
    }

    // req: CDT-04
    #[test]
    fn an_answer_of_another_type_changes_the_last_token_alone() {
        let expected = "kaa.v1.replica.r1.cmx2cdp.ConfigPushResponse";
        assert_eq!(answered_by("kaa.v1.replica.r1.cmx2cdp.ConfigResponse", Kind::ConfigPushResponse), expected);
        assert_eq!(answered_by(expected, Kind::ConfigPushResponse), expected);
        assert_eq!(answered_by("_INBOX.x.y", Kind::ConfigResponse), "_INBOX.x.y");
    }
}
