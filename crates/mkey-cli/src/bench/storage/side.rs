//! One end of a connection: a protection domain's queue pair, its completion queue, and buffers
//! that messages land in.

use crate::bench::error::{Result, RowError};
use crate::bench::link::judge_port;
use mkey::{Completion, Cq, Device, Mr, PageKind, Pd, Qp, Recv, Region, Slice, WcStatus, Work};
use std::time::{Duration, Instant};

/// How long nothing may happen before something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of so many sends one makes a completion, which ends those before it.
const SIGNAL_EVERY: u32 = 16;
/// Completions taken at a time.
pub const BATCH: usize = 32;
/// The id of sends; those of receives are the numbers of their buffers.
const SENT: u64 = 1 << 63;
/// The distance of receive buffers.
const STRIDE: usize = 64;

/// One end.
#[derive(Debug)]
pub struct Side {
    /// Its protection domain.
    pub pd: Pd,
    /// Where its completions go.
    pub cq: Cq,
    /// Its queue pair.
    pub qp: Qp,
    receives: Vec<Slice>,
    sent: u32,
    quiet: Quiet,
}

/// Whether two ends connect where the port says that it is down.
///
/// # Errors
/// `PortDown`, with what brings it up.
pub fn check_port(device: &Device) -> Result<()> {
    let control = device.control();
    if control.port().active {
        return Ok(());
    }
    let connected = || {
        let pd = Pd::new(device)?;
        Side::new(device, &pd, 1)?.connect(&Side::new(device, &pd, 1)?)
    };
    judge_port(control.name(), connected())
}

impl Side {
    /// One end in `pd` for up to `depth` I/Os at a time, not yet connected.
    ///
    /// # Errors
    /// As the device refuses.
    pub fn new(device: &Device, pd: &Pd, depth: usize) -> Result<Self> {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        let sends = depth.saturating_mul(4).saturating_add(4 * SIGNAL_EVERY);
        let cq = Cq::new(device, sends.saturating_add(depth))?;
        let qp = Qp::builder(pd, &cq).depth(sends, depth).max_inline(STRIDE as u32).create()?;
        let bytes = (depth as usize).saturating_mul(STRIDE);
        let memory = Mr::new(pd, Region::builder(bytes).pages(PageKind::Base).map()?)?.into_slice();
        let receives = (0..depth as usize).map(|n| memory.part(n * STRIDE..(n + 1) * STRIDE));
        let receives = receives.collect::<mkey::Result<Vec<_>>>()?;
        Ok(Self { pd: pd.clone(), cq, qp, receives, sent: 0, quiet: Quiet::default() })
    }

    /// Connects two ends, and posts all their receives.
    ///
    /// # Errors
    /// As the device refuses.
    pub fn connect(&self, other: &Self) -> Result<()> {
        for (here, there) in [(self, other), (other, self)] {
            here.qp.connect(&there.qp.endpoint())?;
            for number in 0..here.receives.len() {
                here.post_recv(number)?;
            }
        }
        Ok(())
    }

    /// The buffer that a receive landed in.
    pub fn received(&self, number: usize) -> Result<&Slice> {
        self.receives.get(number).ok_or(RowError::Protocol("a receive that was not posted"))
    }

    /// Posts a receive buffer again.
    ///
    /// # Errors
    /// As the device refuses.
    pub fn post_recv(&self, number: usize) -> Result<()> {
        let into = std::slice::from_ref(self.received(number)?);
        Ok(self.qp.post_recv(&[Recv::new(into).id(number as u64)])?)
    }

    /// A send as it should be posted: with a completion now and then only.
    pub fn counted<'w>(&mut self, send: Work<'w>) -> Work<'w> {
        self.sent = self.sent.wrapping_add(1);
        let send = send.id(SENT);
        if self.sent.is_multiple_of(SIGNAL_EVERY) { send } else { send.unsignaled() }
    }

    /// Takes completions; the numbers of the receives among them.
    ///
    /// # Errors
    /// `Work` as one of them failed, with the device's reason.
    pub fn poll<'c>(
        &mut self,
        completions: &'c mut [Completion; BATCH],
    ) -> Result<impl Iterator<Item = usize> + use<'c>> {
        let taken = self.cq.poll(completions)?;
        self.quiet.check(taken > 0)?;
        let completions = completions.get(..taken).unwrap_or_default();
        if let Some(failed) = completions.iter().find(|c| c.status != WcStatus::Success) {
            return Err(self.failed(failed));
        }
        let receives = completions.iter().filter(|c| c.wr_id & SENT == 0);
        Ok(receives.map(|completion| completion.wr_id as usize))
    }

    /// Posts a chain of which only the last work makes a completion, and polls for that.
    ///
    /// # Errors
    /// As posting or the work fails.
    pub fn post_and_wait(&mut self, chain: &[Work<'_>]) -> Result<()> {
        self.qp.post(chain)?;
        let mut completions = [Completion::BLANK; BATCH];
        loop {
            let taken = self.cq.poll(&mut completions)?;
            self.quiet.check(taken > 0)?;
            let completions = completions.get(..taken).unwrap_or_default();
            if let Some(failed) = completions.iter().find(|c| c.status != WcStatus::Success) {
                return Err(self.failed(failed));
            }
            if taken > 0 {
                return Ok(());
            }
        }
    }

    /// What became of the work of a completion that is no success.
    #[cold]
    fn failed(&self, completion: &Completion) -> RowError {
        let reason = self.pd.device().explain(completion);
        RowError::Work { opcode: completion.opcode, status: completion.status, reason }
    }
}

/// Watches for nothing happening, without looking at the clock while something does.
#[derive(Debug, Default)]
struct Quiet {
    polls: u32,
    since: Option<Instant>,
}

impl Quiet {
    fn check(&mut self, something: bool) -> Result<()> {
        if something {
            *self = Self::default();
            return Ok(());
        }
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(1024) {
            if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(RowError::NoCompletion(PATIENCE.as_secs()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}
