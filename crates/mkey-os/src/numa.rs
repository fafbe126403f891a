//! Binding memory to a NUMA node.

use crate::error::{Errno, OsError};
use crate::mapping::Mapping;

/// What became of the wish for a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// No node was asked for: pages come from the node of the thread that touches them first.
    NotAsked,
    /// The pages will come from this node and no other.
    Bound(u32),
    /// The kernel refused (a container's seccomp profile does, with `EPERM`; a kernel without
    /// NUMA, with `ENOSYS`; an unknown node, with `EINVAL`): as [`Binding::NotAsked`].
    Refused {
        /// The node asked for.
        node: u32,
        /// Why.
        errno: Errno,
    },
}

/// Binds the pages of `mapping` that are not in yet to `node`.
pub fn bind(mapping: &Mapping, node: Option<u32>) -> Binding {
    let Some(node) = node else { return Binding::NotAsked };
    match mbind(mapping, node) {
        Ok(()) => Binding::Bound(node),
        Err(OsError { errno, .. }) => Binding::Refused { node, errno },
    }
}

fn mbind(mapping: &Mapping, node: u32) -> Result<(), OsError> {
    const BITS: usize = 4096;
    const WORD: usize = 64;
    const MPOL_BIND: usize = 2;
    let mut mask = [0u64; BITS / WORD];
    let word = mask.get_mut(node as usize / WORD).ok_or(OsError::new("mbind", Errno::INVAL))?;
    *word = 1 << (node as usize % WORD);
    // The kernel reads one bit less than it is told; it refuses set bits beyond its own nodes.
    // SAFETY: the range is the mapping's, the mask outlives the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            mapping.as_ptr(),
            mapping.len(),
            MPOL_BIND,
            mask.as_ptr(),
            BITS + 1,
            0usize,
        )
    };
    if rc == 0 { Ok(()) } else { Err(OsError::last("mbind")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::PageKind;

    #[test]
    fn a_node_that_is_there_and_nodes_that_are_not() {
        let mapping = Mapping::new(1 << 20, PageKind::Base).unwrap();
        assert_eq!(bind(&mapping, None), Binding::NotAsked);
        match bind(&mapping, Some(0)) {
            Binding::Bound(0) => {}
            Binding::Refused { node: 0, errno: Errno::NOSYS | Errno::PERM } => {
                eprintln!("SKIPPED: no mbind here");
            }
            other => panic!("{other:?}"),
        }
        for node in [999, 4095, 4096, u32::MAX] {
            assert!(matches!(bind(&mapping, Some(node)), Binding::Refused { .. }), "{node}");
        }
    }
}
