//! How guessable a device's keys are: who knows one key of a region may try the next ones.

use super::code::Code;
use super::finding::{Finding, Status};
use mkey_core::address::HostAddr;
use mkey_core::device::{Device, MrSpec};
use mkey_core::error::Result;
use mkey_core::rights::Rights;
use mkey_os::mapping::{Mapping, PageKind};
use std::collections::HashMap;

/// How many regions are registered.
const SAMPLE: usize = 64;
/// From this share of the same step on, in percent, the next key is a guess that comes true.
const GUESSABLE: usize = 50;

/// Registers regions of one page, and takes them away again; their keys in the order of making.
///
/// # Errors
/// What the device refuses.
#[allow(unsafe_code)] // A registration is a promise about memory, which is kept here.
pub fn sample(device: &dyn Device) -> Result<Vec<u32>> {
    let Ok(mapping) = Mapping::new(4096, PageKind::Base) else { return Ok(Vec::new()) };
    let pd = device.alloc_pd()?;
    let spec = MrSpec {
        address: HostAddr(mapping.addr() as u64),
        length: 4096,
        iova: None,
        rights: Rights::REMOTE_READ,
    };
    let (mut made, mut keys, mut refused) = (Vec::new(), Vec::new(), None);
    for _ in 0..SAMPLE {
        // SAFETY: the mapping lives until all regions are gone; nobody is told their keys.
        match unsafe { device.reg_mr(pd, &spec) } {
            Ok(mr) => {
                keys.push(mr.rkey.0.0);
                made.push(mr.handle);
            }
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    // What can not be taken away goes with the device.
    for handle in made {
        let _ = device.dereg_mr(handle);
    }
    let _ = device.dealloc_pd(pd);
    match refused {
        Some(error) if keys.len() < 2 => Err(error),
        _ => Ok(keys),
    }
}

/// The step that successive keys make most often, and how often in percent.
fn usual_step(keys: &[u32]) -> Option<(u32, usize)> {
    let mut steps = HashMap::<u32, usize>::new();
    for pair in keys.windows(2) {
        if let [one, next] = pair {
            *steps.entry(next.wrapping_sub(*one)).or_default() += 1;
        }
    }
    let all: usize = steps.values().sum();
    // Of two that are as frequent, the smaller: the answer must not depend on the table's order.
    let (step, times) =
        steps.into_iter().max_by_key(|(step, times)| (*times, std::cmp::Reverse(*step)))?;
    Some((step, times * 100 / all.max(1)))
}

/// Judges keys.
pub fn judge(device: &str, keys: &[u32]) -> Finding {
    let call = "ibv_reg_mr";
    let Some((step, share)) = usual_step(keys) else {
        return Finding::new(Code::RkeyPredictable, Status::NotReadable, "too-few")
            .of(device)
            .by(call);
    };
    let spread = keys.iter().max().zip(keys.iter().min()).map_or(0, |(most, least)| most - least);
    // So many bits that all differences fit in.
    let span = u32::BITS - spread.leading_zeros();
    let (status, says) = if share >= GUESSABLE {
        (Status::Warn, "steps")
    } else if span <= 24 {
        (Status::Warn, "narrow")
    } else {
        (Status::Ok, "spread")
    };
    Finding::new(Code::RkeyPredictable, status, says)
        .of(device)
        .value("verdict", says)
        .measure("step", format!("{step:#x}"))
        .measure("share", format!("{share} %"))
        .measure("sample", keys.len())
        .measure("bits", span)
        .by(call)
        .mend("rkeys")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_step_are_guessable_and_others_not() {
        let stepping: Vec<u32> = (0..64).map(|n| 0x1000 + n * 0x100).collect();
        let finding = judge("x", &stepping);
        assert_eq!((finding.says, finding.words["share"].as_str()), ("steps", "100 %"));
        assert_eq!(finding.words["step"], "0x100");
        // A counter of 16 bits in an order that is no order.
        let narrow: Vec<u32> = (0..64u32).map(|n| n.wrapping_mul(40_503) & 0xffff).collect();
        let shuffled: Vec<u32> = narrow.iter().map(|k| k.wrapping_mul(*k) & 0xffff).collect();
        assert_eq!(judge("x", &shuffled).says, "narrow");
        let spread: Vec<u32> = (1..64u64)
            .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15).pow(1) ^ (n * n * 77_777_777)) as u32)
            .collect();
        assert_eq!(judge("x", &spread).status, Status::Ok);
        assert_eq!(judge("x", &[1]).says, "too-few");
        let bits = |spread: u32| judge("x", &[7, 7 + spread]).words["bits"].clone();
        assert_eq!(
            ["0", "1", "8", "9", "24", "25"],
            [0, 1, 255, 256, (1 << 24) - 1, 1 << 24].map(bits).each_ref().map(String::as_str)
        );
        assert_eq!(judge("x", &[u32::MAX, 0]).says, "steps");
    }
}
