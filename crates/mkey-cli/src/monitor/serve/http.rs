//! As much of HTTP/1.1 as serving one page takes: each connection is answered once and closed. Who
//! asks slowly, at length, or with many connections at once takes nothing from the others.

use super::Page;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that are answered at a time.
pub const CONNECTIONS: usize = 16;
/// Others that are told at a time to come again; what is beyond is closed.
const REFUSED: usize = 64;
/// Bytes of a request, up to its body.
pub const REQUEST: usize = 8 << 10;
/// How long a request may take to come, and its answer to be taken.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Lines of a request.
const HEADERS: usize = 64;
/// After accepting failed, as where there is no descriptor left: so as not to try without end.
const REST: Duration = Duration::from_millis(100);
/// What a connection that is not to be answered may still send before it is cut.
const LEFT: usize = 64 << 10;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers whoever connects, for ever. Where all seats are taken, who has sat longest without having
/// asked, or with its answer, makes room: so nobody who only connects keeps out one who asks.
pub fn serve(listener: &TcpListener, page: &Arc<Page>) {
    let (seats, threads, refused) = (Arc::<Seats>::default(), Arc::default(), Arc::default());
    loop {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(REST);
            continue;
        };
        let (page, stream) = (Arc::clone(page), Arc::new(stream));
        // Who asked may be gone, or too slow: nobody is left to tell.
        if let Some(place) = Place::take(&threads, CONNECTIONS + REFUSED)
            && let Some(seat) = Seats::take(&seats, &stream)
        {
            start(place, move || answer(&stream, &seat, &page));
        } else if let Some(place) = Place::take(&refused, REFUSED) {
            let until = Instant::now() + PATIENCE;
            start(place, move || put(&stream, until, 503, PLAIN, "busy\n"));
        }
    }
}

/// Does it beside this thread, and gives the place back. Where no thread can be had, the connection is
/// closed.
fn start(place: Place, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
    let _ = thread::Builder::new().name("mkey-answer".to_owned()).spawn(move || {
        let _ = work();
        drop(place);
    });
}

/// One of the places for threads, given back when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // Given back at once if it was one too many.
        let place = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections that are answered, in the order they came.
#[derive(Debug, Default)]
struct Seats(Mutex<Vec<Seated>>);

#[derive(Debug)]
struct Seated {
    stream: Arc<TcpStream>,
    /// It has asked, and its answer is not out yet.
    busy: bool,
}

