//! OpenMetrics over HTTP, for Prometheus.
//!
//! * [`metrics`]: a look as OpenMetrics. [`http`]: answering those who ask, however they ask.

pub mod http;
pub mod metrics;

use super::sample::{Host, Sample};
use crate::cli::print;
use crate::exit::End;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Serves until a signal ends it.
///
/// # Errors
/// [`End::Signal`] for that; [`End::Failed`] if the address can not be had.
pub fn run(address: SocketAddr, host: Host, interval: Duration) -> Result<(), End> {
    let ending = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
    let taken = ending.into_iter().filter(|signal| !mkey_os::signals::is_ignored(*signal));
    // As the first process of a container it would not be ended by default.
    let mut signals = Signals::new(taken).map_err(End::failed)?;
    let failed = |error| End::failed(format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let page = Page::new(host, interval);
    thread::Builder::new()
        .name("mkey-serve".to_owned())
        .spawn(move || http::serve(&listener, &Arc::new(page)))
        .map_err(End::failed)?;
    print(format!("http://{address}/metrics\n").as_bytes())?;
    match signals.forever().next() {
        Some(signal) => Err(End::Signal(signal)),
        None => Err(End::failed("no signals can be waited for")),
    }
}

/// The page: a look at everything, taken anew for who asks unless the last is younger than an
/// interval. So those who ask do not make it read more than somebody who watches.
#[derive(Debug)]
pub struct Page {
    begun: Instant,
    interval: Duration,
    last: Mutex<Last>,
}

/// The last look, and by whom the next is taken.
#[derive(Debug)]
struct Last {
    host: Host,
    /// When it was, and as OpenMetrics.
    page: Option<(Duration, Arc<str>)>,
}

impl Page {
    /// Nothing is looked at yet.
    pub fn new(host: Host, interval: Duration) -> Self {
        Self { begun: Instant::now(), interval, last: Mutex::new(Last { host, page: None }) }
    }

    /// The page now.
    pub fn text(&self) -> Arc<str> {
        // A look that panicked left nothing half done: the page is set at its end.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Last { host, page } = &mut *last;
        let now = self.begun.elapsed();
        if let Some((at, text)) = page
            && now.saturating_sub(*at) < self.interval
        {
            return Arc::clone(text);
        }
        let sample: Sample = host.look(now);
        let text: Arc<str> = metrics::text(sample).into();
        *page = Some((now, Arc::clone(&text)));
        text
    }
}
