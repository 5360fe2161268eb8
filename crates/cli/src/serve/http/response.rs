//! Answers.

use std::io::{self, Write};
use std::sync::Arc;

use super::request::{Method, Refusal, Request};

/// How an answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Here it is.
    Ok,
    /// The client has it already.
    NotModified,
    /// What was asked is no HTTP.
    BadRequest,
    /// There is no such thing.
    NotFound,
    /// Only GET and HEAD are answered.
    MethodNotAllowed,
    /// The request was not sent in time.
    RequestTimeout,
    /// The request was too long.
    TooLong,
    /// Something went wrong here.
    InternalError,
    /// Not now: too many ask, or nothing was recorded yet.
    Unavailable,
}

impl Status {
    /// Number and words (RFC 9110, section 15).
    #[must_use]
    pub(crate) fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::NotModified => "304 Not Modified",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::RequestTimeout => "408 Request Timeout",
            Status::TooLong => "431 Request Header Fields Too Large",
            Status::InternalError => "500 Internal Server Error",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// How it went.
    pub(crate) status: Status,
    /// MIME type.
    pub(crate) content_type: &'static str,
    /// What is sent; shared, so that many can take it at once.
    pub(crate) body: Arc<[u8]>,
    /// Changes whenever the body does, in quotes; `None` for what nobody should keep.
    pub(crate) tag: Option<String>,
}

impl Response {
    /// A body of that type.
    #[must_use]
    pub(crate) fn ok(content_type: &'static str, body: impl Into<Arc<[u8]>>) -> Self {
        Self { status: Status::Ok, content_type, body: body.into(), tag: None }
    }

    /// With an entity tag, quotes included.
    #[must_use]
    pub(crate) fn tagged(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// A line of text.
    #[must_use]
    pub(crate) fn text(status: Status, line: &str) -> Self {
        let body = format!("{line}\n").into_bytes();
        Self { status, ..Self::ok("text/plain; charset=utf-8", body) }
    }

    /// Without the body, if the client has it.
    #[must_use]
    pub(crate) fn unless_had(self, request: &Request) -> Self {
        match &self.tag {
            Some(tag) if self.status == Status::Ok && request.has(tag) => {
                Self { status: Status::NotModified, body: Arc::from([]), ..self }
            }
            _ => self,
        }
    }

    /// Writes it as the answer to a request of that method.
    ///
    /// # Errors
    /// If the client does not take it.
    pub(crate) fn write(&self, method: Method, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.head().as_bytes())?;
        match method {
            Method::Get => out.write_all(&self.body),
            Method::Head => Ok(()),
        }
    }

    fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {}\r\nConnection: close\r\n", self.status.line());
        let mut add = |name: &str, value: &str| {
            head.extend([name, ": ", value, "\r\n"]);
        };
        if self.status == Status::MethodNotAllowed {
            add("Allow", "GET, HEAD");
        }
        if self.status == Status::Unavailable {
            add("Retry-After", "1");
        }
        if let Some(tag) = &self.tag {
            add("ETag", tag);
        }
        add("Cache-Control", "no-cache");
        add("X-Content-Type-Options", "nosniff");
        add("Referrer-Policy", "no-referrer");
        // Names of mappings are in the page: were one to break out of its text, it could still
        // load nothing from elsewhere and be framed nowhere.
        add(
            "Content-Security-Policy",
            "default-src 'self' 'unsafe-inline' data: blob:; frame-ancestors 'none'",
        );
        // A 304 says nothing of a body that it does not have.
        if self.status != Status::NotModified {
            add("Content-Type", self.content_type);
            add("Content-Length", &self.body.len().to_string());
        }
        head + "\r\n"
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        let (status, line) = match refusal {
            Refusal::Malformed => (Status::BadRequest, "this is not HTTP/1.1"),
            Refusal::Method => (Status::MethodNotAllowed, "only GET and HEAD are answered"),
            Refusal::TooLong => (Status::TooLong, "the request is too long"),
            Refusal::TooSlow => (Status::RequestTimeout, "the request took too long"),
        };
        Self::text(status, line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(response: &Response, method: Method) -> String {
        let mut out = Vec::new();
        response.write(method, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn head_is_get_without_the_body() {
        let response = Response::ok("text/plain", *b"hello").tagged("\"a-1\"");
        let got = written(&response, Method::Get);
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nhello"), "{got}");
        assert!(got.contains("\r\nContent-Length: 5\r\n") && got.contains("\r\nETag: \"a-1\"\r\n"));
        assert_eq!(written(&response, Method::Head), got.strip_suffix("hello").unwrap());
    }

    #[test]
    fn who_has_it_gets_no_body() {
        let request = Request::parse(b"GET / HTTP/1.1\r\nIf-None-Match: \"a-1\"\r\n").unwrap();
        let same = Response::ok("text/plain", *b"hello").tagged("\"a-1\"").unless_had(&request);
        let text = written(&same, Method::Get);
        assert!(text.starts_with("HTTP/1.1 304 ") && text.ends_with("\r\n\r\n"), "{text}");
        assert!(!text.contains("Content-Length"), "{text}");
        let other = Response::ok("text/plain", *b"hello").tagged("\"a-2\"").unless_had(&request);
        assert_eq!(other.status, Status::Ok);
    }

    #[test]
    fn refusals_say_what_would_do() {
        let text = written(&Response::from(Refusal::Method), Method::Get);
        assert!(text.contains("405") && text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
    }
}
