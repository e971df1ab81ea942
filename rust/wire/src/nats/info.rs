//! What a server says of itself.

use serde::Deserialize;

/// The largest body, where a server does not say.
const MAX_PAYLOAD: u64 = 1 << 20;

/// The servers of a cluster that one INFO may name; further ones are ignored.
const SERVERS: usize = 64;

/// An INFO: what a client needs of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // it is the server's list of flags
pub struct Info {
    /// The largest body, with its headers, in bytes.
    #[serde(default = "max_payload")]
    pub max_payload: u64,
    /// Whether it knows headers, and says that a request has no responders.
    #[serde(default)]
    pub headers: bool,
    /// Whether it wants to encrypt, or can.
    #[serde(default)]
    pub tls_required: bool,
    #[serde(default)]
    pub tls_available: bool,
    /// What to sign, if a key logs in.
    #[serde(default)]
    pub nonce: Option<String>,
    /// Servers of its cluster, as `HOST:PORT`.
    #[serde(default)]
    pub connect_urls: Option<Vec<String>>,
    /// Whether it will end soon: lame duck mode.
    #[serde(default)]
    pub ldm: bool,
}

impl Default for Info {
    fn default() -> Self {
        Self {
            max_payload: MAX_PAYLOAD,
            headers: false,
            tls_required: false,
            tls_available: false,
            nonce: None,
            connect_urls: None,
            ldm: false,
        }
    }
}

impl Info {
    /// Reads what follows `INFO `; `None` if it is no such object.
    pub(super) fn read(json: &[u8]) -> Option<Self> {
        // A list of values would do for the library.
        if json.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let mut info: Self = serde_json::from_slice(json).ok()?;
        if let Some(urls) = &mut info.connect_urls {
            urls.truncate(SERVERS);
        }
        Some(info)
    }

    /// The largest body, with its headers, in bytes.
    pub fn most(&self) -> usize {
        usize::try_from(self.max_payload).unwrap_or(usize::MAX)
    }
}

const fn max_payload() -> u64 {
    MAX_PAYLOAD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read() {
        let info = Info::read(br#"{"max_payload": 5, "nonce": "x", "connect_urls": ["a:1"], "other": [{}]}"#).unwrap();
        assert_eq!((info.most(), info.nonce.as_deref(), info.ldm), (5, Some("x"), false));
        assert_eq!(info.connect_urls, Some(vec!["a:1".to_owned()]));
        let bare = Info::read(b" {}").unwrap();
        assert_eq!((bare.max_payload, bare.headers, bare.connect_urls), (1 << 20, false, None));
    }

    #[test]
    fn few_servers_are_kept_of_many() {
        let many = format!(r#"{{"connect_urls": [{}"a:1"]}}"#, r#""a:1","#.repeat(1000));
        assert_eq!(Info::read(many.as_bytes()).unwrap().connect_urls.unwrap().len(), SERVERS);
    }

    #[test]
    fn what_is_no_info_is_refused() {
        for bad in [
            "",
            "[]",
            "null",
            "{x",
            "{}}",
            r#"["id", "name", "h", 1]"#,
            r#"{"max_payload": null}"#,
            r#"{"max_payload": "1"}"#,
            r#"{"max_payload": -1}"#,
            r#"{"max_payload": 1e6}"#,
            r#"{"max_payload": 18446744073709551616}"#,
            r#"{"max_payload": 1, "max_payload": 2}"#,
            r#"{"connect_urls": [1]}"#,
            r#"{"tls_required": 1}"#,
        ] {
            assert_eq!(Info::read(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Info::read(b"{\"nonce\": \"\xff\"}"), None);
    }
}