impl Seats {
    /// A seat, if there is one, or one can be cleared.
    fn take(seats: &Arc<Self>, stream: &Arc<TcpStream>) -> Option<Seat> {
        let mut all = seats.lock();
        if all.len() >= CONNECTIONS {
            let idle = all.iter().position(|seated| !seated.busy)?;
            // Its thread, which waits for it, ends by that.
            let _ = all.remove(idle).stream.shutdown(Shutdown::Both);
        }
        all.push(Seated { stream: Arc::clone(stream), busy: false });
        Some(Seat { seats: Arc::clone(seats), stream: Arc::clone(stream) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seated>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The seat of a connection, given back when dropped.
struct Seat {
    seats: Arc<Seats>,
    stream: Arc<TcpStream>,
}

impl Seat {
    /// Notes whether the connection is at work; false if it had to make room.
    fn set_busy(&self, busy: bool) -> bool {
        let mut all = self.seats.lock();
        let own = all.iter_mut().find(|seated| Arc::ptr_eq(&seated.stream, &self.stream));
        own.map(|seated| seated.busy = busy).is_some()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().retain(|seated| !Arc::ptr_eq(&seated.stream, &self.stream));
    }
}

fn answer(stream: &TcpStream, seat: &Seat, page: &Page) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let asked = match ask(stream, until) {
        Ok(asked) => asked,
        Err(error) if is_late(&error) => {
            return put(stream, until + PATIENCE, 408, PLAIN, "slow\n");
        }
        Err(error) => return Err(error),
    };
    if !seat.set_busy(true) {
        return Ok(());
    }
    let until = Instant::now() + PATIENCE;
    match asked {
        Asked::Page => write(stream, until, 200, OPEN_METRICS, &page.text())?,
        Asked::Nothing => return Ok(()),
        Asked::Other(status) => {
            write(stream, until, status, PLAIN, &format!("{}\n", words(status)))?;
        }
    }
    seat.set_busy(false);
    close(stream, until)
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The page.
    Page,
    /// Nothing: the connection was closed.
    Nothing,
    /// What is answered with this status.
    Other(u16),
}

fn ask(mut stream: &TcpStream, until: Instant) -> io::Result<Asked> {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let length = match stream.read(&mut piece) {
            Ok(0) if request.is_empty() => return Ok(Asked::Nothing),
            Ok(0) => return Ok(Asked::Other(400)),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        request.extend_from_slice(piece.get(..length).unwrap_or_default());
        if let Some(asked) = read(&request) {
            return Ok(asked);
        }
        if request.len() > REQUEST {
            return Ok(Asked::Other(431));
        }
    }
}

/// What a request asks for; `None` if it is not whole.
fn read(request: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) => None,
        Err(httparse::Error::TooManyHeaders) => Some(Asked::Other(431)),
        Err(_) => Some(Asked::Other(400)),
        Ok(httparse::Status::Complete(_)) => {
            let path = parsed.path.unwrap_or_default();
            let path = path.split(['?', '#']).next().unwrap_or_default();
            Some(match (parsed.method, path) {
                (_, path) if path != "/metrics" => Asked::Other(404),
                (Some("GET"), _) => Asked::Page,
                _ => Asked::Other(405),
            })
        }
    }
}

fn words(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}

/// Writes an answer, and closes the connection so that the answer arrives.
fn put(stream: &TcpStream, until: Instant, status: u16, kind: &str, body: &str) -> io::Result<()> {
    write(stream, until, status, kind, body)?;
    close(stream, until)
}

fn write(
    stream: &TcpStream,
    until: Instant,
    status: u16,
    kind: &str,
    body: &str,
) -> io::Result<()> {
    let allow = if status == 405 { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         Connection: close\r\n\r\n",
        words(status),
        body.len()
    );
    let mut rest = [head.as_bytes(), body.as_bytes()].concat();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        let mut to = stream;
        let written = match to.write(&rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        rest.drain(..written);
    }
    Ok(())
}

/// Closes a connection so that what was written arrives.
fn close(stream: &TcpStream, until: Instant) -> io::Result<()> {
    // What was sent and not read would have the kernel throw the answer away (RST), so a little of
    // it is read.
    stream.shutdown(Shutdown::Write)?;
    let (mut piece, mut taken) = ([0; 1024], 0);
    while taken < LEFT {
        stream.set_read_timeout(Some(left(until)?.min(Duration::from_secs(1))))?;
        let mut from = stream;
        match from.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(length) => taken += length,
        }
    }
    Ok(())
}

/// The time that is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_page_by_get() {
        for (request, asked) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some(Asked::Page)),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Some(Asked::Page)),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", None),
            ("", None),
            ("GET / HTTP/1.1\r\n\r\n", Some(Asked::Other(404))),
            ("GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", Some(Asked::Other(404))),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\n", Some(Asked::Other(405))),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Some(Asked::Other(405))),
            ("\u{16}\u{3}\u{1}", Some(Asked::Other(400))),
            ("GET /metrics HTTP/9\r\n\r\n", Some(Asked::Other(400))),
        ] {
            assert_eq!(read(request.as_bytes()), asked, "{request:?}");
        }
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert_eq!(read(many.as_bytes()), Some(Asked::Other(431)));
    }

    proptest! {
        #[test]
        fn no_request_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
        }
    }
}
