//! HTTP responses.

use std::io::{self, Write};
use std::sync::Arc;

use crate::request::{Method, Refusal, Request};

/// The status codes that the server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200: the body is the resource.
    Ok,
    /// 304: the client's cached version is current.
    NotModified,
    /// 400: the request is not valid HTTP.
    BadRequest,
    /// 401: the token is missing or wrong.
    Unauthorized,
    /// 404: unknown path.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 408: the request was not sent in time.
    RequestTimeout,
    /// 421: the request is for a server of another name.
    Misdirected,
    /// 431: the request's head was too long.
    TooLong,
    /// 500: an error of the server.
    InternalError,
    /// 503: too many requests, a page that is not made yet, or no current data.
    Unavailable,
}

impl Status {
    /// Code and reason phrase (RFC 9110, section 15).
    #[must_use]
    pub(crate) fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::NotModified => "304 Not Modified",
            Status::BadRequest => "400 Bad Request",
            Status::Unauthorized => "401 Unauthorized",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::RequestTimeout => "408 Request Timeout",
            Status::Misdirected => "421 Misdirected Request",
            Status::TooLong => "431 Request Header Fields Too Large",
            Status::InternalError => "500 Internal Server Error",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: Status,
    /// MIME type of the body.
    pub content_type: &'static str,
    /// Body; shared, so that many connections can send it at once.
    pub body: Arc<[u8]>,
    /// Entity tag, in quotes: changes whenever the body does; `None` if the response must not be
    /// cached.
    pub tag: Option<String>,
}

impl Response {
    /// A successful response with a body of that type.
    #[must_use]
    pub fn ok(content_type: &'static str, body: impl Into<Arc<[u8]>>) -> Self {
        Self { status: Status::Ok, content_type, body: body.into(), tag: None }
    }

    /// Sets the entity tag, quotes included.
    #[must_use]
    pub fn tagged(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// A response with one line of plain text.
    #[must_use]
    pub fn text(status: Status, line: &str) -> Self {
        let body = format!("{line}\n").into_bytes();
        Self { status, ..Self::ok("text/plain; charset=utf-8", body) }
    }

    /// Turns the response into a 304 without body if the client has the current version.
    #[must_use]
    pub(crate) fn unless_had(self, request: &Request) -> Self {
        match &self.tag {
            Some(tag) if self.status == Status::Ok && request.has(tag) => {
                Self { status: Status::NotModified, body: Arc::from([]), ..self }
            }
            _ => self,
        }
    }

    /// Writes the response to a request of that method.
    ///
    /// # Errors
    /// The client does not accept it.
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
        if self.status == Status::Unauthorized {
            add("WWW-Authenticate", "Bearer");
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
        // The page contains names of mappings. Should one escape from its text context, this policy
        // still keeps it from loading anything from elsewhere, and the page from being framed.
        add(
            "Content-Security-Policy",
            "default-src 'self' 'unsafe-inline' data: blob:; frame-ancestors 'none'",
        );
        // A 304 has no body, so it carries no header fields about one.
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
            Refusal::Host => (
                Status::Misdirected,
                "the request is for a server of another name: ask for its IP address or localhost, \
                 or start it with --host NAME",
            ),
            Refusal::Token => (
                Status::Unauthorized,
                "the token is missing or wrong: send `Authorization: Bearer TOKEN`",
            ),
            Refusal::Busy => (Status::Unavailable, "too many requests at a time; try again"),
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
    fn a_client_with_a_current_copy_gets_no_body() {
        let request = Request::parse(b"GET / HTTP/1.0\r\nIf-None-Match: \"a-1\"\r\n").unwrap();
        let same = Response::ok("text/plain", *b"hello").tagged("\"a-1\"").unless_had(&request);
        let text = written(&same, Method::Get);
        assert!(text.starts_with("HTTP/1.1 304 ") && text.ends_with("\r\n\r\n"), "{text}");
        assert!(!text.contains("Content-Length"), "{text}");
        let other = Response::ok("text/plain", *b"hello").tagged("\"a-2\"").unless_had(&request);
        assert_eq!(other.status, Status::Ok);
    }

    #[test]
    fn a_refused_method_comes_with_the_allowed_ones() {
        let text = written(&Response::from(Refusal::Method), Method::Get);
        assert!(text.contains("405") && text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
    }
}
