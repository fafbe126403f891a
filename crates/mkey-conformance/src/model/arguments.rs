//! Arguments of operations, chosen from bytes: good ones mostly, bad ones in every way.

use super::bed::Bed;
use super::choices::Choices;
use super::object::Object;
use super::operations::ALL;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::engine::{Backing, QpScope};
use mkey_core::key::Key;
use mkey_core::refusal::{PdId, QpId};
use mkey_core::rights::Rights;

impl Bed {
    /// An object that satisfies `wanted`, mostly; else any.
    pub fn pick(&self, c: &mut Choices<'_>, wanted: impl Fn(&Object) -> bool) -> Option<&Object> {
        let objects = &self.model.objects;
        let some: Vec<_> = objects.iter().filter(|object| wanted(object)).collect();
        let at = usize::from(c.byte());
        match (c.rarely(16) || some.is_empty(), objects.len()) {
            (_, 0) => None,
            (true, many) => objects.get(at % many),
            // The youngest are the most likely to be tangled up.
            (false, _) => some.iter().rev().nth(at % some.len()).copied(),
        }
    }

    /// A key: the right one, mostly.
    pub fn key(&self, c: &mut Choices<'_>, object: Option<&Object>, remote: bool) -> Key {
        let (good, other) = match object {
            Some(object) if remote => (object.rkey, object.told_lkey),
            Some(object) => (object.lkey.unwrap_or(object.told_lkey), object.rkey),
            None => (Key(c.u32()), Key(0)),
        };
        match c.below(24) {
            18 => other,
            19 => Key(good.0 ^ u32::from(c.byte())),
            20 => Key(good.0 & !0xff | good.0.wrapping_add(1) & 0xff),
            21 | 22 => self.dead_keys[usize::from(c.byte()) % self.dead_keys.len()],
            23 => Key(c.u32()),
            _ => good,
        }
    }

    /// The oldest domain, mostly, so that objects meet.
    pub fn any_pd(&self, c: &mut Choices<'_>) -> PdId {
        match (c.rarely(4), self.pds.last()) {
            (false, Some(&pd)) => pd,
            _ => c.pick(&self.pds),
        }
    }

    /// A queue pair: one of the domain, mostly.
    pub fn scope(&self, c: &mut Choices<'_>, pd: Option<PdId>) -> QpScope {
        let fitting: Vec<_> =
            self.qps.iter().filter(|(_, of)| pd.is_none_or(|pd| *of == pd)).copied().collect();
        let (qp, pd) = match (c.rarely(16), pd) {
            (false, Some(pd)) if fitting.is_empty() => (QpId(u32::MAX - 1), pd),
            (false, Some(_)) => c.pick(&fitting),
            _ => c.pick(&self.qps),
        };
        QpScope { pd, qp }
    }

    pub fn rights(c: &mut Choices<'_>) -> Rights {
        let rights = match c.below(12) {
            0..=5 => ALL,
            6 => Rights::empty(),
            7 => Rights::MW_BIND,
            8 => Rights::MW_BIND | Rights::REMOTE_READ,
            9 => Rights::MW_BIND | Rights::LOCAL_WRITE,
            _ => Rights::from_bits_truncate(u32::from(c.byte()) & 0x1f),
        };
        // Device verbs refuse the rest (R-REG-01) before the engine is asked.
        if rights.intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC) {
            rights | Rights::LOCAL_WRITE
        } else {
            rights
        }
    }

    pub fn translation(c: &mut Choices<'_>, may_be_null: bool) -> (IoAddr, u64, Backing) {
        let length = match c.below(10) {
            0..=3 => 0x3000,
            4 => 4096,
            5 => 100,
            6 => 1,
            7 => 0,
            8 => 0x2_0001,
            _ => u64::from(c.byte()),
        };
        let host = match c.below(12) {
            0 => u64::MAX - length,
            1 => 0x10_0001 + u64::from(c.byte()),
            2 => 0,
            _ => 0x10_0000 + 0x1000 * (u64::from(c.byte()) % 16),
        };
        let (length, backing) = match c.below(12) {
            0..=7 => (length, Backing::Plain { host: HostAddr(host) }),
            8 => (u64::from(c.u32()) << 16, Backing::Plain { host: HostAddr(0x4000) }),
            9 if c.rarely(3) => return (IoAddr(0), u64::MAX, Backing::Implicit),
            10 if may_be_null => {
                let length = if c.rarely(2) { u64::MAX } else { length };
                return (IoAddr(0), length, Backing::Null);
            }
            _ => {
                let host = host.min(0x20_0000);
                let page_shift = c.pick(&[12, 12, 12, 14, 21]);
                (length, Backing::OnDemand { host: HostAddr(host), page_shift })
            }
        };
        let iova = match c.below(8) {
            0 => 0,
            1 => u64::MAX - length,
            2 => 1 << 63,
            3 => c.u64() >> 8,
            _ => host.min(u64::MAX - length),
        };
        (IoAddr(iova), length, backing)
    }
}
