//! What is special about a work request, as far as a known difference may depend on it.

use super::program::{Bind, Data, Op, Owner, Request, Target};
use mkey_core::rights::Rights;
use mkey_core::work::{SendOp, Sge};
use std::fmt;

/// Bytes that one packet of the programs' connections carries.
pub(super) const MTU: u32 = 1024;

bitflags::bitflags! {
    /// What is special about a work request.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Traits: u16 {
        /// It makes no completion if it succeeds.
        const UNSIGNALED = 1;
        /// It is more than one packet, or its local memory more than one entry.
        const PARTS = 2;
        /// An atomic whose address is not a multiple of 8.
        const MISALIGNED = 4;
        /// An atomic whose local memory is not 8 bytes.
        const NOT_EIGHT = 8;
        /// By a window's key.
        const WINDOW = 16;
        /// A bind with rights that no window can have.
        const RIGHTS = 32;
        /// A bind of what libibverbs can not name: it takes objects, so there are no keys without
        /// one, and a verb for each type.
        const NAMELESS = 64;
        /// An invalidation of what another queue pair has bound.
        const OTHERS = 128;
        /// A registration of no byte, at the beginning of a page.
        const NO_PAGE = 256;
        /// A bind of a zero-based window to bytes that are not all in the region, though no more
        /// than it has.
        const BEYOND = 512;
    }
}

/// What a window may be bound with.
const GRANTS: Rights = Rights::REMOTE_WRITE
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC)
    .union(Rights::LOCAL_WRITE)
    .union(Rights::ZERO_BASED);

impl Traits {
    /// Those of a request that does `op` with `sges`; of a bind, whether it names a window of its
    /// type and a region.
    pub(super) fn of(request: &Request, op: &SendOp<'_>, sges: &[Sge], names: bool) -> Self {
        let bytes: u64 = match request.data {
            Data::Entries(_) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Data::Inline(length) => length.into(),
        };
        let (word, target) = match op {
            SendOp::FetchAdd { remote, .. } | SendOp::CompareSwap { remote, .. } => {
                (Some(remote.address.0), target(&request.op))
            }
            _ => (None, target(&request.op)),
        };
        let through = target.is_some_and(|target| matches!(target.owner, Owner::Window(_)));
        let mut traits = Self::empty();
        traits.set(Self::PARTS, bytes > MTU.into() || sges.len() > 1);
        traits.set(Self::MISALIGNED, word.is_some_and(|word| !word.is_multiple_of(8)));
        traits.set(Self::NOT_EIGHT, word.is_some() && bytes != 8);
        traits.set(Self::WINDOW, through);
        if let Op::Bind(Bind { rights, .. }) = request.op {
            traits.set(Self::RIGHTS, !GRANTS.contains(rights));
            traits.set(Self::NAMELESS, !names);
        }
        traits
    }
}

/// The remote memory of an operation.
fn target(op: &Op) -> Option<Target> {
    match *op {
        Op::Write(target)
        | Op::WriteImm(target, _)
        | Op::Read(target)
        | Op::FetchAdd(target, _)
        | Op::CompareSwap(target, ..) => Some(target),
        Op::Send | Op::SendImm(_) | Op::SendInv(..) | Op::Bind(_) | Op::LocalInv(..) => None,
    }
}

impl fmt::Display for Traits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WORDS: [(Traits, &str); 10] = [
            (Traits::UNSIGNALED, "unsignaled"),
            (Traits::PARTS, "of several packets or entries"),
            (Traits::MISALIGNED, "misaligned"),
            (Traits::NOT_EIGHT, "with other than 8 bytes"),
            (Traits::WINDOW, "by a window's key"),
            (Traits::RIGHTS, "with rights that no window has"),
            (Traits::NAMELESS, "of what libibverbs can not name"),
            (Traits::OTHERS, "of another queue pair's window"),
            (Traits::NO_PAGE, "of no byte, page-aligned"),
            (Traits::BEYOND, "zero-based, not in the region but not longer"),
        ];
        let words = WORDS.iter().filter(|(of, _)| self.contains(*of)).map(|(_, word)| *word);
        f.write_str(&words.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::{Key, Target};
    use super::*;
    use mkey_core::address::IoAddr;
    use mkey_core::key::{Key as Bits, Lkey, Rkey};
    use mkey_core::work::{BindMw, RemoteAddr};

    fn of(op: Op, device: &SendOp<'_>, lengths: &[u32], names: bool) -> Traits {
        let data = Data::Entries(Vec::new());
        let request = Request { op, data, signaled: true, fence: false };
        let sge = |&length: &u32| Sge { address: IoAddr(0), length, lkey: Lkey(Bits(0)) };
        Traits::of(&request, device, &lengths.iter().map(sge).collect::<Vec<_>>(), names)
    }

    #[test]
    fn each_trait_is_told() {
        let remote = |at| RemoteAddr { address: IoAddr(at), rkey: Rkey(Bits(0)) };
        let target = |owner| Target { owner, key: Key::Current, at: 0 };
        let (region, window) = (target(Owner::Region(0)), target(Owner::Window(0)));
        let add = |at| SendOp::FetchAdd { remote: remote(at), add: 1 };
        assert_eq!(of(Op::Send, &SendOp::Send, &[MTU], true), Traits::empty());
        assert_eq!(of(Op::Send, &SendOp::Send, &[MTU + 1], true), Traits::PARTS);
        assert_eq!(of(Op::Send, &SendOp::Send, &[1, 1], true), Traits::PARTS);
        let write = SendOp::Write(remote(1));
        assert_eq!(of(Op::Write(region), &write, &[1], true), Traits::empty());
        assert_eq!(of(Op::Write(window), &write, &[1], true), Traits::WINDOW);
        assert_eq!(of(Op::FetchAdd(region, 1), &add(16), &[8], true), Traits::empty());
        assert_eq!(of(Op::FetchAdd(region, 1), &add(12), &[8], true), Traits::MISALIGNED);
        assert_eq!(of(Op::FetchAdd(region, 1), &add(16), &[9], true), Traits::NOT_EIGHT);
        let bind = |rights| Bind {
            window: 0,
            key: Key::Current,
            step: 1,
            wrong_type: false,
            region: 0,
            region_key: Key::Current,
            at: 0,
            length: 1,
            rights,
        };
        let mw = SendOp::BindMw(BindMw {
            mw: Rkey(Bits(0)),
            new_key: Rkey(Bits(0)),
            mr: Lkey(Bits(0)),
            address: IoAddr(0),
            length: 1,
            rights: Rights::empty(),
        });
        assert_eq!(of(Op::Bind(bind(GRANTS)), &mw, &[], true), Traits::empty());
        assert_eq!(of(Op::Bind(bind(GRANTS)), &mw, &[], false), Traits::NAMELESS);
        assert_eq!(of(Op::Bind(bind(Rights::ON_DEMAND)), &mw, &[], true), Traits::RIGHTS);
    }
}
