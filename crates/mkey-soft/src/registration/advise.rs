//! Advice on on-demand regions. Rules R-ODP-07 to 17.

use super::Registrations;
use crate::core::{Core, with_executor};
use crate::memory;
use mkey_core::address::{HostAddr, HostRange};
use mkey_core::device::{Advice, Capability};
use mkey_core::engine::{Fault, FaultCause};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::refusal::PdId;
use mkey_core::work::Sge;

impl Registrations {
    /// Brings pages of on-demand regions in. All entries are looked at before anything is done.
    /// Without `flush` pages that can not be had are passed over (R-ODP-14).
    pub(crate) fn advise(
        &self,
        core: &Core,
        pd: PdId,
        advice: Advice,
        flush: bool,
        sges: &[Sge],
    ) -> Result<()> {
        let (writes, present_only) = match advice {
            Advice::Prefetch => (false, false),
            Advice::PrefetchWrite => (true, false),
            Advice::PrefetchNoFault => (false, true),
            _ => {
                let reason = Reason::Unsupported { capability: Capability::Advise };
                return Err(Error::new("advise_mr", format_args!("{advice:?}"), reason));
            }
        };
        let ask = |sge: &Sge| {
            let (lkey, length) = (sge.lkey, u64::from(sge.length));
            let mut answer = Err(Reason::UnknownLkey { key: lkey.0 });
            with_executor(|executor| {
                let lane = &mut executor.source;
                answer = core.engine.advise(lane, pd, lkey, sge.address, length, writes);
            });
            answer.map_err(|reason| advise_error(advice, sge, reason))
        };
        for sge in sges {
            ask(sge)?;
        }
        for sge in sges {
            loop {
                let fault = ask(sge)?;
                if present_only {
                    take_present(core, &fault);
                    break;
                }
                let touched = memory::touch(core.tolerant, fault.range(), writes);
                if touched.is_err() && flush {
                    let (address, length) = (sge.address, u64::from(sge.length));
                    let reason = Reason::OutOfRange { address, length };
                    return Err(advise_error(advice, sge, reason));
                }
                // Pages went away meanwhile: only a synchronous call tries again.
                if touched.is_err() || mark(core, &fault) || !flush {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn mark(core: &Core, fault: &Fault) -> bool {
    let mut marked = false;
    with_executor(|executor| {
        marked = core.engine.fault_in(&mut executor.target, fault, FaultCause::Prefetch);
    });
    marked
}

/// Takes what the process has in memory already, run by run (R-ODP-15).
fn take_present(core: &Core, fault: &Fault) {
    let range = fault.range();
    let page = fault.page_size();
    let pages = range.len / page;
    for number in 0..pages {
        let start = HostAddr(range.start.0.saturating_add(number * page));
        let range = HostRange { start, len: page };
        if memory::resident(range)
            && let Some(part) = fault.part(range)
        {
            mark(core, &part);
        }
    }
}

fn advise_error(advice: Advice, sge: &Sge, reason: Reason) -> Error {
    let Sge { address, length, lkey } = *sge;
    Error::new("advise_mr", format_args!("{advice:?}, {address}, {length}, lkey {lkey}"), reason)
}
