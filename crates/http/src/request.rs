//! The head of a request; bodies are not supported.

/// The supported request methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The resource itself.
    Get,
    /// The response's header only.
    Head,
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method: GET or HEAD.
    pub method: Method,
    /// Path, without query; begins with `/`. Percent signs are left as they are.
    pub path: String,
    /// Name and port that the client knows the server by; only HTTP/1.0 may lack it.
    pub host: Option<String>,
    /// Bearer token of Authorization.
    pub token: Option<String>,
    /// Entity tags of If-None-Match, or `*`: versions that the client has cached.
    pub has: Vec<String>,
}

/// Reasons for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not valid HTTP.
    Malformed,
    /// A method other than GET and HEAD.
    Method,
    /// Longer than the limit.
    TooLong,
    /// Not sent within the time limit.
    TooSlow,
    /// For a server of another name.
    Host,
    /// The token is missing or wrong.
    Token,
    /// Too many requests in progress, in total or of this client.
    Busy,
}

/// End of the head within the bytes received so far, if it is complete.
#[must_use]
pub(crate) fn head_end(received: &[u8]) -> Option<usize> {
    received.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 2)
}

impl Request {
    /// Parses a head: lines that end with CR LF, without the final empty one (RFC 9112, 2.1).
    ///
    /// # Errors
    /// [`Refusal::Malformed`] or [`Refusal::Method`].
    pub(crate) fn parse(head: &[u8]) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
        let mut lines = text.strip_suffix("\r\n").ok_or(Refusal::Malformed)?.split("\r\n");
        let (method, path, version) = request_line(lines.next().unwrap_or_default())?;
        let (mut host, mut token, mut has) = (None, None, Vec::new());
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
            if name.is_empty() || name.contains([' ', '\t']) {
                return Err(Refusal::Malformed);
            }
            match name.to_ascii_lowercase().as_str() {
                "if-none-match" => has.extend(value.split(',').map(tag)),
                "host" if host.is_some() => return Err(Refusal::Malformed),
                "host" => host = Some(value.trim().to_owned()),
                "authorization" => token = bearer(value),
                _ => {}
            }
        }
        match &host {
            None if version == "HTTP/1.1" => Err(Refusal::Malformed),
            _ => Ok(Self { method, path, host, token, has }),
        }
    }

    /// Whether the client has cached the version with this `tag` (RFC 9110, 13.1.2: weak
    /// comparison).
    #[must_use]
    pub(crate) fn has(&self, tag: &str) -> bool {
        self.has.iter().any(|one| one == "*" || one == tag)
    }
}

/// The token of credentials (RFC 6750, 2.1).
fn bearer(credentials: &str) -> Option<String> {
    let (scheme, token) = credentials.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// Normalizes an entity tag: weak ones compare as strong ones here.
fn tag(text: &str) -> String {
    let text = text.trim();
    text.strip_prefix("W/").unwrap_or(text).to_owned()
}

fn request_line(line: &str) -> Result<(Method, String, &str), Refusal> {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Malformed);
    };
    let is_token = !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase());
    if !is_token || !matches!(version, "HTTP/1.0" | "HTTP/1.1") || !target.starts_with('/') {
        return Err(Refusal::Malformed);
    }
    let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
    match method {
        "GET" => Ok((Method::Get, path, version)),
        "HEAD" => Ok((Method::Head, path, version)),
        _ => Err(Refusal::Method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Request, Refusal> {
        Request::parse(text.as_bytes())
    }

    #[test]
    fn a_scraper_is_understood() {
        let request = parse("GET /metrics?x=1 HTTP/1.1\r\nHost: a:9464\r\nAccept: */*\r\n");
        let (path, host) = ("/metrics".to_owned(), Some("a:9464".to_owned()));
        let has = Vec::new();
        assert_eq!(request, Ok(Request { method: Method::Get, path, host, token: None, has }));
    }

    #[test]
    fn tags_are_compared_weakly() {
        let request = parse("HEAD / HTTP/1.0\r\nif-none-match: W/\"a\", \"b-2\"\r\n").unwrap();
        assert!(request.has("\"a\"") && request.has("\"b-2\"") && !request.has("\"c\""));
        assert!(parse("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n").unwrap().has("\"c\""));
    }

    #[test]
    fn malformed_requests_are_refused() {
        for text in [
            "",
            "\r\n",
            "GET /\r\n",
            "GET / HTTP/2.0\r\n",
            "GET  / HTTP/1.1\r\n",
            "GET metrics HTTP/1.1\r\n",
            "GET http://other/ HTTP/1.1\r\n",
            "get / HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n",
            "GET / HTTP/1.1\r\nspace : x\r\n",
            "GET / HTTP/1.1",
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n",
        ] {
            assert_eq!(parse(text), Err(Refusal::Malformed), "{text:?}");
        }
        assert_eq!(parse("POST / HTTP/1.1\r\nHost: a\r\n"), Err(Refusal::Method));
    }

    #[test]
    fn the_head_ends_at_the_empty_line() {
        assert_eq!(head_end(b"GET / HTTP/1.1\r\n\r\nbody"), Some(16));
        assert_eq!(head_end(b"GET / HTTP/1.1\r\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes);
            if let Some(end) = head_end(&bytes) {
                prop_assert_eq!(&bytes[end - 2..end + 2], b"\r\n\r\n");
            }
        }
    }
}
