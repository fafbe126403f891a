//! What the device falls back to, and what is not guaranteed then.

use crate::core::Core;
use crate::link::Port;
use crate::options::{PinMode, Stale};

pub(crate) fn notes(core: &Core) -> Vec<String> {
    let mut notes = Vec::new();
    let stats = core.registrations.pinner.stats();
    for refusal in &stats.refusals {
        let mend = refusal.mend().map(|mend| format!("; to allow it: {mend}")).unwrap_or_default();
        notes.push(format!("pinning fell back: {refusal}{mend}"));
    }
    let asked = core.registrations.pinner.strongest();
    for mode in PinMode::ALL.into_iter().filter(|&mode| mode > asked) {
        match stats.ever(mode) {
            0 => {}
            spans => notes.push(format!(
                "pin mode {asked} was asked for; held by {mode} instead: {spans} spans"
            )),
        }
    }
    let weakest = stats.weakest().max(core.registrations.pinner.strongest());
    if let Some(words) = weakest.not_guaranteed() {
        notes.push(format!("pin mode {weakest}: {words}"));
    }
    if core.options.stale == Stale::Nic && weakest != PinMode::Kernel {
        notes.push(format!(
            "stale = nic needs pin mode kernel; regions pinned by {weakest} are refused when stale"
        ));
    }
    if core.options.watch {
        match crate::watch::watch() {
            Err(error) => {
                let (lost, mend) = (error.not_guaranteed(), error.mend());
                notes.push(format!("{error}: {lost}; to allow them: {mend}"));
            }
            Ok(_) => notes.extend(core.registrations.unwatched().map(|error| {
                format!("some registered memory is not watched, so it is not noticed if the program takes it away: {error}")
            })),
        }
    } else {
        notes
            .push("unmap events are switched off: stale registrations are not detected".to_owned());
    }
    notes.extend(core.port.as_ref().map(Port::troubles).unwrap_or_default());
    let given_up = crate::drain::given_up();
    if given_up > 0 {
        notes.push(format!(
            "{given_up} times memory was taken away or a queue pair ended while a thread \
             (with direct writes, a peer's) was stopped in the middle of an access, as by a signal \
             handler: what the access did then is not guaranteed"
        ));
    }
    if let Some(signal) = mkey_os::copy::displaced() {
        notes.push(format!(
            "the handler of signal {signal} was replaced: an access to unmapped memory may end \
             the program"
        ));
    }
    if !core.options.accounting && core.options.accountant.is_none() {
        notes.push("pinned memory is not counted against RLIMIT_MEMLOCK".to_owned());
    }
    notes
}
